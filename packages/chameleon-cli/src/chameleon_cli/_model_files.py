"""Finds models in the folder of a pipeline file, with the help of frontends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from chameleon_core.api import Registry
from chameleon_core.plugin_api import ConfigError, PresetRecord, load_factory

Detector = Callable[[Path, str], Iterator[PresetRecord]]


def models_beside(registry: Registry, folder: Path) -> list[PresetRecord]:
    """Find the models in the folder of a pipeline file; the file that changed last comes first.

    Args:
        registry: the registry with the frontends.
        folder: the folder of the pipeline file.
    """
    try:
        files = [entry for entry in folder.iterdir() if entry.is_file()]
        files.sort(key=lambda entry: (-entry.stat().st_mtime_ns, entry.name))
    except OSError:  # writing the pipeline reports the error
        return []
    detectors = _detectors(registry)
    return [model for file in files for model in _models_of(detectors, folder, file.name)]


def chosen_model(registry: Registry, folder: Path, source: str) -> PresetRecord:
    """Find the model that a user names by its file, and by a function's name if needed.

    Args:
        registry: the registry with the frontends.
        folder: the folder of the pipeline file.
        source: a file relative to the working folder, perhaps followed by a colon and the name of a
            function in it.

    Raises:
        ConfigError: the file does not exist, or no frontend finds a model in it.
    """
    name, colon, function = source.partition(":")
    if not Path(name).is_file():
        raise ConfigError(
            f"there is no file {name}", hint="name a model's file, relative to this folder"
        )
    file = os.path.relpath(name, folder)
    models = _models_of(_detectors(registry), folder, file)
    wanted = [model for model in models if not colon or model.name == f"{file}:{function}"]
    if not wanted:
        names = ", ".join(model.name for model in models)
        raise ConfigError(
            f"{source} is no model that an installed frontend knows",
            hint=f"models in the file: {names}"
            if names
            else "name an ONNX file, a program of torch.export (.pt2), or a Python file with a "
            "function that returns a torch module and its example inputs",
        )
    return wanted[0]


def is_model(registry: Registry, source: str) -> bool:
    """Whether some frontend can read models from files with this name.

    The file need not exist.

    Args:
        registry: the registry with the frontends.
        source: a file relative to the working folder, perhaps followed by a colon and the name of a
            function in it.
    """
    return bool(_models_of(_detectors(registry), Path(), source.partition(":")[0]))


def _detectors(registry: Registry) -> list[Detector]:
    named = (entry.record.detect for entry in registry.entries("frontends"))
    return [load_factory(factory) for factory in named if factory]


def _models_of(detectors: list[Detector], folder: Path, file: str) -> list[PresetRecord]:
    return [model for detect in detectors for model in detect(folder, file)]
