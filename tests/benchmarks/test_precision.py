"""The table of what runs a network in which precision."""

import precision
import pytest
from chameleon_networks.delivery.reduced_rivals import ComputedIn


def test_every_row_names_its_precision_and_its_error():
    about = {
        "torch": ComputedIn(asked="float32", precision="float32", max_relative_error=0.0),
        "openvino int8": ComputedIn(
            asked="int8", precision="int8, the rest bfloat16", max_relative_error=0.0078
        ),
        "openvino": ComputedIn(asked="float32", precision="float32", max_relative_error=2e-7),
    }
    times = {"torch": [0.04, 0.05, 0.03], "openvino int8": [0.002, 0.003], "openvino": None}
    result = precision.SideBySide(times=times, about=about, left_out={})
    first, second = precision.rows_of(result)
    assert (first["name"], first["seconds"], first["turns"]) == ("openvino int8", 0.0025, 2)
    lines = precision.table([first, second]).splitlines()
    assert (
        lines[2]
        == "| openvino int8 | int8, the rest bfloat16 | 2.50 ms | 2.00 ms | 2 | 1.00 | 7.8e-03 |"
    )
    assert lines[3] == "| torch | float32 | 40.0 ms | 30.0 ms | 3 | 16.00 | 0.0e+00 |"


def test_a_runs_folder_and_the_network_in_it_are_the_same(tmp_path):
    network = tmp_path / "run" / "network"
    network.mkdir(parents=True)
    (network / "manifest.json").write_text("{}")
    assert precision.labelled([tmp_path / "run"]) == {"Chameleon, run": network}
    assert precision.labelled([network]) == {"Chameleon, network": network}


@pytest.mark.parametrize("text", ["resnet18", "=folder", "resnet18="])
def test_a_folder_needs_its_networks_name(text):
    with pytest.raises(precision.argparse.ArgumentTypeError, match="NAME=FOLDER"):
        precision._named(text)
