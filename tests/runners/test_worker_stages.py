"""A worker makes a stage's options as the pipeline did: of the same values, with one converter."""

import json
import sys
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.load import from_dict
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core._task import Task
from chameleon_core.plugin_api import Builder, SpaceProvider
from chameleon_runners._worker.stages import make_builder, make_device
from synthetic import plugin_of, record_of, synthetic_document, synthetic_registry

TASK = Task(name="t", operator="o", arguments={}, target="nowhere", flop=1.0)


@attrs.frozen(kw_only=True)
class Tile:
    rows: int = 1
    columns: int = 1


@attrs.frozen(kw_only=True)
class Unroll:
    steps: int = 4


@attrs.frozen(kw_only=True)
class EveryOptions:
    """One of each kind of option that a pipeline can hold."""

    rule: Any = attrs.field(default=Tile(), metadata={"tagged": {"tile": Tile, "unroll": Unroll}})
    rules: tuple[Any, ...] = attrs.field(
        default=(), metadata={"tagged": {"tile": Tile, "unroll": Unroll}}
    )
    spaces: tuple[StageSpec | str, ...] = attrs.field(
        default=("sketch",), metadata={"stages": "spaces"}
    )
    pause: float = attrs.field(default=0.0, metadata={"duration": True})
    table: Path | None = attrs.field(default=None, metadata={"path": True})
    mode: Literal["fast", "exact"] = "fast"
    sizes: frozenset[int] = frozenset()
    limit: int | Literal["auto"] = "auto"
    tile: Tile | None = None


class EverySpace(SpaceProvider):
    """Remembers its options."""

    def __init__(self, options: EveryOptions) -> None:
        self.options = options

    def design_space(self, task):
        raise NotImplementedError

    def builder(self, task, *, threads):
        return Made(self.options)


class Made(Builder):
    def __init__(self, options: Any) -> None:
        self.options = options

    def build(self, config):
        raise NotImplementedError


PLUGIN = plugin_of(spaces=[record_of(EverySpace, EveryOptions, name="every")])


WRITTEN = {
    "name": "every",
    "rule": {"unroll": {"steps": 8}},
    "rules": [{"tile": {"rows": 2}}, {"unroll": 16}],
    "pause": "20ms",
    "table": "table.json",
    "mode": "exact",
    "sizes": [3, 1],
    "limit": 7,
    "tile": {"columns": 5},
}


def read(tmp_path, written):
    # `sketch` is an installed space: what a worker finds, too.
    registry = synthetic_registry(PLUGIN, *_installed_spaces())
    document = synthetic_document(tmp_path / "run", space=written)
    return from_dict(document, registry=registry).space


def _installed_spaces():
    from chameleon_tvm import hooks  # noqa: PLC0415 - nothing else of TVM's is needed

    class Spaces:
        chameleon_spaces = staticmethod(hooks.chameleon_spaces)

    return [("chameleon-tuner-tvm", Spaces())]


def made(spec):
    message = {
        "factory": spec.factory,
        "options": json.loads(json.dumps(spec.options_json)),
        "task": TASK.to_json(),
        "threads": 1,
    }
    return make_builder(message).options


@pytest.mark.parametrize("written", ["every", WRITTEN], ids=["defaults", "everything"])
def test_a_worker_reads_the_options_that_the_pipeline_read(tmp_path, written):
    spec = read(tmp_path, written)
    here, there = spec.options, made(spec)
    assert [space.options for space in there.spaces] == [space.options for space in here.spaces]
    assert attrs.evolve(there, spaces=()) == attrs.evolve(here, spaces=())


class Lamp:
    def __init__(self, options: Tile) -> None:
        self.options = options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "3"}, "option 'rows' for Tile must be an integer, not the text '3'"),
        ({"row": 3}, "unknown option 'row' for Tile; did you mean 'rows'"),
    ],
)
def test_what_a_worker_cannot_read_is_a_sentence(options, message):
    with pytest.raises(ConfigError, match=message):
        make_device(f"{__name__}:Lamp", options)
    assert make_device(f"{__name__}:Lamp", {"rows": 3}).options == Tile(rows=3)


NEEDING_TORCH = """
from chameleon_core.plugin_api import Builder, SpaceProvider

try:
    import torch
except ImportError:
    torch = None


class Space(SpaceProvider):
    def __init__(self, options):
        assert torch is not None

    def design_space(self, task):
        raise NotImplementedError

    def builder(self, task, *, threads):
        return Late()


class Late(Builder):
    def build(self, config):
        import torch

        return torch.answer
"""


def test_a_stage_may_import_torch(tmp_path, monkeypatch):
    (tmp_path / "needing_torch.py").write_text(NEEDING_TORCH)
    (tmp_path / "torch.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("torch", "needing_torch"):
        monkeypatch.setitem(sys.modules, module, None)
        del sys.modules[module]
    message = {"factory": "needing_torch:Space", "options": {}, "threads": 1}
    assert make_builder({**message, "task": TASK.to_json()}).build(()) == 42


def test_workers_import_chameleon_s_own_stages_without_torch(run_python):
    program = (
        "import sys\n"
        "from chameleon_core._plugins.registry import Registry\n"
        "from chameleon_runners._worker.stages import preload\n"
        "registry = Registry.default()\n"
        "for kind in ('spaces', 'baselines'):\n"
        "    for name in registry.names(kind):\n"
        "        preload(registry.record(kind, name).factory)\n"
        "print('tvm' in sys.modules, 'torch' in sys.modules)\n"
    )
    assert run_python(program).split() == ["True", "False"]


def test_a_stage_without_annotations_gets_what_was_sent():
    class Bare:
        def __init__(self, options):
            self.options = options

    module = sys.modules[__name__]
    module.Bare = Bare
    try:
        assert make_device(f"{__name__}:Bare", {"rows": "3"}).options == {"rows": "3"}
    finally:
        del module.Bare
