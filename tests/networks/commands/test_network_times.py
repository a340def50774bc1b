"""The tables of ``chameleon bench-network``: in what precision each is compared."""

from pathlib import Path

import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._commands import network_times
from chameleon_networks._commands.network_times import Timed, Timing, show
from chameleon_networks._comparison.comparison import FrameworkTimes
from chameleon_networks._comparison.reduced_precision import ComputedPrecision
from chameleon_networks._shapes import Axis, Dimension

TIMING = Timing(
    rivals=None, precisions=(), calibrate=None, streams=(), neighbours=0, rounds=None, seconds=1.0
)


def _computed(asked, precision, error, precisions=()):
    return ComputedPrecision(
        asked=asked, precision=precision, max_relative_error=error, precisions=precisions
    )


def _compared(own, precisions):
    about = {
        "network": _computed(own, own, 1e-6, precisions),
        "onnxruntime": _computed("float32", "float32", 1e-7),
        "openvino as it comes": _computed("as-it-comes", "bfloat16", 3.7e-3),
    }
    seconds = dict(zip(about, (4e-3, 6e-3, 2e-3), strict=True))
    times = {name: [took] * 3 for name, took in seconds.items()}
    comparison = FrameworkTimes(times=times, about=about, left_out={})
    return {**network_times._times(comparison), "left_out": {}}


def test_the_precision_that_others_choose_is_in_the_table_with_a_line_for_the_pipeline(capsys):
    summary = _compared("float32", ("float32",))
    assert summary["ratio"] == summary["ratios"]["float32"] == pytest.approx(1.5)
    times = Timed(folder=Path("run"), threads=2, buckets={"64": summary, "128": summary})
    show(TIMING, times, as_json=False)
    printed = capsys.readouterr().out.splitlines()
    assert (printed[0], printed[9]) == ("bucket 64", "bucket 128")
    assert printed[10:] == printed[1:9]
    assert printed[4].split()[-2:] == ["bfloat16", "3.7e-03"]
    default = "openvino as it comes, with its default settings, computes in bfloat16"
    assert printed[5:9] == [
        "1.50 times as fast as the best of the others in float32",
        "0.50 times as fast as the best of the others as they come",
        f"{default}: 2.00 ms, with a largest relative error of 3.7e-03.",
        "To ask Chameleon for the same, write `precision: bfloat16` in the pipeline.",
    ]


def test_a_network_in_a_reduced_dtype_keeps_its_ratio_to_float32(capsys):
    summary = _compared("bfloat16, the rest float32", ("bfloat16",))
    assert summary["ratio"] == pytest.approx(1.5)
    show(TIMING, Timed(folder=Path("run"), threads=2, buckets={"": summary}), as_json=False)
    assert "To ask Chameleon" not in capsys.readouterr().out


LENGTH = Dimension(name="length", buckets=(32, 128), axes=(Axis(input="ids", axis=1, pad=0.0),))
BATCH = Dimension(name="batch", buckets=(1, 8), axes=(Axis(input="ids", axis=0, pad=None),))


def test_sizes_are_read_by_the_names_of_dimensions():
    assert network_times._extents([BATCH, LENGTH], "length=77, batch=8") == (8, 77)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("77", "needs a number for batch, length"),
        ("batch=1,width=3", "needs a number for batch, length"),
        ("batch=1,length=x", "needs a number for batch, length"),
        ("batch=1,length=129", "no bucket takes length 129; there are 32, 128"),
        ("batch=2,length=77", "no bucket takes batch 2; there are 1, 8"),
    ],
)
def test_sizes_that_no_network_was_delivered_for(size, words):
    with pytest.raises(ConfigError, match=words) as caught:
        network_times._extents([BATCH, LENGTH], size)
    assert "--at 'batch=8,length=128'" in str(caught.value.hint)
