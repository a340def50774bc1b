"""The command that lists what set-up downloads adds up the files that pip names."""

import downloads
import pytest


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Two files, one of them torch's, and a package of the repository."""

    def item(name, megabytes):
        file = tmp_path / f"{name}.whl"
        file.write_bytes(bytes(int(megabytes * 1e6)))
        address = {"url": file.as_uri(), "archive_info": {}}
        return {"metadata": {"name": name}, "download_info": address}

    own = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    items = [
        item("NumPy", 0.3),
        item("torch", 2.0),
        {"metadata": {"name": "chameleon-tuner"}, "download_info": own},
    ]
    monkeypatch.setattr(downloads, "resolved", lambda: items)


def test_the_sum_leaves_out_torch_and_the_repository(report, capsys):
    assert downloads.main([]) == 0
    assert capsys.readouterr().out.split("\n") == [
        "     2.0 MB  torch",
        "     0.3 MB  numpy",
        "     0.3 MB  besides torch, 2 distributions",
        "",
    ]


@pytest.mark.parametrize(("limit", "code"), [("0.4", 0), ("0.2", 1)])
def test_a_limit_is_kept_or_exceeded(report, limit, code):
    assert downloads.main(["--limit", limit]) == code
