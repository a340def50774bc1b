"""The run folder: one process, one pipeline, and sentences where it cannot be used."""

import json
import os
import shutil
import subprocess
from importlib import metadata

import attrs
import pytest
from chameleon_core._errors import RunFolderError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._pipeline.schema import StageSpec, stages_of
from chameleon_core._run_folder import RunFolder
from chameleon_core._versions import versions
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import NoOptions, PluginRecord, TargetResolver
from structlog.testing import capture_logs
from synthetic import SyntheticExplorer, run_synthetic, synthetic_document, synthetic_registry


def test_the_written_pipeline_is_the_same_pipeline(pipeline, tmp_path):
    resolved = pipeline()
    run_pipeline(resolved)
    again = load_pipeline(tmp_path / "run" / "pipeline.yaml", registry=synthetic_registry())
    assert again.digest == resolved.digest
    assert again.budget == resolved.budget


def test_another_pipeline_is_told_what_differs(pipeline, log_lines):
    run_pipeline(pipeline())
    before = log_lines()
    with pytest.raises(RunFolderError, match="another pipeline: seed was 0 and is 7") as caught:
        run_pipeline(pipeline(seed=7))
    assert "`fresh=True`" in caught.value.hint
    assert "`output=`" in caught.value.hint
    with pytest.raises(RunFolderError, match=r"runner\.delay was 0.0 and is 0.001"):
        run_pipeline(pipeline(runner={"delay": 0.001}))
    assert log_lines() == before


def test_fresh_moves_the_old_run_aside(pipeline, tmp_path, records):
    for seed in (0, 1, 2):
        run_pipeline(pipeline(seed=seed, operators=[[30, 30]]), fresh=True)
    folder = tmp_path / "run"
    assert {p.name for p in folder.iterdir() if p.is_dir()} == {"earlier-1", "earlier-2"}
    assert records(folder / "earlier-1") != records(folder / "earlier-2") != records(folder)
    assert len(records(folder)["op0"]) == 20


class Elsewhere(TargetResolver):
    """Resolves to the same target until the environment says another."""

    def __init__(self, options):
        pass

    def resolve(self, text):
        return f"{text} -mcpu={os.environ.get('SYNTHETIC_CPU', 'zen4')}"


def test_native_on_another_machine_is_another_target(pipeline, plugin, monkeypatch):
    def resolved():
        result = plugin("targets", Elsewhere)
        pipe = pipeline(plugins=[result])
        spec = attrs.evolve(pipe.scheduler, kind="targets", record=result.chameleon_targets()[0])
        return attrs.evolve(pipe, target_resolver=spec)

    run_pipeline(attrs.evolve(resolved(), budget=attrs.evolve(pipeline().budget, measurements=4)))
    monkeypatch.setenv("SYNTHETIC_CPU", "alderlake")
    with pytest.raises(RunFolderError, match=r"zen4'?, not for .*alderlake"):
        run_pipeline(resolved())


def test_two_on_one_folder(tmp_path):
    with RunFolder(tmp_path / "run"):
        with pytest.raises(RunFolderError, match=f"another run .process {os.getpid()}.") as caught:
            RunFolder(tmp_path / "run")
        assert "`output=`" in caught.value.hint
        with pytest.raises(RunFolderError):
            RunFolder(tmp_path / "run", fresh=True)
    with RunFolder(tmp_path / "run"):
        pass


@pytest.mark.full
def test_a_file_where_the_folder_should_be(pipeline, tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="cannot write to the run folder") as caught:
        run_pipeline(pipeline())
    assert "`output=`" in caught.value.hint
    with pytest.raises(RunFolderError, match="cannot write to the run folder"):
        run_pipeline(pipeline(output=tmp_path / "run" / "below"))


@pytest.fixture
def read_only(tmp_path):
    """Makes a folder read-only, for root as well where the file system can."""
    frozen = []

    def freeze(folder):
        if os.geteuid():
            folder.chmod(0o555)
            return
        chattr = shutil.which("chattr")
        if (
            chattr is None
            or subprocess.run(
                [chattr, "+i", str(folder)], capture_output=True, check=False
            ).returncode
        ):
            pytest.skip("root writes to any folder here: run as another user to test this")
        frozen.append((chattr, folder))

    yield freeze
    for chattr, folder in frozen:
        subprocess.run([chattr, "-i", str(folder)], check=True)


def test_a_read_only_folder(pipeline, tmp_path, read_only):
    folder = tmp_path / "run"
    folder.mkdir()
    read_only(folder)
    with pytest.raises(RunFolderError, match="cannot write to the run folder") as caught:
        run_pipeline(pipeline())
    assert caught.value.hint


FULL = """
import json, resource, sys
from chameleon_core._errors import RunFolderError
from synthetic import run_synthetic

# A limit on the size of files stands in for a full disk: writing fails in the same place.
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
try:
    run_synthetic(json.loads(sys.argv[1]))
except RunFolderError as error:
    print(error)
    print(error.hint)
"""


@pytest.mark.full
def test_a_disk_that_fills_up_during_a_run(run_python, tmp_path, records):
    document = synthetic_document(
        tmp_path / "run", operators=[[40, 40]], runner={"log": str(tmp_path / "log")}
    )
    document["budget"] = {"measurements": 60, "batch_size": 8}
    message, hint = run_python(FULL, json.dumps(document)).strip().splitlines()
    assert "cannot write to" in message
    assert "continues" in hint
    saved = records(tmp_path / "run")["op0"]
    assert 3 < len(saved) < 60
    assert run_synthetic(document).operators[0].measurements == 60
    assert saved.items() <= records(tmp_path / "run")["op0"].items()
    # Only what could not be saved was measured again.
    assert len((tmp_path / "log").read_text().splitlines()) <= 60 + 1 + 1


def test_a_copied_folder_is_read_where_it_is(pipeline, tmp_path):
    run_pipeline(pipeline())
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert run_pipeline(pipeline(output=tmp_path / "copy")).folder == tmp_path / "copy"
    assert json.loads((tmp_path / "copy" / "best.json").read_text())["run"] == str(tmp_path / "run")


CORE = "chameleon-tuner-core"


@pytest.fixture
def run(pipeline, plugin):
    """Runs with an explorer that a distribution of somebody else brings."""

    def made(measurements=8, distribution="pytest"):
        plugins = [(distribution, plugin("explorers", SyntheticExplorer))]
        budget = {"measurements": measurements, "batch_size": 4}
        resolved = pipeline(plugins=plugins, explorer="odd", budget=budget, baselines=[])
        return run_pipeline(resolved)

    return made


def test_third_parties_are_recorded_and_what_they_import(run):
    result = run()
    # pytest stands for a third party's distribution, being installed wherever this runs.
    for name in (CORE, "numpy", "attrs", "pytest"):
        assert result.versions[name] == metadata.version(name)
    assert json.loads((result.folder / "best.json").read_text())["versions"] == result.versions
    events = (result.folder / "events.jsonl").read_text().splitlines()
    [started] = [json.loads(e) for e in events if '"RunStarted"' in e]
    assert started["versions"]["pytest"] == metadata.version("pytest")
    with RecordStore.of_run(result.folder) as store:
        assert store.fact("versions") == result.versions


def test_what_is_in_the_process_alone_has_no_version(run):
    assert run(distribution="nowhere-installed").versions["nowhere-installed"] is None


def test_other_versions_than_before_are_said(run):
    folder = run().folder
    with RecordStore(folder / "records.sqlite") as store:
        store.set_fact("versions", {**store.fact("versions"), "numpy": "0.1", "gone": "1.0"})
    with capture_logs() as logs:
        result = run(12)
    [logged] = [log for log in logs if log["event"] == "versions_changed"]
    assert logged["versions"] == {"numpy": f"0.1 -> {metadata.version('numpy')}"}
    assert result.versions["gone"] == "1.0", "it took part before"


@attrs.frozen
class Nested:
    stages: tuple[StageSpec, ...]


def test_stages_inside_stages_take_part():
    record = PluginRecord(name="a", summary="", factory="a:b", options=NoOptions)

    def spec(distribution, options=None):
        return StageSpec(
            kind="explorers", name="a", record=record, options=options, distribution=distribution
        )

    inner = spec("inner", Nested(stages=(spec("innermost"),)))
    result = stages_of(spec("outer", Nested(stages=(inner,))))
    assert [row.distribution for row in result] == ["outer", "inner", "innermost"]
    assert versions(["surely-not-installed"]) == {"surely-not-installed": None}
