"""A plugin that prints does not mix into results; one that exits does not end the command."""

import json
import os
import sys

import attrs
import pytest
from chameleon_cli._streams import results_alone
from chameleon_core._errors import ExitCode, PluginError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core.plugin_api import hookimpl
from programs import completed
from synthetic import SyntheticExplorer, synthetic_document

PROGRAM = """
import os, sys
from chameleon_core import hooks
from chameleon_cli._main import run
from chameleon_core.api import Registry
from chameleon_core.plugin_api import NoOptions, PluginRecord, hookimpl
from synthetic import SYNTHETIC, SyntheticExplorer

class Loud(SyntheticExplorer):
    def __init__(self, *given):
        print("a print while it is made")
        super().__init__(*given)

    def explore(self, score, visited, count):
        print("a print while it explores")
        os.write(1, b"a library's line\\n")
        os.system("echo a child process")
        if os.environ.get("LEAVE"):
            sys.exit(0)
        return super().explore(score, visited, count)

class Plugin:
    @hookimpl
    def chameleon_explorers(self):
        yield PluginRecord(name="loud", summary="", options=NoOptions, factory="__main__:Loud")

known = Registry.from_plugins([hooks, SYNTHETIC, Plugin()])
Registry.load = classmethod(lambda _: known)
sys.exit(run(sys.argv[1:]))
"""


def _command(tmp_path, code, *words, **environment):
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(synthetic_document(tmp_path / "run", explorer="loud")))
    words = (sys.executable, "-c", PROGRAM, "run", file, *words)
    return completed(words, code, env={**os.environ, **environment})


def test_stdout_holds_the_result_alone(tmp_path):
    done = _command(tmp_path, ExitCode.OK, "--json")
    assert set(json.loads(done.stdout)) >= {"run", "operators"}
    for text in ("a print while it is made", "it explores", "a library's line", "a child process"):
        assert text in done.stderr


def test_a_plugin_that_exits_is_a_plugin_error(tmp_path):
    done = _command(tmp_path, ExitCode.PLUGIN, LEAVE="1")
    assert "explorer 'loud' failed to explore: SystemExit: 0" in done.stderr


def test_stdout_is_what_it_was_afterwards(capfd):
    with results_alone():
        sys.stdout.write("inside\n")
        os.write(1, b"below\n")
    sys.stdout.write("after\n")
    text = capfd.readouterr()
    assert text.out == "after\n"
    assert sorted(text.err.splitlines()) == ["below", "inside"]


class Leaving(SyntheticExplorer):
    """Leaves while it is made."""

    def __init__(self, options, context):
        raise SystemExit(5)


@attrs.frozen(kw_only=True)
class Exiting:
    """Options that leave."""

    size: int = attrs.field(default=1)

    @size.validator
    def _check(self, _attribute, _value):
        raise SystemExit(5)


class Listener:
    """Leaves at the first batch."""

    heard = 0

    @hookimpl
    def chameleon_batch_measured(self, event):
        self.heard += 1
        raise SystemExit(5)


def test_nor_may_constructors_options_and_listeners(pipeline, plugin):
    with pytest.raises(PluginError, match="SystemExit: 5"):
        run_pipeline(pipeline(plugins=[plugin("explorers", Leaving)], explorer="odd"))
    with pytest.raises(PipelineError):
        pipeline(plugins=[plugin("explorers", SyntheticExplorer, Exiting)], explorer="odd")
    listener = Listener()
    result = run_pipeline(pipeline(), listeners=[listener])
    assert (result.exit_code, listener.heard) == (ExitCode.OK, 1)
