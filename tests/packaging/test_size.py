"""The table of `nox -s size`: its figures may only shrink, and are counted as it says."""

import sys
import tomllib

import pytest
import size
from imports import imports_in


@pytest.fixture
def table(tmp_path, monkeypatch):
    file = tmp_path / "size.toml"
    monkeypatch.setattr(size, "TABLE", file)
    monkeypatch.setattr(size, "figures", lambda: {"code lines": 10, "modules": 3})
    return file


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["size.py", *words])
    return size.main()


@pytest.mark.full
def test_no_figure_of_this_repository_has_grown():
    limits = tomllib.loads(size.TABLE.read_text())["limits"]
    figures = size.figures()
    assert figures.keys() == limits.keys()
    assert {name: count for name, count in figures.items() if count > limits[name]} == {}


def test_a_figure_that_has_grown_is_an_error(table, monkeypatch, capsys):
    table.write_text('[limits]\n"code lines" = 9\n"modules" = 3\n')
    assert run(monkeypatch) == 1
    assert capsys.readouterr().err == "code lines: 10 is more than 9\n"


def test_lower_figures_are_written_and_higher_ones_are_not(table, monkeypatch):
    table.write_text('[limits]\n"code lines" = 9\n"modules" = 5\n[bars]\n"modules" = 2\n')
    assert run(monkeypatch, "--update") == 1
    assert tomllib.loads(table.read_text()) == {
        "limits": {"code lines": 9, "modules": 3},
        "bars": {"modules": 2},
    }


def test_a_line_of_code_is_neither_blank_nor_comment_nor_docstring():
    text = '"""About.\n\nMore.\n"""\n\n# why\nA = 1  # one\n"""What A is."""\nB = """x\ny"""\n'
    assert size.code_lines(text) == 3


def test_imports_that_come_late_are_counted_by_statement():
    text = "import chameleon_a\ndef f():\n    from chameleon_b import c, d\n    import numpy\n"
    assert size.late_imports(text) == 1
    assert [item.late for item in imports_in(text)] == [False, True, True, True]


def test_reduced_types_are_found_and_no_other_words():
    reduced = ["x = 'uint8'", "np.int8", "x = f'{a}bfloat16'", "in_bf16 = 1"]
    others = ["x = 'int32'", '"""int8"""', "print('hint8')", "int80 = 1"]
    assert [code for code in reduced + others if size.names_a_reduced_type(code)] == reduced
