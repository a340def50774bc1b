"""First guesses against what LLVM makes of a tile."""

import json

import numpy as np
import pytest
from chameleon_tvm.device.targets import target_info
from chameleon_tvm.operators.specs import Conv2dSpec
from chameleon_tvm.spaces.template.conv2d import ConvolutionTemplate, geometry_of
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.provider import TemplateSpace
from chameleon_tvm.spaces.template.tiling import ConvolutionTiling
from computing import assembly_of

AVX2 = json.dumps({"kind": "llvm", "mcpu": "znver3", "num-cores": 2})
AVX512 = json.dumps({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
NEON = json.dumps(
    {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"], "num-cores": 2}
)
SPEC = Conv2dSpec(input=(1, 64, 1, 26), filters=24, kernel=1, layout="NHWC")


def _spilled(target, spec, **tile):
    info = target_info(target)
    geometry = geometry_of(spec, info.lanes("float32"))
    tiling = ConvolutionTiling(geometry, info, in_place=True, channel_blocks=(geometry.ic,))
    return tiling._spilled({f"tile_{name}": np.array(values) for name, values in tile.items()})


def _stack_accesses(columns, vectors):
    """Vectors that the kernel of a tile stores on the stack or loads from there."""
    template = ConvolutionTemplate(SPEC.task("t", AVX2), TemplateOptions())
    tile = {"tile_rows": 1, "tile_columns": columns, "tile_vectors": vectors}
    rest = {"channel_block": 64, "input": "in_place", "outermost": "positions", "unroll": 1}
    lines = assembly_of(template.function({**tile, **rest}), AVX2).splitlines()
    return sum("(%rsp)" in line and "ymm" in line for line in lines)


@pytest.mark.parametrize(("columns", "vectors"), [(7, 1), (9, 1), (13, 1), (6, 2), (4, 3)])
def test_sums_are_guessed_to_be_stored_where_llvm_stores_them(columns, vectors):
    [share] = _spilled(AVX2, SPEC, rows=[1], columns=[columns], vectors=[vectors])
    assert (share > 0) == (_stack_accesses(columns, vectors) > 0)


def test_more_positions_than_half_of_the_registers_spill_with_one_vector_alone():
    columns = list(range(1, 15))
    result = _spilled(AVX2, SPEC, rows=[1] * 14, columns=columns, vectors=[1] * 14)
    assert (result[:7] == 0).all()
    assert (np.diff(result[6:]) > 0).all()
    assert not _spilled(AVX2, SPEC, rows=[1] * 14, columns=columns, vectors=[2] * 14).any()


@pytest.mark.parametrize("target", [AVX512, NEON])
def test_nothing_spills_where_a_multiply_add_broadcasts_or_overwrites_its_sum(target):
    assert not _spilled(target, SPEC, rows=[1, 1], columns=[13, 26], vectors=[1, 1]).any()


@pytest.mark.parametrize(("channels", "filters"), [(256, 48), (512, 1000)])
def test_a_map_thirteen_wide_is_not_guessed_to_fit_the_registers_at_once(channels, filters):
    spec = Conv2dSpec(input=(1, channels, 13, 13), filters=filters, kernel=1, layout="NHWC")
    space = TemplateSpace(TemplateOptions()).design_space(spec.task("t", AVX2))
    first = space.decode(space.first_guesses[0])
    assert first["tile_rows"] * first["tile_columns"] < 13
    wide = TemplateSpace(TemplateOptions()).design_space(spec.task("t", AVX512))
    assert wide.decode(wide.first_guesses[0])["tile_columns"] == 13
