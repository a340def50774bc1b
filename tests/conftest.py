"""What all tests share."""

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest
import structlog
from chameleon_cli._main import run as chameleon_command
from chameleon_core._pipeline.load import from_dict
from chameleon_core.api import Registry
from chameleon_core.plugin_api import NoOptions
from programs import completed
from synthetic import plugin_of, record_of, synthetic_document, synthetic_registry

# Worker processes and programs that tests start import its modules, as tests do (`pythonpath`).
SUPPORT = Path(__file__).with_name("support")
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
# Threads that wait for work sleep: several tests run at once, and those of others need the cores.
os.environ.update({"OMP_WAIT_POLICY": "passive", "TVM_THREAD_POOL_SPIN_COUNT": "0"})
# For SciPy, and for processes that tests start; see noxfile.py.
os.environ["OPENBLAS_THREAD_TIMEOUT"] = "4"
# No test looks into the records of whoever runs it, nor adds to them.
os.environ["CHAMELEON_RECORDS"] = "none"
# An error that nobody expected is no reason for a fallback here.
os.environ["CHAMELEON_STRICT"] = "yes"

# Nothing asserts on wall-clock time: an example may be slow because the machine is busy.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=50)
hypothesis.settings.load_profile("untimed")
# One failure is enough there, whichever, and what a mutant failed at says nothing of the next.
hypothesis.settings.register_profile(
    "mutation",
    derandomize=True,
    max_examples=100,
    database=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Nobody searches for garbage among the millions of objects that modules of tests import."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _logs_as_nobody_configured_them():
    """The command line sets a level for the whole process, which the next test must not inherit."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _templates_as_this_test_makes_them():
    """A process keeps templates, and a test may replace what a template consists of."""
    provider = sys.modules.get("chameleon_tvm._spaces.template.provider")
    if provider is not None:
        provider._cached_template.cache_clear()


@pytest.fixture(autouse=True)
def _every_test_has_all_cores():
    """TVM binds whoever runs a kernel in this process to one core; what follows would be, too."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="session", autouse=True)
def _cache_folder():
    """The tests of one process share a cache folder, since it holds rates that take a second."""
    temporary = tempfile.TemporaryDirectory(prefix="chameleon-test-cache-")
    with temporary as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        yield Path(folder, "chameleon")


@pytest.fixture(autouse=True)
def _no_test_reads_networks_that_another_one_kept(_cache_folder):
    yield
    shutil.rmtree(_cache_folder / "networks", ignore_errors=True)


@pytest.fixture
def everything():
    """For what needs the other packages: where the core is tested alone, they are not there."""
    for name in ("tvm", "transforms", "explorers", "runners", "bench"):
        pytest.importorskip(f"chameleon_{name}")


@pytest.fixture
def pipeline(tmp_path):
    """Makes pipelines that run in ``tmp_path/run`` and log to ``tmp_path/log``."""

    def make(*, plugins=(), output=tmp_path / "run", runner=None, **more):
        runner = {"log": str(tmp_path / "log"), **(runner or {})}
        document = synthetic_document(output, runner=runner, **more)
        return from_dict(document, registry=synthetic_registry(*plugins))

    return make


@pytest.fixture
def plugin():
    """Makes a plugin named ``odd`` with one implementation, a class of a test module."""

    def make(kind, factory, options=NoOptions):
        return plugin_of(**{kind: [record_of(factory, options, name="odd")]})

    return make


@pytest.fixture(scope="session")
def fakes():
    """The module of stages that pipelines can name, which do nothing."""
    file = Path(__file__).parent / "core" / "pipeline" / "fakes.py"
    spec = importlib.util.spec_from_file_location("chameleon_test_fakes", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # attrs resolves annotations through it
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def install(monkeypatch):
    """Puts a registry in the place of what is installed."""

    def put(registry):
        Registry.default.cache_clear()
        monkeypatch.setattr(Registry, "load", classmethod(lambda _: registry))
        return registry

    yield put
    Registry.default.cache_clear()


@pytest.fixture
def log_lines(tmp_path):
    """Lines the synthetic runner has logged so far."""

    def lines():
        log = tmp_path / "log"
        return log.read_text().splitlines() if log.exists() else []

    return lines


@pytest.fixture
def command_line(capfd):
    """A command in this process, which has imported what it needs already."""

    def call(*words):
        capfd.readouterr()
        code = chameleon_command([str(word) for word in words])
        printed = capfd.readouterr()
        return subprocess.CompletedProcess(words, code, printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def run_python():
    """Runs a program with arguments in a process of its own; gives what it prints."""

    def run(program, *arguments, **more):
        return completed([sys.executable, "-c", program, *arguments], **more).stdout

    return run
