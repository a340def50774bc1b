"""Workflows of GitHub run pinned code with few rights, and its forms ask for necessary facts."""

import ast
import re
import shutil

import pytest
from programs import completed
from ruamel.yaml import YAML

from .conftest import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").iterdir())
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").iterdir())


def read(file):
    return YAML(typ="safe").load(file.read_text(encoding="utf-8"))


def commands(job):
    """The command lines of a job, with every cell of its matrix written out."""
    matrix = job.get("strategy", {}).get("matrix", {})
    cells = matrix.get("include") or [{"session": name} for name in matrix.get("session", [])]
    for cell in cells or [{}]:
        for step in job["steps"]:
            filled = step.get("run", "")
            for name, value in cell.items():
                filled = filled.replace(f"${{{{ matrix.{name} }}}}", value)
            yield filled


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_pins_its_actions_and_has_few_rights(file):
    actions = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    assert actions
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action) for action in actions)
    assert "secrets." not in file.read_text(encoding="utf-8")
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 180 for job in workflow["jobs"].values())
    checkouts = [
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_an_action_has_one_version_in_all_workflows():
    texts = [file.read_text(encoding="utf-8") for file in WORKFLOWS]
    used = {action for text in texts for action in re.findall(r"uses: (.*)", text)}
    assert len({action.partition("@")[0] for action in used}) == len(used)


def test_a_release_keeps_no_secret():
    workflow = read(GITHUB / "workflows" / "release.yml")
    assert workflow["on"] == {"push": {"tags": ["v*"]}}
    build, publish = workflow["jobs"].values()
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "nox -s packaging" in list(commands(build))
    assert "gh-action-pypi-publish" in publish["steps"][-1]["uses"]


def test_every_change_passes_the_tests_of_each_python_lint_types_and_docs():
    workflow = read(GITHUB / "workflows" / "ci.yml")
    assert workflow["on"] == {"push": {"branches": ["main"]}, "pull_request": None}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    assert "github.ref" in workflow["concurrency"]["group"]
    tests, checks = workflow["jobs"].values()
    cells = tests["strategy"]["matrix"]["include"]
    pythons = [*dict.fromkeys(cell["python"] for cell in cells)]
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    (others,) = re.findall(r"^PYTHONS = (.*)$", noxfile, re.MULTILINE)
    assert pythons == ["3.11", *ast.literal_eval(others)]
    sessions = ["tests", "tests-full", *(f"tests-on-{python}" for python in pythons[1:])]
    assert ".ci/packages" in list(commands(tests))
    for job, names in ((tests, sessions), (checks, ["lint", "types", "docs"])):
        wanted = [f"nox -s {name}" for name in names]
        assert [line for line in commands(job) if line.startswith("nox")] == wanted


def test_the_script_of_packages_installs_what_is_missing(tmp_path):
    fakes = {"apt-get": f'echo "$@" >> {tmp_path / "calls"}', "id": "echo 0", "chromium": ""}
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    completed([shutil.which("bash"), ROOT / ".ci" / "packages"], env={"PATH": str(tmp_path)})
    _, install = (tmp_path / "calls").read_text().splitlines()
    assert [word for word in install.split() if not word.startswith("-")] == [
        *("install", "qemu-user-static", "g++-aarch64-linux-gnu")
    ]


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.name)
def test_a_form_is_one_that_github_shows(file):
    form = read(file)
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len(fields) > 1
    assert {field["type"] for field in fields} <= {"textarea", "input"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert len({field["attributes"]["label"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_a_bug_report_has_the_pipeline_the_command_its_log_and_the_machine():
    required = {
        field["id"]: field["attributes"]["description"]
        for field in read(GITHUB / "ISSUE_TEMPLATE" / "bug.yml")["body"]
        if field.get("validations", {}).get("required")
    }
    assert required.keys() >= {"pipeline", "command", "output", "environment"}
    assert "`chameleon --debug ...`" in required["output"]
    assert "`chameleon env`" in required["environment"]


def test_files_that_forms_and_the_template_name_are_there():
    texts = [file.read_text() for file in (*FORMS, GITHUB / "pull_request_template.md")]
    named = {name for text in texts for name in re.findall(r"`([\w/]+(?:\.\w+|/))`", text)}
    assert named >= {"docs/plugins.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_checklist_of_a_pull_request_is_contributing_s():
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Checklist of a change")[2]
    items = re.findall(r"^- \*\*(\w+)\.\*\*", section.partition("\n## ")[0], re.MULTILINE)
    template = (GITHUB / "pull_request_template.md").read_text()
    assert re.findall(r"^- \[ \] \*\*(\w+):\*\*", template, re.MULTILINE) == [*items, "Commits"]
