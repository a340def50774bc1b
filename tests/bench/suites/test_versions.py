"""A cell belongs to the code that its result depends on."""

import json

import attrs
import pytest
from chameleon_bench._suites.load import ALWAYS, version_of, versions_of
from chameleon_core.api import Registry
from chameleon_core.plugin_api import NoOptions, PluginRecord, hookimpl


@attrs.frozen
class Plugin:
    """Registers an explorer."""

    name: str
    module: str

    @hookimpl
    def chameleon_explorers(self):
        yield PluginRecord(
            name=self.name, summary="", factory=f"{self.module}.code:Class", options=NoOptions
        )


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Makes an installed distribution; gives the folder of its package."""

    def make(name, *, version="1.0", editable=False):
        module = name.replace("-", "_")
        package = tmp_path / module
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        about = tmp_path / f"{module}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        origin = {"url": package.as_uri(), "dir_info": {"editable": editable}}
        (about / "direct_url.json").write_text(json.dumps(origin))
        return package

    monkeypatch.syspath_prepend(tmp_path)
    version_of.cache_clear()
    yield make
    version_of.cache_clear()


@pytest.fixture
def registry():
    plugins = [("walks-far", Plugin("walker", "walks_far")), ("rests", Plugin("rester", "rests"))]
    return Registry.from_plugins(plugins)


@pytest.mark.parametrize(
    "explorer",
    ["walker", {"name": "walker"}, {"members": ["walks-far:walker"]}, {"walker": {"steps": 3}}],
)
def test_who_takes_part_counts_wherever_the_pipeline_names_it(distribution, registry, explorer):
    distribution("walks-far")
    candidates = versions_of({"explorer": explorer}, registry)
    assert set(candidates) == {*ALWAYS, "walks-far"}
    assert candidates["walks-far"] == "1.0"


def test_a_distribution_under_work_is_known_by_its_sources(distribution):
    package = distribution("walks-far", editable=True)

    def version():
        version_of.cache_clear()
        return version_of("walks-far", frozenset({"walks_far"}))

    before = version()
    assert before.startswith("1.0, sources ")
    cache = package / "__pycache__"
    cache.mkdir()
    (cache / "code.pyc").touch()
    assert version() == before
    (package / "code.py").write_text("class Class: ...")
    after = version()
    assert after != before
    (package / "code.py").rename(package / "other.py")
    assert version() not in {before, after}


def test_what_is_installed_as_a_copy_is_known_by_its_version(distribution):
    (distribution("rests", version="2.1") / "code.py").write_text("class Class: ...")
    assert version_of("rests", frozenset({"rests"})) == "2.1"
    assert version_of("no-such-distribution", frozenset()) == "not installed"
