"""Configurations that TVM makes another program of, or none: neither proposed nor counted."""

import numpy as np
import pytest
import synthetic
from chameleon_core._errors import InvalidConfigurationError
from chameleon_core._loop.round.stages import SearchStages
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._measurement import Measurement
from chameleon_core.plugin_api import NoOptions, StageContext
from chameleon_tvm._operators.primfunc_spec import PrimFuncSpec
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchBuilder, SketchSpace
from marks import full

BATCHES, BATCH_SIZE = 4, 8

SCAN = """
from tvm.script import tirx as T

def scan():
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 16), "float32"), out: T.Buffer((8, 16), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j in T.grid(8, 16):
            with T.sblock("scan"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    out[vi, 0] = 0.0
                out[vi, vj] = x[vi, vj] + T.if_then_else(vj > 0, out[vi, vj - 1], T.float32(0.0))
    return main
"""


def _space(task):
    return SketchSpace(SketchOptions()).design_space(task)


@pytest.fixture
def make_tuner():
    """Makes a tuner with synthetic stages, which propose any legal configuration."""

    def make(task):
        space = _space(task)
        context = StageContext(
            space=space, task=task, rng=np.random.default_rng(0), batch_size=BATCH_SIZE, threads=1
        )
        stages = SearchStages(
            explorer=synthetic.SyntheticExplorer(NoOptions(), context),
            cost_model=synthetic.SyntheticCostModel(NoOptions(), context),
            sampler=synthetic.SyntheticSampler(NoOptions(), context),
            synthesizer=synthetic.SyntheticSynthesizer(NoOptions(), context),
            space=space,
            task=task,
        )
        return TaskTuner(space, stages, rng=np.random.default_rng(1), batch_size=BATCH_SIZE)

    return make


@pytest.mark.parametrize(
    "name", ["softmax", full("matmul_softmax"), full("log_sum_exp"), full("largest_place")]
)
def test_what_is_proposed_is_possible(name, foreign_task, make_tuner):
    """More than eight of ten legal configurations of these operators are impossible."""
    task = foreign_task(name)
    tuner, builder = make_tuner(task), SketchBuilder(task, SketchOptions(), threads=1)
    rng = np.random.default_rng(2)
    for _ in range(BATCHES):
        batch = tuner.ask().configs
        assert len(batch) == BATCH_SIZE, "what is impossible takes no place in a batch"
        for config in batch.tolist():
            builder.scheduled(config)
        seconds = rng.random(BATCH_SIZE).tolist()
        tuner.tell(
            [
                Measurement(config=tuple(config), seconds=(1.0 + cost,))
                for config, cost in zip(batch.tolist(), seconds, strict=True)
            ]
        )


@pytest.mark.full
def test_first_guesses_are_valid(foreign_task):
    """Thirty-one of thirty-two were impossible."""
    task = foreign_task("matmul_softmax")
    builder = SketchBuilder(task, SketchOptions(), threads=1)
    guesses = _space(task).first_guesses
    assert len(guesses) == SketchOptions().start
    for config in guesses.tolist():
        builder.scheduled(config)


def test_an_impossible_choice_is_resolved_as_its_sentence_says(foreign_task):
    task = foreign_task("row_norms")
    space, builder = _space(task), SketchBuilder(task, SketchOptions(), threads=1)
    column = space.index["compute_location_squares"]
    knob = space.knobs[column]
    config = space.all_legal[0].copy()
    config[column] = knob.options.index(2)
    with pytest.raises(
        InvalidConfigurationError, match=r"compute_location_squares.*TVM takes.*choose"
    ):
        builder.scheduled(config)
    (result,) = space.resolved(config[None])
    assert result[column] != config[column]
    builder.scheduled(result)
    assert np.array_equal(space.resolved(result[None]), result[None])


def test_an_operator_without_a_program_gets_a_warning_and_no_measurement(
    tmp_path, target, make_tuner, capsys
):
    (tmp_path / "scan.py").write_text(SCAN)
    task = PrimFuncSpec(name="scan", source=f"{tmp_path / 'scan.py'}:scan").task("scan", target)
    assert len(make_tuner(task).ask().configs) == 0
    assert "no_program_of_any_sketch" in capsys.readouterr().out
