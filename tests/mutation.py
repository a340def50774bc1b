"""Mutation testing: what share of changed programs the tests of a part tell from the right one.

``python tests/mutation.py FOLDER`` copies the sources and tests into a folder, changes one thing at
a time in the modules of a part (mutmut's operators), and runs those tests of the part that reach
the changed function. It draws some of all mutants with a fixed seed, since all of them take hours.

Mutants that differ in a piece of text alone are no part of it: what sentences say in which words
is free, and the case of SQL's keywords means nothing. Functions under a decorator such as a
property are left as they are by mutmut.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
from mutmut.configuration import reset_config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).parents[1]
BAR = 0.85
KILLED = ("killed", "timeout")
IGNORED = shutil.ignore_patterns("__pycache__", ".*")


@attrs.frozen
class Part:
    """Modules that are changed, and the tests that have to notice.

    Attributes:
        distribution: the folder in ``packages``.
        package: what it holds.
        modules: which of its modules are changed, as a pattern.
        tests: files and folders.
        sample: mutants that are drawn.
    """

    distribution: str
    package: str
    modules: str
    tests: tuple[str, ...]
    sample: int


PARTS = {
    "spaces": Part(
        "chameleon-core",
        "chameleon_core",
        "_space/*.py",
        ("tests/core/space", "tests/core/api/test_design_space.py"),
        120,
    ),
    "samplers": Part("chameleon-samplers", "chameleon_samplers", "*.py", ("tests/samplers",), 100),
    "store": Part("chameleon-core", "chameleon_core", "_store/*.py", ("tests/core/store",), 80),
}


def lay_out(folder: Path, part: Part) -> None:
    """Write the project that mutmut works on: one package in ``src``, the tests, the settings."""
    sources = ROOT / "packages" / part.distribution / "src" / part.package
    shutil.copytree(sources, folder / "src" / part.package, ignore=IGNORED)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=IGNORED)
    settings = {
        "source_paths": ["src"],
        "only_mutate": [f"src/{part.package}/{part.modules}"],
        "pytest_add_cli_args_test_selection": part.tests,
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "--hypothesis-profile=mutation"],
    }
    # JSON's lists of texts are TOML's.
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
    text = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(f"{text}\n[tool.mutmut]\n{''.join(lines)}")


class _NoText(ast.NodeTransformer):
    """Empties every text."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("" if isinstance(node.value, str) else node.value)


def _meaning(function: ast.FunctionDef) -> str:
    """A function without its name and texts."""
    return ast.dump(
        _NoText().visit(ast.Module([*function.decorator_list, function.args, *function.body]))
    )


def mutants(path: Path) -> Iterator[str]:
    """Names of the mutants of a module that differ in more than a text.

    Args:
        path: relative to the folder, which is the working directory.
    """
    result = mutate_file_contents(str(path), path.read_text())
    functions = {
        node.name: _meaning(node)
        for node in ast.walk(ast.parse(result.code))
        if isinstance(node, ast.FunctionDef)
    }
    for name in result.mutant_names:
        original = name.rpartition("__mutmut_")[0] + "__mutmut_orig"
        if functions[name] != functions[original]:
            yield get_mutant_name(path, name)


def run(folder: Path, part: Part, *, seed: int, sample: int | None) -> Counter[str]:
    """Draw mutants, try them, and print what became of those that were not killed.

    Args:
        folder: where; made.
        part: what is changed.
        seed: of the draw.
        sample: mutants that are drawn; as many as the part says where None.

    Returns:
        How many came to which end.
    """
    lay_out(folder, part)
    os.chdir(folder)
    reset_config()
    modules = Path("src", part.package).glob(part.modules)
    result = {name: module for module in modules for name in mutants(module)}
    wanted = min(part.sample if sample is None else sample, len(result))
    drawn = sorted(random.Random(seed).sample(sorted(result), wanted))
    # What tests start in processes of their own is to find the mutants as well. The folder has to
    # be there from the start: Python remembers which are not.
    copies = folder / "mutants" / "src"
    copies.mkdir(parents=True)
    paths = filter(None, [str(copies), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    mutmut = shutil.which("mutmut")
    if mutmut is None:
        raise SystemExit("mutmut is not installed; give `nox -s mutation`")
    command = [mutmut, "run", "--max-children", "1", *drawn]
    with Path("mutmut.log").open("w") as log:
        done = subprocess.run(command, check=False, stdout=log, env=environment)
    if done.returncode:
        raise SystemExit(f"mutmut failed: see {log.name} in {folder}")
    print(f"{len(result)} mutants, {len(drawn)} drawn")
    ends = Counter[str]()
    for name in drawn:
        data = SourceFileMutationData(path=result[name])
        data.load()
        end = status_by_exit_code[data.exit_code_by_key[name]]
        ends[end] += 1
        if end not in KILLED:
            print(f"# {name}: {end}", get_diff_for_mutant(name, path=result[name]), sep="\n")
    return ends


def main() -> None:
    """Try mutants of each part that is named; exit with 1 where too many live."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the copies are made")
    parser.add_argument("parts", nargs="*", help=f"which: {', '.join(PARTS)}; all by default")
    parser.add_argument("--sample", type=int, help="mutants drawn of each part")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    arguments = parser.parse_args()
    messages, ends = [], Counter[str]()
    for name in arguments.parts or PARTS:
        folder = arguments.folder.resolve() / name
        shutil.rmtree(folder, ignore_errors=True)
        part_ends = run(folder, PARTS[name], seed=arguments.seed, sample=arguments.sample)
        messages.append(_sentence(name, part_ends))
        ends += part_ends
    print(*messages, _sentence("together", ends), sep="\n")
    sys.exit(_killed(ends) < BAR)


def _killed(ends: Counter[str]) -> float:
    """The share of mutants that tests failed at, or did not end with."""
    return sum(ends[end] for end in KILLED) / ends.total()


def _sentence(name: str, ends: Counter[str]) -> str:
    counts = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    return f"{name}: {_killed(ends):.1%} of {ends.total()} mutants killed ({counts})"


if __name__ == "__main__":
    main()
