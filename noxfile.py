"""Sessions for developers and CI; CONTRIBUTING.md says which does what."""

import os
from pathlib import Path

import nox

nox.options.sessions = ["tests", "lint", "types"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
PACKAGES = sorted(path.parent.relative_to(ROOT) for path in ROOT.glob("packages/*/pyproject.toml"))
CONSTRAINTS = ("-c", "constraints.txt")
# Three tests at a time, whatever there is of cores: tests of runners take all of them, and a third
# of the time tests wait for processes that they started. Each worker begins with a share of the
# tests in their order, so that files, and what their tests share, stay together; whoever is done
# first takes over from the end of another's.
WORKERS = ("-n", "3", "--dist", "worksteal")
# Hundreds of processes are started, which would compile the packages anew where the shell says so.
# NumPy's threads would spin for 20 ms after each product, on cores that other tests need; OpenBLAS
# reads this when NumPy is imported, before any conftest.py can set it.
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_THREAD_TIMEOUT": "4"}
# Packages that know neither a compiler nor a library that learns, and their tests.
CORE = ("core", "system", "cli", "testing")
CORE_TESTS = ("tests/core", "tests/system", "tests/testing", "tests/cli")
# What these tests need beside the packages.
CORE_TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "jsonschema")
# The lowest versions of these that the tests themselves are written for.
LOWEST_TOOLS = (
    *("pytest>=9", "pytest-timeout>=2.4", "pytest-xdist>=3.8", "hypothesis>=6.170"),
    "jsonschema>=4.20",
)
# Builds the site of the documentation.
SITE = ("sphinx", "furo", "myst-parser")
# Asked for by name, where such an interpreter is installed.
PYTHONS = ["3.12", "3.13"]


def install_everything(session: nox.Session) -> None:
    """Install all local packages in one pip command, since they pin each other exactly.

    With the rivals that networks and searches are compared with, a library of networks
    that others have written, an engine for clusters, data frames, what drives a browser, and what
    builds the site of the documentation.
    """
    editable = [word for path in PACKAGES for word in ("-e", str(path))]
    tools = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "jsonschema")
    optional = ("onnxruntime", "onnxscript", "openvino", "transformers", "ray", "pandas", "pyarrow")
    tuners = ("kernel_tuner",)
    browser = ("playwright",)
    session.install(*CONSTRAINTS, *editable, *tools, *optional, *tuners, *browser, *SITE)


@nox.session
def tests(session: nox.Session) -> None:
    """The fast tests, on the Python that runs nox."""
    install_everything(session)
    session.run("pytest", *WORKERS, "--durations=25", *session.posargs, env=ENVIRONMENT)


@nox.session(name="tests-full")
def tests_full(session: nox.Session) -> None:
    """The tests that take seconds each, of which the fast ones are a quick summary."""
    install_everything(session)
    session.run(
        "pytest",
        *WORKERS,
        "-m",
        "full and not long and not packaging",
        *session.posargs,
        env=ENVIRONMENT,
    )


@nox.session(name="tests-on", python=PYTHONS)
def tests_on(session: nox.Session) -> None:
    """The fast tests on another supported Python: ``nox -s tests-on-3.13``."""
    install_everything(session)
    session.run("pytest", *WORKERS, *session.posargs, env=ENVIRONMENT)


@nox.session(name="tests-long")
def tests_long(session: nox.Session) -> None:
    """The tests that take minutes."""
    install_everything(session)
    session.run("pytest", "-m", "long", *session.posargs, env=ENVIRONMENT)


def core_packages() -> list[str]:
    """Words that install the packages that know nothing that learns or compiles."""
    return [word for name in CORE for word in ("-e", f"./packages/chameleon-{name}")]


def install_core(session: nox.Session, *more: str) -> None:
    """Install what tests of the core and the command line need."""
    session.install(*core_packages(), *CORE_TOOLS, *more)


@nox.session
def packaging(session: nox.Session) -> None:
    """Every wheel and source distribution, built into ``dist`` and tried in clean environments."""
    install_core(session, *CONSTRAINTS, "build", "hatchling")
    given = os.environ.get("CHAMELEON_DISTRIBUTIONS")
    if given is None:
        for path in PACKAGES:
            session.run("python", "-m", "build", "--no-isolation", "--outdir", "dist", str(path))
    words = ("-m", "packaging", *session.posargs, "tests/packaging/distributions")
    session.run("pytest", *words, env={"CHAMELEON_DISTRIBUTIONS": given or "dist"})


@nox.session
def lowest(session: nox.Session) -> None:
    """The fast tests of core and command line with the lowest versions that they allow.

    Those are uv's to find: pip has no such resolution.
    """
    session.install(*CONSTRAINTS, "uv")
    session.run(
        *("uv", "pip", "install", "--resolution", "lowest-direct", *core_packages()),
        *LOWEST_TOOLS,
        env={"VIRTUAL_ENV": session.virtualenv.location},
    )
    session.run("pytest", *WORKERS, *CORE_TESTS, *session.posargs, env=ENVIRONMENT)


@nox.session
def newest(session: nox.Session) -> None:
    """The same with the newest versions there are, whatever the constraints say."""
    install_core(session, "--upgrade", "--upgrade-strategy=eager")
    session.run("pytest", *WORKERS, *CORE_TESTS, *session.posargs, env=ENVIRONMENT)


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage of the core by its own tests, and the bar for it."""
    install_core(session, *CONSTRAINTS, "pytest-cov")
    bar = ("--cov=chameleon_core", "--cov-branch", "--cov-report=term-missing:skip-covered")
    words = (*WORKERS, *bar, "--cov-fail-under=95", *CORE_TESTS, *session.posargs)
    session.run("pytest", *words, env=ENVIRONMENT)


@nox.session
def mutation(session: nox.Session) -> None:
    """Mutants of design spaces, samplers and the store, and the bar for those that are killed."""
    install_core(session, *CONSTRAINTS, "-e", "./packages/chameleon-samplers", "mutmut")
    session.run("python", "tests/mutation.py", session.create_tmp(), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: rules and formatting."""
    session.install(*CONSTRAINTS, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict, on every package. TVM and the learning libraries ship no types of their own."""
    session.install(
        *CONSTRAINTS,
        *("mypy", "attrs", "cattrs", "click", "jinja2", "numpy", "packaging", "pluggy", "rich"),
        *("ruamel.yaml", "structlog"),
    )
    sources = [str(path / "src") for path in PACKAGES if (path / "src").is_dir()]
    session.run("mypy", *sources, env={"MYPYPATH": ":".join(sources)})


@nox.session
def size(session: nox.Session) -> None:
    """Lines, circles and imports of this repository, against a table that may only shrink."""
    session.run("python", "tools/size.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The site of the documentation, into ``docs/_build``; whatever Sphinx warns of is an error."""
    editable = [word for path in PACKAGES for word in ("-e", str(path))]
    session.install(*CONSTRAINTS, *editable, *SITE)
    session.run("sphinx-build", "-W", "--keep-going", "docs", "docs/_build", *session.posargs)
