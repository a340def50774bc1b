"""Specifications of operators: shapes, defaults and sentences about what does not fit."""

import attrs
import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm._operators.convolution_specs import Conv1dSpec, Conv3dSpec
from chameleon_tvm._operators.frontend import OperatorsFrontend
from chameleon_tvm._operators.frontend_options import OperatorsOptions
from chameleon_tvm._operators.layouts import channel_block, physical_shape, spatial_rank, with_rank
from chameleon_tvm._operators.primfunc_spec import PrimFuncSpec
from chameleon_tvm.api import (
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
    convolution_of,
)


def conv(**changes):
    return Conv2dSpec(**{"input": [1, 16, 8, 8], "filters": 32, "kernel": 3, **changes})


def test_shapes_of_a_convolution_follow_the_textbook():
    spec = conv(padding=1, stride=2, dilation=(1, 2))
    assert spec.output_shape == (1, 32, 4, 3)
    assert spec.filter_shape == (32, 16, 3, 3)
    assert spec.flop == 2 * 32 * 4 * 3 * 16 * 9


def test_padding_is_one_two_or_four_numbers():
    assert conv(padding=2).pads == (2, 2, 2, 2)
    assert conv(padding=[1, 2]).pads == (1, 2, 1, 2)
    assert conv(padding=[1, 2, 3, 4]).pads == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("spec", "pads", "output", "layout"),
    [
        (Conv1dSpec(input=[1, 4, 9], filters=6, kernel=3, padding=1), (1, 1), (1, 6, 9), "NCW"),
        (
            Conv1dSpec(input=[1, 4, 9], filters=6, kernel=3, padding=[2, 0], layout="NWC"),
            (2, 0),
            (1, 6, 9),
            "NWC",
        ),
        (
            Conv3dSpec(input=[2, 4, 5, 6, 7], filters=6, kernel=3, padding=[1, 0, 2], stride=2),
            (1, 0, 2, 1, 0, 2),
            (2, 6, 3, 2, 5),
            "NCDHW",
        ),
    ],
)
def test_convolutions_have_as_many_numbers_as_axes(spec, pads, output, layout):
    assert (spec.pads, spec.output_shape, spec.layout) == (pads, output, layout)
    assert type(spec).of(spec.task("t", "llvm")) == attrs.evolve(spec, name="t")
    assert convolution_of(spec.task("t", "llvm")).kind == spec.kind


@pytest.mark.parametrize(
    "arguments", [{"kernel": 3}, {"kernel": [3, 3], "padding": [0, 0], "stride": [1, 1]}]
)
def test_one_number_and_one_for_each_axis_are_the_same_task(arguments):
    result = Conv2dSpec(input=[1, 16, 8, 8], filters=32, **arguments).task("x", "llvm")
    assert result.key == "fdf88253715ffbb30eb5e18a"
    assert result.arguments["layout"] == "NCHW"


def test_the_output_has_the_input_s_layout_unless_told():
    assert conv(layout="NHWC").output_layout == "NHWC"
    assert conv(layout="NHWC", output_layout="NCHW16c").output_layout == "NCHW16c"


def test_a_task_is_rebuilt_from_its_arguments():
    spec = conv(padding=1, layout="NCHW8c", name="x", weight=3)
    task = spec.task("made_up", "llvm")
    assert (task.name, task.weight) == ("x", 3)
    assert Conv2dSpec.of(task) == spec


def test_the_name_is_no_part_of_the_work():
    assert conv(name="a").task("a", "t").key == conv(name="b").task("b", "t").key
    assert conv().task("a", "t").key != conv(padding=1).task("a", "t").key


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kernel": 9}, "does not fit"),
        ({"groups": 3}, "do not divide into 3 groups"),
        ({"layout": "NCHW5c"}, "do not divide into the blocks"),
        ({"output_layout": "NCHW5c"}, "32 output channels"),
        ({"layout": "HWCN"}, "is not a layout"),
        ({"layout": "NWC"}, "no layout of 2 spatial axes"),
        ({"kernel": [3]}, "kernel, stride and dilation 1 or 2"),
        ({"padding": [1, 2, 3]}, "padding 1, 2 or 4"),
        ({"filters": 0}, "not positive"),
        ({"groups": 0}, "not positive"),
        ({"padding": -1}, "negative"),
        ({"input": [1, 16, 8]}, "4 numbers"),
        ({"dtype": "float64"}, "float64"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(changes, said):
    with pytest.raises(ConfigError, match=said) as caught:
        conv(**changes)
    assert caught.value.hint


def test_other_operators_check_their_shapes():
    with pytest.raises(ConfigError, match="do not fit together"):
        BatchMatmulSpec(a=[2, 3, 4], b=[2, 5, 6])
    with pytest.raises(ConfigError, match="not positive"):
        DenseSpec(input=[4, 0], units=3)
    with pytest.raises(ConfigError, match="does not name a function"):
        PrimFuncSpec(source="no_function")
    assert DepthwiseConv2dSpec(input=[1, 8, 5, 5], kernel=3, multiplier=2).output_channels == 16
    assert BatchMatmulSpec(a=[2, 3, 4], b=[2, 6, 4], transpose_b=True).columns == 6


def test_layouts():
    assert [channel_block(layout) for layout in ("NCHW", "NHWC", "NCHW16c")] == [0, 0, 16]
    assert physical_shape((2, 32, 5, 6), "NHWC") == (2, 5, 6, 32)
    assert physical_shape((2, 32, 5), "NWC") == (2, 5, 32)
    assert physical_shape((2, 32, 4, 5, 6), "NCDHW8c") == (2, 4, 4, 5, 6, 8)
    assert [with_rank("NHWC", rank) for rank in (1, 2, 3)] == ["NWC", "NHWC", "NDHWC"]
    assert [with_rank("NCW16c", rank) for rank in (1, 2, 3)] == ["NCW16c", "NCHW16c", "NCDHW16c"]
    assert [spatial_rank(layout) for layout in ("NCW", "NHWC", "NCDHW4c")] == [1, 2, 3]
    for wrong in ("NCH", "NDWC", "NCHWC", "NHWC4c", "NCHW0c"):
        with pytest.raises(ConfigError, match="is not a layout"):
            spatial_rank(wrong)
    assert physical_shape((2, 32, 5, 6), "NCHW8c") == (2, 4, 5, 6, 8)


def test_the_frontend_makes_unique_names_and_refuses_repeated_ones():
    dense = DenseSpec(input=[2, 3], units=4)
    named = DenseSpec(input=[2, 3], units=5, name="dense_0")
    frontend = OperatorsFrontend(OperatorsOptions(operators=(dense, dense, named)))
    assert "--to library" in frontend.usage('{"kind": "llvm"}')
    assert "--to tvmscript" in frontend.usage('{"kind": "cuda", "arch": "sm_80"}')
    assert "--to tvmscript" in frontend.usage('{"kind": "llvm", "mtriple": "riscv64-linux-gnu"}')
    tasks = frontend.tasks("llvm")
    assert len({task.name for task in tasks}) == 3
    with pytest.raises(ConfigError, match="'dense_0'"):
        OperatorsOptions(operators=(named, named))
    with pytest.raises(ConfigError, match="empty"):
        OperatorsOptions(operators=())
