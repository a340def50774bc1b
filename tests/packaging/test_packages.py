"""Every package is complete, and all of them fit together."""

import re
import tomllib

import pytest
from packaging.utils import canonicalize_name

from .conftest import requirements

SIBLING = "chameleon-tuner"
WITHOUT_PLUGINS = {f"{SIBLING}-{kind}" for kind in ("cli", "system", "testing")}


def test_every_distribution_brings_the_license(root, package):
    assert (package.folder / "LICENSE").read_bytes() == (root / "LICENSE").read_bytes()


def test_a_package_is_complete(package):
    assert package.project["license"] == "Apache-2.0"
    assert package.project["requires-python"] == ">=3.11"
    readme = (package.folder / package.project["readme"]).read_text()
    assert readme.startswith(f"# {package.name}\n")
    if package.name == SIBLING:
        return
    assert package.folder.name == package.name.replace("chameleon-tuner-", "chameleon-")
    assert package.modules.name == package.folder.name.replace("-", "_")
    assert (package.modules / "py.typed").is_file()
    assert (package.hooks is None) == (package.name in WITHOUT_PLUGINS)
    if package.hooks is None:
        return
    module, _, attribute = package.hooks.partition(":")
    assert not attribute, "the entry point names a module, as docs/plugins.md says"
    assert (package.folder / "src" / f"{module.replace('.', '/')}.py").is_file()


LINK = re.compile(r"\]\(([^)]*)\)|\b(?:href|src)=[\"']([^\"']*)")


def test_a_package_presents_itself_on_an_index(package):
    readme = (package.folder / package.project["readme"]).read_text()
    links = ["".join(link) for link in LINK.findall(readme)]
    # The page of an index has no folder that a relative link could start from.
    assert [link for link in links if not link.startswith("https://")] == []
    sections = ["## Installation", "## Example"]
    assert [line for line in readme.splitlines() if line in sections] == sections
    urls = package.project["urls"]
    assert urls
    assert all(url.startswith("https://") for url in urls.values())


FROM_INDEX = re.compile(r"pip install [^`\n]*?(?<![\w./-])chameleon[\w-]*(?![\w/-])")


def test_no_text_says_to_take_this_project_from_an_index(files):
    kinds = {".py", ".md", ".yaml", ".yml", ".template", ".toml"}
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.suffix in kinds}
    # The FAQ names a stranger's package, to say that it is one.
    assert [file.name for file, text in texts.items() if FROM_INDEX.search(text)] == ["faq.md"]


def test_all_have_one_version_and_pin_each_other_exactly(packages):
    versions = {package.project["version"] for package in packages}
    assert len(versions) == 1
    (version,) = versions
    for package in packages:
        siblings = [row for row in requirements(package) if row.name.startswith(SIBLING)]
        assert siblings or package.name == f"{SIBLING}-system"
        assert {str(row.specifier) for row in siblings} <= {f"=={version}"}


def test_one_distribution_brings_all_the_others(packages):
    (whole,) = (package for package in packages if package.name == SIBLING)
    assert {row.name for row in requirements(whole)} == (
        {package.name for package in packages} - {SIBLING}
    )


def test_nothing_is_named_as_another_project_of_the_index(packages):
    # `chameleon` and `chameleon-core` on PyPI are a template engine.
    for package in packages:
        assert canonicalize_name(package.name).startswith(SIBLING)
        assert not (package.folder / "src" / "chameleon").exists()


def test_constraints_pin_every_dependency_to_a_version_it_allows(root, packages):
    lines = (root / "constraints.txt").read_text().splitlines()
    pins = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups()
            pins[canonicalize_name(name)] = version
    for package in packages:
        for needed in requirements(package):
            if needed.name.startswith(SIBLING):
                continue
            assert canonicalize_name(needed.name) in pins, needed
            assert needed.specifier.contains(pins[canonicalize_name(needed.name)]), needed


@pytest.mark.parametrize("tool", ["ruff", "mypy", "pytest"])
def test_tools_are_configured_once(root, packages, tool):
    assert tool in tomllib.loads((root / "pyproject.toml").read_text())["tool"]
    for package in packages:
        text = (package.folder / "pyproject.toml").read_text()
        assert tool not in tomllib.loads(text).get("tool", {})


ABSOLUTE = re.compile(r"(?<![\w.~$}*>])/(?:home|root|Users|opt|work|mnt)/\w")
# In two parts, so that this file passes its own test.
ANOTHER_INDEX = "index" + "-url"


def test_nothing_depends_on_one_machine(files):
    for file in files:
        if file.suffix in {".png", ".pt", ".svg", ".sqlite", ".gz", ".parquet", ".safetensors"}:
            continue
        text = file.read_text(encoding="utf-8")
        assert not ABSOLUTE.search(text), file
        assert ANOTHER_INDEX not in text, file
