"""What winners became is in the run folder, whoever builds them, and a run does without."""

import os

import attrs
import pytest
from chameleon_core._loop.run import run_pipeline
from chameleon_core._network_result import NetworkResult
from chameleon_core._run_files import RunFile
from chameleon_core._task import Task
from chameleon_core.plugin_api import NoOptions, SpaceRecord
from chameleon_tvm._building.winners import MAX_LISTINGS, operators_to_list
from structlog.testing import capture_logs
from synthetic import plugin_of

SPACE = """
from chameleon_core.plugin_api import Builder
from synthetic import SyntheticSpace


class Listing(Builder):
    def __init__(self, task):
        self.task = task

    def build(self, config):
        raise NotImplementedError

    def listings(self, config):
        if self.task.arguments["cardinalities"] == [4]:
            raise RuntimeError("not for this one")
        if self.task.arguments["cardinalities"] == [3]:
            return {}
        return {"loops.txt": f"knobs {list(config)}", "../above.txt": "no further than here"}


class Space(SyntheticSpace):
    def builder(self, task, *, threads):
        return Listing(task)
"""


LISTED = SpaceRecord(
    name="listed",
    summary="listed",
    options=NoOptions,
    factory="listed_space:Space",
    listings="chameleon_tvm._building.winners:list_winners",
)


@pytest.fixture
def listed(pipeline, tmp_path, monkeypatch):
    """Runs a pipeline whose space has listings."""
    (tmp_path / "listed_space.py").write_text(SPACE)
    monkeypatch.syspath_prepend(tmp_path)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    def made(operators, **more):
        return run_pipeline(
            pipeline(
                plugins=[plugin_of(spaces=[LISTED])], space="listed", operators=operators, **more
            )
        )

    return made


def _texts(result):
    return {
        operator.name: {
            file.name: file.read_text()
            for file in (result.folder / RunFile.LISTINGS).glob(
                f"{Task(**operator.task).folder_name}/*"
            )
        }
        for operator in result.operators
    }


def test_winners_are_listed_as_far_as_they_can_be(listed):
    with capture_logs() as said:
        result = listed([[5, 5], [4], [3]])
    first, *others = result.operators
    assert _texts(result) == {
        first.name: {
            "loops.txt": f"knobs {list(first.config)}",
            "above.txt": "no further than here",
        },
        **{other.name: {} for other in others},
    }
    [warning] = [row for row in said if row["event"] == "listings_incomplete"]
    assert "RuntimeError: not for this one" in warning["output"]
    assert not (result.folder / "above.txt").exists()


def test_listings_are_those_of_the_last_winners(listed):
    folder = listed([[5, 5]]).folder / RunFile.LISTINGS
    (folder / "of-an-earlier-winner").mkdir()
    listed([[5, 5]], budget={"measurements": 24, "batch_size": 4})
    assert len(list(folder.iterdir())) == 1


def test_without_any_nothing_is_written(pipeline, listed, tmp_path):
    assert not (run_pipeline(pipeline()).folder / RunFile.LISTINGS).exists()
    replayed = listed([[5, 5]], runner={"name": "synthetic-replay"}, output=tmp_path / "other")
    assert not (replayed.folder / RunFile.LISTINGS).exists()


def test_those_that_take_most_of_the_time_are_listed(pipeline):
    [first] = run_pipeline(pipeline(operators=[[5, 5]], baselines=[])).operators
    many = [
        attrs.evolve(first, name=f"op{number}", variants=(), search_seconds=1e-3 * number)
        for number in range(MAX_LISTINGS + 3)
    ]
    names = [result.name for result in operators_to_list(many, NetworkResult())]
    assert names == [f"op{number}" for number in range(MAX_LISTINGS + 2, 2, -1)]
    kernels = [
        NetworkResult.Kernel(name=name, tuned=True, calls=1, seconds=seconds)
        for name, seconds in (("op1", 2e-3), ("op0", 3e-3))
    ]
    network = NetworkResult(kernels=tuple(kernels))
    assert [result.name for result in operators_to_list(many, network)] == ["op0", "op1"]
    assert operators_to_list([attrs.evolve(first, config=None)], NetworkResult()) == []
