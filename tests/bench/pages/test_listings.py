"""Listings on a page: whole where they are short, the innermost loops of long assembly."""

import pytest
from chameleon_bench._pages.search_tables import CHARACTERS, LINES, innermost_loops, listings_of
from chameleon_core._run_files import RunFile
from chameleon_core._task import Task

X86 = """\
main:
\tpushq\t%rbp
\tje\t.LBB0_9
.LBB0_1:                                # %outer
\txorl\t%eax, %eax
.LBB0_2:                                # %inner
\tvfmadd231ps\t(%rdi), %zmm0, %zmm1
\tjne\t.LBB0_2
\tvmovups\t%zmm1, (%rsi)
.LBB0_4:
\tvaddps\t%zmm0, %zmm1, %zmm1
\tjb\t.LBB0_4  # another one
\tjmp\t.LBB0_1
.LBB0_7:
\tdecq\t%rcx
\tjne\t.LBB0_7
.LBB0_9:
\tpopq\t%rbp
\tretq
\tmovl\t$-1, %eax
\tjmp\t.LBB0_9
""".splitlines()

AARCH64 = """\
main:
.LBB0_1:                                // =>This Inner Loop Header
\tfmla\tv0.4s, v1.4s, v2.4s
\tcbnz\tx8, .LBB0_1                    // again
\tret
""".splitlines()

PTX = """\
$L__BB0_2:
\tfma.rn.f32 \t%f1, %f2, %f3, %f1;
\t@%p1 bra \t$L__BB0_2;
""".splitlines()


def test_the_innermost_loops_of_assembly_with_their_depth():
    result = [(loop.first, loop.last, loop.depth) for loop in innermost_loops(X86)]
    assert result == [(5, 7, 2), (9, 11, 2), (13, 15, 1)]
    assert [(loop.first, loop.last) for loop in innermost_loops(AARCH64)] == [(1, 3)]
    assert [(loop.first, loop.last) for loop in innermost_loops(PTX)] == [(0, 2)]
    assert innermost_loops(["main:", "\tret"]) == []


TASK = Task(name="layer/1 conv", operator="conv2d", arguments={}, target="llvm", flop=1.0)


@pytest.fixture
def shown(tmp_path):
    """What a page shows of listings."""
    folder = tmp_path / RunFile.LISTINGS / TASK.folder_name
    folder.mkdir(parents=True)

    def made(**texts):
        for name, text in texts.items():
            (folder / name.replace("_", ".")).write_text(text)
        return {row.name: row for row in listings_of(tmp_path, TASK)}

    return made


def test_a_short_listing_is_shown_as_it_is(shown):
    text = "\n".join(X86)
    [result] = shown(assembly_s=text).values()
    assert result.text == text
    assert result.told == f"{len(X86)} lines"


def test_of_long_assembly_the_innermost_loops_are_shown(shown):
    filling = ["\tnop"] * 3 * LINES
    at = X86.index("\tpushq\t%rbp")
    [result] = shown(assembly_s="\n".join([*X86[:at], *filling, *X86[at:], *filling])).values()
    lines = result.text.splitlines()
    assert "its innermost loops are shown; all of it is in listings/layer_1_conv-" in result.told
    assert lines[0] == f"# assembly.s: {result.told}"
    assert lines[1:] == [
        f"# ... {3 * LINES + 5:,} lines",
        *X86[5:8],
        "# ... 1 lines",
        *X86[9:12],
        "# ... 1 lines",
        *X86[13:16],
        f"# ... {3 * LINES + 5:,} lines",
    ]


def test_what_is_shown_has_bounds_whatever_there_is(shown):
    loop = [".LBB0_1:", *["\tnop"] * 10_000, "\tjne\t.LBB0_1"]
    wide = ["x" * 100_000] * 10 * LINES
    result = shown(assembly_s="\n".join(loop), TensorIR_py="\n".join(wide), main_s="\tnop\n" * 9999)
    assert set(result) == {"assembly.s", "TensorIR.py", "main.s"}
    for row in result.values():
        assert len(row.text) <= CHARACTERS + 500
        assert len(row.text.splitlines()) <= LINES + 3
    assert ".LBB0_1:" in result["assembly.s"].text
    assert "its beginning is shown" in result["main.s"].told


def test_without_listings_nothing_is_shown(tmp_path):
    assert listings_of(tmp_path, TASK) == []
