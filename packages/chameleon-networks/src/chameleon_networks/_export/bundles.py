"""Exports operators as libraries and bundles for C, networks also as wheels and ONNX files."""

from __future__ import annotations

import base64
import hashlib
import math
import platform
import shutil
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.api import words
from chameleon_core.plugin_api import (
    ConfigError,
    Delivery,
    RunFolderError,
    SpaceProvider,
    TargetError,
)
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import Exported, identifier, identifiers, unoccupied

from chameleon_networks._artifact import load as loading
from chameleon_networks._artifact.writer import (
    FORMAT,
    MANIFEST,
    PACKAGE,
    digest_of_file,
    read_manifest,
    write_manifest,
)
from chameleon_networks._c_runtime.linking import (
    OBJECTS,
    compiler_command,
    filled,
    link_library,
    outputs_of,
    provider_library,
)
from chameleon_networks._c_runtime.pack import PACKING, PACKING_FILES
from chameleon_networks._compile.sequence.weights import WEIGHTS, copy_weights, link_weights
from chameleon_networks._export.operators import deliver_operator

_BUNDLE, _FILE = "bundle for C", "file for ONNX Runtime"
"""Names of forms for messages."""


def bundle_name(folder: Path, asked: str | None) -> str:
    """Choose the name of a bundle for C, which names its files and functions."""
    name = asked or identifier(folder.absolute().name)
    if not name.isascii() or not name.isidentifier() or name.startswith("_"):
        raise ConfigError(
            f"a library for C cannot be called {name!r}",
            hint="Name it with --name, in letters, digits and underscores, a letter first.",
        )
    return name


def write_c_bundle(
    delivered: Path, folder: Path, name: str, level: str | None = None
) -> tuple[Path, ...]:
    """Write a C library with header, weights and example of a delivered folder (a bundle).

    The library has the kernels of one level of CPUs, or else the tuned ones.
    """
    manifest = read_manifest(delivered)
    inner = delivered
    if level is not None:
        manifest = _of_level(delivered, manifest, level)
        inner = delivered / level
    own, objects = manifest, inner / OBJECTS
    archives: Path | list[Path] = objects
    if "buckets" in manifest:
        manifest = _sized(delivered, manifest)
        archives = _archives(delivered, manifest)
    else:
        _check(inner, manifest)
    manifest = {**manifest, "outputs": outputs_of(manifest), "counts": []}
    texts = {f"{name}.h": "header.h", "CMakeLists.txt": "CMakeLists.txt", "main.cpp": "main.cpp"}
    copied = [entry for entry in (MANIFEST, *PACKING_FILES) if (delivered / entry).exists()]
    names = [*texts, f"lib{name}.so", WEIGHTS, *copied]
    unoccupied(folder, names)
    files = tuple(folder / entry for entry in names)
    try:
        for text, template in texts.items():
            (folder / text).write_text(filled(template, manifest, name), encoding="utf-8")
        for entry in copied:
            shutil.copyfile(delivered / entry, folder / entry)
        # Packing overwrites the file of weights, so the bundle then needs a copy instead of a link.
        place_weights = copy_weights if PACKING in copied else link_weights
        place_weights(delivered / WEIGHTS, folder / WEIGHTS)
        link_library(archives, manifest, folder / f"lib{name}.so", name)
        if level is not None:
            write_manifest(folder, own)
    except BaseException:
        # An incomplete bundle would block the next attempt.
        for file in files:
            file.unlink(missing_ok=True)
        raise
    return files


def _archives(delivered: Path, manifest: loading.Manifest) -> list[Path]:
    """The archives of object files of all buckets of a network."""
    return [delivered / bucket["folder"] / OBJECTS for bucket in manifest["buckets"]]


def _of_level(delivered: Path, manifest: loading.Manifest, level: str) -> loading.Manifest:
    """The manifest of a network that has the kernels of one level alone."""
    known = [row["name"] for row in manifest.get("levels", ())][1:]
    if level not in known:
        raise ConfigError(
            f"{delivered} has no level {level!r}{words.did_you_mean(level, known)}",
            hint=f"It has {', '.join(known)}." if known else "'levels' beside the model adds some.",
        )
    if "buckets" not in manifest:
        own = read_manifest(delivered / level)
        kept = ("inputs", "outputs", "returns", "counts")
        return own | {key: manifest[key] for key in kept if key in manifest}
    buckets = [{**own, "folder": f"{own['folder']}/{level}"} for own in manifest["buckets"]]
    own = read_manifest(delivered / buckets[-1]["folder"])
    facts = {key: own[key] for key in ("target", "cpu_features")}
    return {**manifest, **facts, "buckets": buckets}


def _sized(delivered: Path, manifest: loading.Manifest, form: str = _BUNDLE) -> loading.Manifest:
    """The manifest of a network in buckets, with all that its C library needs of the buckets."""
    _check_format(delivered, manifest)
    if any("?" in tensor["shape"] for tensor in manifest["outputs"]):
        raise ConfigError(
            "the sizes of the outputs follow from those of the inputs in no known way",
            hint="Load it from Python, with its load.py.",
        )
    signature, buckets = loading.Signature(manifest), []
    for bucket in manifest["buckets"]:
        folder = delivered / bucket["folder"]
        own = read_manifest(folder)
        _check(folder, own, form)
        extents = [
            bucket["inputs"][number][axis]
            for dimension in manifest["dimensions"]
            for number, axis, _ in dimension["axes"][:1]
        ]
        row = {**bucket, "constants": own["constants"], "extents": extents}
        row["tiles"] = int("amx" in own.get("permissions", ()))
        buckets.append(row)
        if bucket.get("is_open") and "vectors" in own:
            other = f"{bucket['folder']}/{own['vectors']}"
            about = read_manifest(delivered / other)
            _check(delivered / other, about, form)
            constants = about["constants"]
            buckets.append({**row, "folder": other, "constants": constants, "tiles": -1})
    # A call takes the first bucket that holds its inputs.
    buckets.sort(key=lambda bucket: sum(map(math.prod, bucket["inputs"])))

    def bits(number: int, pad: float | None) -> int | None:
        """The bits of the element that an input is padded with."""
        if pad is None:
            return None
        element = np.asarray(pad).astype(signature.inputs[number].dtype)
        return int.from_bytes(element.tobytes(), "little")

    dimensions = [
        {**own, "axes": [(number, axis, bits(number, pad)) for number, axis, pad in own["axes"]]}
        for own in manifest["dimensions"]
    ]
    are_padded = [own["axes"][0][2] is not None for own in dimensions]

    def needs_tiles(bucket: loading.Manifest) -> bool:
        """Whether no bucket takes the calls of this one if the system refuses AMX."""
        rows = (
            zip(bucket["extents"], other["extents"], are_padded, strict=True)
            for other in buckets
            if other["tiles"] <= 0
        )
        return not any(all(a == b or (is_padded and a < b) for a, b, is_padded in r) for r in rows)

    permissions = ["amx"] if any(map(needs_tiles, buckets)) else []
    return {**manifest, "dimensions": dimensions, "buckets": buckets, "permissions": permissions}


def _refuse(delivered: Path, manifest: Mapping[str, Any], form: str) -> None:
    """Raise an error if C alone cannot run a delivered folder."""
    if not sys.platform.startswith("linux"):
        raise TargetError(
            f"a {form} is made on Linux only", hint="Load the network from Python instead."
        )
    compiler_command()
    reason = None
    why = manifest.get("virtual_machine")
    if why or manifest.get("run_time") == loading.VIRTUAL_MACHINE:
        because = f", because {why}" if why else ""
        reason = f"TVM's virtual machine runs this network{because}; a {form} has none"
    elif state := manifest.get("state"):
        reason = f"calls change its state ({', '.join(state)}), for which a {form} has no place"
    if reason is not None:
        raise ConfigError(reason, hint="Load it from Python, with its load.py.")
    _check_format(delivered, manifest)


def _check_format(delivered: Path, manifest: Mapping[str, Any]) -> None:
    """Raise an error if an earlier version of Chameleon delivered a folder in another form."""
    # The kernels of earlier versions may call functions of TVM, such as sorting.
    if manifest.get("format") != FORMAT or "apache-tvm" in manifest.get("needs", ()):
        raise ConfigError(
            f"another version of Chameleon delivered {delivered}, which does not fit",
            hint=f"Run `chameleon compile {delivered.parent}`, which tunes nothing, then export.",
        )


def _check(delivered: Path, manifest: Mapping[str, Any], form: str = _BUNDLE) -> None:
    """Raise an error if a delivered folder cannot be linked for C."""
    _refuse(delivered, manifest, form)
    objects = delivered / OBJECTS
    if not objects.exists() or manifest.get("objects") != digest_of_file(objects):
        raise RunFolderError(
            f"{objects} was changed or deleted since it was delivered",
            hint="`chameleon compile` on the run folder delivers it anew.",
        )


_RANDOM = (
    "{} holds random weights until pack.py, or pack_weights of it, has packed yours; packing.json "
    "names the arrays that it takes."
)


def write_libraries(
    winners: Sequence[Delivery.Winner], space: SpaceProvider, folder: Path, threads: int
) -> Exported:
    """Write a folder with a library and its loader for each operator."""
    outputs = _folders(folder, identifiers([winner.task.name for winner in winners]))
    for output, winner in zip(outputs, winners, strict=True):
        _whole(winner, space, output, threads)
    return _exported(winners, outputs)


def write_c_bundles(
    winners: Sequence[Delivery.Winner],
    space: SpaceProvider,
    folder: Path,
    threads: int,
    name: str | None = None,
) -> Exported:
    """Write each operator as a bundle: C library, header, weights, example program and manifest."""
    names = [_named(stem) for stem in identifiers([winner.task.name for winner in winners])]
    outputs = _folders(folder, names)
    called = [bundle_name(output, name) for output in outputs]
    for library, output, winner in zip(called, outputs, winners, strict=True):
        with temporary_folder() as scratch:
            _whole(winner, space, Path(scratch) / library, threads)
            write_c_bundle(Path(scratch) / library, output, library)
    return _exported(winners, outputs)


def write_network_bundle(
    network: Path, folder: Path, name: str | None, level: str | None = None
) -> Exported:
    """Write the bundle for C of a delivered network, perhaps with the kernels of a level."""
    _check_delivered(network)
    files = write_c_bundle(network, folder, bundle_name(folder, name), level)
    own, *others = [row["name"] for row in read_manifest(network).get("levels", ())] or [""]
    note = (
        f"the library runs on CPUs like {own} alone; for other CPUs, export another bundle with "
        f"--level {' or '.join(others)}"
    )
    return Exported(files=files, tasks=(), notes=(note,) if others and level is None else ())


def _check_delivered(network: Path) -> None:
    if not (network / MANIFEST).exists():
        raise RunFolderError(
            f"{network.parent} has no delivered network",
            hint="Run `chameleon compile` on it, or name an operator with --task.",
        )


def write_onnx_file(network: Path, folder: Path) -> Exported:
    """Write a delivered network as an ONNX file, with the provider of ONNX Runtime that runs it."""
    _check_delivered(network)
    manifest = read_manifest(network)
    if manifest.get("counts"):
        raise ConfigError(
            "the sizes of outputs depend on values, which the provider of ONNX Runtime cannot tell",
            hint="Load it from Python, with its load.py.",
        )
    with temporary_folder() as scratch:
        write = _sized_libraries if "buckets" in manifest else _fixed_libraries
        lines, copied = write(network, manifest, Path(scratch))
        made = (_ONNX, PACKAGE, _PROVIDER_LIBRARY, *sorted(copied))
        unoccupied(folder, made)
        files = tuple(folder / name for name in made)
        try:
            for name, file in copied.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                _copy_file(str(file), str(folder / name))
            options = Path(loading.__file__).with_name("session_options.py")
            shutil.copyfile(options, folder / PACKAGE)
            (folder / _PROVIDER_LIBRARY).write_bytes(provider_library())
            (folder / _ONNX).write_bytes(_onnx_file(loading.Signature(manifest), "\n".join(lines)))
        except BaseException:
            for file in files:
                file.unlink(missing_ok=True)
            raise
    return Exported(files=files, tasks=())


_Libraries = tuple[list[str], dict[str, Path]]
"""The text of a node of ``onnxruntime.c``, and the files that it names."""


def _fixed_libraries(network: Path, manifest: loading.Manifest, _: Path) -> _Libraries:
    """The delivered libraries of a network of one shape."""
    _refuse(network, manifest, _FILE)
    lines, files = ["chameleon 1"], dict[str, Path]()
    for name in ("", *loading.inner_folders(manifest)):
        own = read_manifest(network / name)
        library = str(Path(name, own["module"]))
        weights = str(own.get("shared_weights", Path(name, WEIGHTS)))
        lines.append(_line(network / library, library, weights, own.get("constants")))
        files |= {library: network / library, weights: network / weights}
    return lines, files


def _sized_libraries(network: Path, manifest: loading.Manifest, scratch: Path) -> _Libraries:
    """A library of all buckets of a network, and one for each level, in a temporary folder."""
    axes = [axis for own in manifest["dimensions"] for axis in own["axes"][0][:2]]
    lines = [" ".join(map(str, ("chameleon 2", *axes)))]
    files = {WEIGHTS: network / WEIGHTS}
    for level in ("", *(row["name"] for row in manifest.get("levels", ())[1:])):
        own = _of_level(network, manifest, level) if level else manifest
        sized = _sized(network, own, _FILE)
        name = str(Path(level, "network.so"))
        files[name] = scratch / name
        files[name].parent.mkdir(exist_ok=True)
        link_library(_archives(network, sized), sized, files[name], "network")
        lines.append(_line(files[name], name, WEIGHTS, None))
    return lines, files


def _line(file: Path, library: str, weights: str, numbers: Sequence[int] | None) -> str:
    """The line about a library."""
    count = -1 if numbers is None else len(numbers)
    code = f"{zlib.crc32(file.read_bytes()):x}"
    return " ".join(map(str, (library, code, weights, count, *(numbers or ()))))


def _onnx_file(signature: loading.Signature, text: str) -> bytes:
    """An ONNX file with one node, which has a text that ``onnxruntime.c`` reads."""
    from onnx import helper  # noqa: PLC0415 - other forms do without

    names: list[str] = []
    values = []
    for spec in (*signature.inputs, *signature.outputs):
        name = spec.source
        while name in names:  # an output may have the name of an input
            name += "_"
        names.append(name)
        kind = helper.np_dtype_to_tensor_dtype(spec.dtype)
        values.append(helper.make_tensor_value_info(name, kind, spec.shape))
    count = len(signature.inputs)
    node = helper.make_node("EPContext", names[:count], names[count:], domain="com.microsoft")
    for key, value in {"embed_mode": 1, "source": _PROVIDER, "ep_cache_context": text}.items():
        node.attribute.append(helper.make_attribute(key, value))
    graph = helper.make_graph([node], "network", values[:count], values[count:])
    versions = [helper.make_opsetid(*pair) for pair in (("", 20), ("com.microsoft", 1))]
    # ONNX Runtime 1.23 reads this version.
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    return bytes(model.SerializeToString())


_ONNX = "model.onnx"
_PROVIDER, _PROVIDER_LIBRARY = "ChameleonExecutionProvider", "onnxruntime_provider.so"
"""Names that session_options.py has as well."""

_WHEEL_PACKAGE = (
    '"""A network that Chameleon compiled; the function ``load`` loads it."""\n\n'
    "from pathlib import Path\n\n"
    "from .load import check_cpu, load\n\n"
    '__all__ = ["load"]\n\n'
    "check_cpu(Path(__file__).parent)\n"
)

_METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: A network that Chameleon compiled
Requires-Python: >=3.11
{requires}

Target: {target}

The CPU must have: {features}. The import checks it, since no tag of a wheel names such features.
"""

_WHEEL = """\
Wheel-Version: 1.0
Generator: chameleon
Root-Is-Purelib: false
Tag: {tag}
"""


def write_wheel(network: Path, folder: Path, name: str, version: str) -> Exported:
    """Write a delivered network as a wheel, whose package has the network's name.

    The digest of the network is the local part of the wheel's version (PEP 440).
    """
    _check_delivered(network)
    if not name.isascii() or not name.isidentifier():
        raise ConfigError(
            f"a Python package cannot be called {name!r}",
            hint="Name it with --name, in letters, digits and underscores, a letter first.",
        )
    manifest = read_manifest(network)
    _check_format(network, manifest)
    with temporary_folder() as scratch:
        package = Path(scratch, name)
        ignored = shutil.ignore_patterns(OBJECTS, "__pycache__")
        shutil.copytree(network, package, ignore=ignored, copy_function=_copy_file)
        (package / PACKAGE).write_text(_WHEEL_PACKAGE, encoding="utf-8")
        shutil.copyfile(loading.__file__, package / "load.py")
        write_manifest(package, manifest)
        return Exported(files=(_zipped(package, folder, manifest, version),), tasks=())


def _copy_file(source: str, target: str) -> None:
    copy = link_weights if Path(source).name == WEIGHTS else shutil.copyfile
    copy(Path(source), Path(target))


def _zipped(package: Path, folder: Path, manifest: Mapping[str, Any], version: str) -> Path:
    version = f"{version}+{loading.digest_of(dict(manifest))[:12]}"
    tag = f"py3-none-{sys.platform}_{platform.machine()}"
    own = f"{package.name}-{version}"
    versions = manifest["versions"]
    needs = manifest.get("needs", ["numpy"])
    levels = manifest.get("levels", ())[1:]
    largest = [bucket["folder"] for bucket in manifest.get("buckets", ())[-1:]]
    lowest = manifest
    if levels:
        lowest = read_manifest(package.joinpath(*largest, levels[-1]["name"]))
    pins = [name if name == "numpy" else f"{name}=={versions[name]}" for name in needs]
    facts = {
        "METADATA": _METADATA.format(
            name=package.name,
            version=version,
            requires="\n".join(f"Requires-Dist: {pin}" for pin in pins),
            target=manifest["target"],
            features=", ".join(lowest["cpu_features"]) or "nothing special",
        ),
        "WHEEL": _WHEEL.format(tag=tag),
    }
    wheel = folder / f"{own}-{tag}.whl"
    unoccupied(folder, [wheel.name])
    record = []
    try:
        with zipfile.ZipFile(wheel, "x", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(path for path in package.rglob("*") if path.is_file()):
                entry = str(file.relative_to(package.parent))
                archive.write(file, entry)
                sha256 = bytes.fromhex(digest_of_file(file))
                record.append(_record(entry, sha256, file.stat().st_size))
            for name, text in facts.items():
                entry = f"{own}.dist-info/{name}"
                archive.writestr(entry, text)
                record.append(_record(entry, hashlib.sha256(text.encode()).digest(), len(text)))
            lines = [*record, f"{own}.dist-info/RECORD,,", ""]
            archive.writestr(f"{own}.dist-info/RECORD", "\n".join(lines))
    except BaseException:
        wheel.unlink(missing_ok=True)
        raise
    return wheel


def _record(entry: str, sha256: bytes, size: int) -> str:
    digest = base64.urlsafe_b64encode(sha256).decode().rstrip("=")
    return f"{entry},sha256={digest},{size}"


def _folders(folder: Path, names: Sequence[str]) -> list[Path]:
    """The folder of each operator, after checking that none of them holds files."""
    if len(names) > 1:
        unoccupied(folder, names)
        return [folder / name for name in names]
    unoccupied(folder, sorted(file.name for file in folder.glob("*")))
    return [folder]


def _named(name: str) -> str:
    """The name of an operator's bundle, which begins with a letter."""
    return name if name[:1].isalpha() else f"operator_{name.lstrip('_')}"


def _whole(winner: Delivery.Winner, space: SpaceProvider, folder: Path, threads: int) -> None:
    """Deliver an operator into a folder, and remove the folder if that fails."""
    try:
        deliver_operator(winner, space, folder, threads)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _exported(winners: Sequence[Delivery.Winner], folders: Sequence[Path]) -> Exported:
    packed = [folder for folder in folders if (folder / "pack.py").exists()]
    return Exported(
        files=tuple(file for folder in folders for file in sorted(folder.iterdir())),
        tasks=tuple(winner.task.name for winner in winners),
        notes=tuple(_RANDOM.format(folder / "weights.bin") for folder in packed),
    )
