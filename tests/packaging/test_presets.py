"""Every preset works with every example, on the command line and whatever the examples vary in."""

import importlib

import pytest
from chameleon_cli._main import run as chameleon
from chameleon_core._errors import ExitCode
from chameleon_core._plugins.registry import Registry

pytestmark = pytest.mark.usefixtures("everything")

SHAPES = "{image: [{buckets: [1, 8]}, 3, 224, 224]}"
BUCKETS = f"model={{builtin: {{network: resnet18, shapes: {SHAPES}}}}}"
VARIANTS = (
    (),
    ("budget.scope=network",),
    ("budget.scope=task",),
    ("budget={scope: network}",),
    ("budget.measurements=0",),
    ("budget={wall_time: 5m}",),
    (BUCKETS, "precision=int8"),
)


def examples(root):
    return sorted((root / "examples").glob("*.yaml"))


@pytest.fixture
def dry_run(monkeypatch, tmp_path, capfd):
    """Says what a run would tune; what went wrong, or nothing."""
    monkeypatch.setenv("CHAMELEON_DEBUG", "")

    def call(file, *overrides):
        arguments = [word for override in overrides for word in ("--set", override)]
        code = chameleon(["run", "--dry-run", str(file), *arguments, "-o", str(tmp_path)])
        said = capfd.readouterr().err
        return None if code == ExitCode.OK else f"{file.name} {overrides}: {said}"

    return call


@pytest.mark.full
def test_every_preset_is_one_of_every_example(root, dry_run, monkeypatch):
    # The tasks of a network depend on no preset, and take seconds each.
    command = importlib.import_module("chameleon_cli._run")
    monkeypatch.setattr(command.TaskSource, "tasks", lambda *_: [])
    failures = [
        failure
        for file in examples(root)
        for preset in Registry.default().names("presets")
        for variant in VARIANTS
        if (failure := dry_run(file, f"preset={preset}", *variant)) is not None
    ]
    assert not failures


@pytest.mark.long
@pytest.mark.parametrize("name", ["quickstart", "int8", "resnet18", "resnet18_layers", "digits"])
def test_what_a_preset_would_tune(root, dry_run, name):
    assert dry_run(root / "examples" / f"{name}.yaml", "preset=one-shot") is None
