"""Suites of what only names others: presets and commands."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from chameleon_core.errors import ChameleonError
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.resolve import KEYS
from chameleon_core.plugins import Registry, default_registry, hookimpl
from chameleon_core.plugins.factory import load_factory

from chameleon_testing.sentences import ConformanceError, require
from chameleon_testing.suites.base import ConformanceSuite
from chameleon_testing.synthetic import SyntheticPlugins

_NOT_A_PRESET_S = {"model", "output", "preset"}
"""Keys that belong to a pipeline file alone."""


class PresetSuite(ConformanceSuite):
    """Checks of a preset: with the installed plugins, and the package's own."""

    kind = "presets"

    def test_keys(self) -> None:
        """It has keys of a pipeline alone, and none that is the pipeline file's own."""
        self.test_record()
        for key in self.record.pipeline:
            require(key in KEYS, f"{self.where}: a pipeline has no key '{key}'")
            require(
                key not in _NOT_A_PRESET_S,
                f"{self.where}: it names '{key}', which every pipeline file says for itself",
            )

    def test_pipeline(self) -> None:
        """A pipeline that names it is complete: all its stages and options are known."""
        self.test_record()
        document = {
            "model": {"synthetic": {"operators": [[4, 4]]}},
            "target": "native",
            "preset": self.record.name,
        }
        try:
            from_dict(document, registry=self._registry())
        except ChameleonError as error:
            raise ConformanceError(
                f"{self.where}: a pipeline with it cannot be read: {error}"
            ) from error

    def _registry(self) -> Registry:
        """The installed plugins, a model that needs nothing, and the preset if it is not there."""
        record = self.record

        class Own:
            @hookimpl
            def chameleon_presets(self) -> Any:
                """The preset that is checked."""
                return [record]

        known = [one.record for one in default_registry().entries("presets")]
        plugins: list[Any] = [SyntheticPlugins(), *([] if record in known else [Own()])]
        return Registry.from_plugins(plugins, with_installed=True)


class CommandSuite(ConformanceSuite):
    """Checks of a command of the command line."""

    kind = "commands"

    def test_help(self) -> None:
        """It is a click command that explains itself with ``--help``."""
        self.test_record()
        command = load_factory(self.record.factory)
        main = getattr(command, "main", None)
        if not callable(main):
            raise ConformanceError(
                f"{self.where}: {self.record.factory!r} is {type(command).__name__} and no click "
                "command; make it with @click.command()"
            )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = main(args=["--help"], prog_name="chameleon", standalone_mode=False)
        require(code in {None, 0}, f"{self.where}: --help ends with exit code {code}")
        text = getattr(command, "help", None) or getattr(command, "short_help", None)
        require(
            text and printed.getvalue().strip(),
            f"{self.where}: it has no help; give its function a docstring",
        )
