"""The files of a run folder."""

from enum import StrEnum


class RunFile(StrEnum):
    """The name of a file or folder in a run folder."""

    RECORDS = "records.sqlite"
    """All measurements, and facts about the run."""

    PIPELINE = "pipeline.yaml"
    """The pipeline with every default."""

    EVENTS = "events.jsonl"
    """The event log."""

    BEST = "best.json"
    """The result of a run that has ended."""

    NETWORK = "network"
    """The folder of the delivered network."""

    LISTINGS = "listings"
    """The folder with the code of the winners, with a folder for each task
    (``Task.folder_name``)."""

    REPORT = "report.html"
    """The page about the run."""
