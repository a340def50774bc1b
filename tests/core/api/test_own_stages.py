"""Stages that a program gives as classes or objects."""

import attrs
import chameleon_core as cc
import numpy as np
import pytest
from chameleon_core.plugin_api import (
    Candidates,
    ConfigError,
    Explorer,
    PluginError,
    hookimpl,
)
from synthetic import synthetic_document, synthetic_registry


@attrs.frozen(kw_only=True)
class SweepOptions:
    from_end: bool = False


class Sweep(Explorer):
    """Proposes the configurations of a small space in order."""

    def __init__(self, options: SweepOptions, context):
        self.from_end, self.space = options.from_end, context.space

    def explore(self, score, visited, count):
        configs = self.space.all_legal
        configs = configs[::-1] if self.from_end else configs
        configs = configs[visited.unvisited(configs)][:count]
        return Candidates(configs=configs, scores=-np.arange(len(configs), dtype=float), steps=1)


def proposals(space, stages, explorer):
    """The first configurations that an explorer proposes after the random ones."""
    with cc.Tuner(space, **{**stages, "explorer": explorer}, batch_size=4) as tuner:
        for _ in range(2):
            batch = tuner.ask()
            tuner.tell(batch, np.linspace(1.0, 2.0, len(batch)))
        assert tuner.measured == 8
        return [row.configuration for row in tuner.measurements if row.origin == "explorer"]


def test_a_class_an_object_and_a_class_with_options_explore(tiles, stages):
    everything = [tiles.decode(config) for config in tiles.all_legal]

    class Context:
        space = tiles

    for explorer in (Sweep, Sweep(SweepOptions(), Context)):
        chosen = proposals(tiles, stages, explorer)
        assert chosen == [row for row in everything if row in chosen]
        assert chosen
    last = proposals(tiles, stages, {"name": Sweep, "from_end": True})
    assert last == [row for row in reversed(everything) if row in last]
    with pytest.raises(ConfigError, match="from_ende"):
        proposals(tiles, stages, {"name": Sweep, "from_ende": True})


def test_another_class_is_refused_with_what_it_lacks(tiles, stages):
    with pytest.raises(PluginError, match="explorer 'Fraction' lacks 'explore'"):
        cc.Tuner(tiles, **{**stages, "explorer": type("Fraction", (), {"__init__": pair})})


def pair(self, options, context):
    pass


def test_a_run_takes_classes_and_events_reach_its_registry(tmp_path):
    document = synthetic_document(tmp_path / "run", operators=[[7, 9]])
    events = []

    class Watcher:
        @hookimpl
        def chameleon_run_finished(self, event):
            events.append(event.folder)

    registry = synthetic_registry(Watcher())
    run = cc.tune(document, registry=registry, explorer=Sweep, progress=False)
    assert run.finished
    assert events == [str(run.folder)]
    assert "explorer" in {row.origin for row in run.measurements}
    again = cc.tune(document, registry=registry, explorer=Sweep, progress=False)
    assert len(again.measurements) == len(run.measurements)


def test_one_object_serves_one_operator(tiles, tmp_path):
    document = synthetic_document(tmp_path / "run", operators=[[7, 9], [5, 8]])

    class Context:
        space = tiles

    sweep = Sweep(SweepOptions(), Context)
    with pytest.raises(ConfigError, match="cannot serve several operators"):
        cc.tune(document, registry=synthetic_registry(), explorer=sweep, progress=False)
