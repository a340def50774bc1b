"""What is in a wheel and in a source distribution, and what they say of themselves."""

import email
import email.policy
import tarfile
import zipfile

import pytest
from packaging.metadata import Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from .conftest import OURS

LEFT = {"__pycache__", ".mypy_cache", ".ruff_cache"}


def sources(package):
    """Files below a package's ``src``, relative to it."""
    folder = package.folder / "src"
    return {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and not LEFT & set(file.parts) and ".egg-info" not in str(file)
    }


@pytest.fixture
def wheel(package, built):
    with zipfile.ZipFile(built[package.name].wheel) as opened:
        yield opened


@pytest.fixture
def information(wheel):
    """The folder of the wheel's metadata."""
    (folder,) = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    return folder


def test_a_wheel_has_every_file_of_its_modules_and_nothing_else(package, wheel, information):
    result = {name for name in wheel.namelist() if not name.startswith(f"{information}/")}
    assert result == sources(package)
    if package.modules is not None:
        assert f"{package.modules.name}/py.typed" in result


def test_files_that_are_no_python_are_among_them(built):
    with zipfile.ZipFile(built[f"{OURS}-bench"].wheel) as opened:
        assert "chameleon_bench/_pages/templates/run.html" in opened.namelist()
    with zipfile.ZipFile(built[f"{OURS}-one-shot"].wheel) as opened:
        assert any(name.startswith("chameleon_one_shot/_models/") for name in opened.namelist())


def test_a_source_distribution_has_all_that_its_wheel_is_made_of(package, built):
    archive = built[package.name].sdist
    with tarfile.open(archive) as opened:
        names = {member.name for member in opened.getmembers()}
    top = archive.name.removesuffix(".tar.gz")
    own = {f"{top}/{name}" for name in ("LICENSE", "PKG-INFO", "README.md", "pyproject.toml")}
    assert own | {f"{top}/src/{name}" for name in sources(package)} <= names
    assert all(name.startswith(f"{top}/") for name in names), "nothing is unpacked beside it"
    # Those that a new plugin begins with are in ``src``.
    assert not any(name.startswith(f"{top}/tests/") or "__pycache__" in name for name in names)


def test_both_have_the_version_in_their_names(package, built):
    name, version, *_ = parse_wheel_filename(built[package.name].wheel.name)
    assert (name, str(version)) == (package.name, package.project["version"])
    assert parse_sdist_filename(built[package.name].sdist.name) == (name, version)


def test_the_metadata_are_valid_and_pin_the_others(package, wheel, information):
    metadata = Metadata.from_email(wheel.read(f"{information}/METADATA"), validate=True)
    assert (metadata.name, str(metadata.version)) == (package.name, package.project["version"])
    assert str(metadata.requires_python) == ">=3.11"
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert b"Apache License" in wheel.read(f"{information}/licenses/LICENSE")
    assert metadata.summary == package.project["description"]
    assert metadata.description_content_type == "text/markdown"
    assert (metadata.description or "").startswith(f"# {package.name}\n")
    for row in metadata.requires_dist or ():
        assert row.url is None, "an index refuses requirements that are addresses"
        if row.name.startswith(OURS):
            assert str(row.specifier) == f"=={metadata.version}"
    tags = email.message_from_bytes(wheel.read(f"{information}/WHEEL"), policy=email.policy.default)
    assert tags["Tag"] == "py3-none-any"


def test_the_entry_point_of_its_plugins_is_written(package, wheel, information):
    points = f"{information}/entry_points.txt"
    text = wheel.read(points).decode() if points in wheel.namelist() else ""
    assert ("[chameleon]" in text) == (package.hooks is not None)
    assert (package.hooks or "") in text
    assert ("chameleon = chameleon_cli:main" in text) == (package.name == f"{OURS}-cli")
