"""Links compiled kernels and the C runtime into a library that needs only the C library."""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chameleon_core.plugin_api import ChameleonError, TargetError
from chameleon_system.api import cache_path, read_cached_bytes, temporary_folder, write_cached_bytes
from chameleon_tvm.api import reported_bit, tvm

from chameleon_networks._names import c_names

SOURCES = Path(__file__).parent
OBJECTS = "objects.tar"
"""Name of the archive beside a library, with the object files that the library was linked from.

Linking these objects again, for instance under another name, gives the same machine code."""

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-fvisibility=hidden")
_SHARED = (
    *("handle.c", "sequence.c", "repack.c", "packed.c", "pool.c"),
    *("kernels.c", "weights.c", "processor.c", "sizes.c"),
)
"""C files that are the same in all libraries."""


def link_library(
    objects: Path | Sequence[Path],
    manifest: Mapping[str, Any],
    library: Path,
    name: str,
    pool: Sequence[str] = (),
) -> None:
    """Link kernels into a shared library that exports only the functions of ``header.h``.

    Args:
        objects: The archive of object files, or that of each bucket of the manifest.
        manifest: The manifest of the network.
        library: The library to write.
        name: The prefix of the library's functions.
        pool: Objects and libraries that replace the pool of threads.
    """
    shared = [file for file in shared_objects() if not pool or file.stem != "pool"]
    with temporary_folder() as folder:
        work = Path(folder)
        (work / "names.h").write_text(_names(manifest, name), encoding="utf-8")
        (work / f"{name}.h").write_text(filled("header.h", manifest, name), encoding="utf-8")
        (work / "visible.map").write_text(f"{{ global: {name}_*; local: *; }};\n", encoding="utf-8")
        compile_c(SOURCES / "api.c", work / "api.o", work)
        if isinstance(objects, Path):
            kernels = _unpacked(objects, work / "objects")
        else:
            folders = [work / _sequence(number) for number in range(len(objects))]
            kernels = list(map(_bucket_object, objects, folders))
        run_compiler(
            *("-shared", "-o", str(library)),
            *map(str, (work / "api.o", *shared, *kernels)),
            *pool,
            *("-Wl,--as-needed", "-lm", "-lpthread", "-Wl,--no-undefined"),
            f"-Wl,-soname,{library.name}",
            f"-Wl,--version-script={work / 'visible.map'}",
        )


def _unpacked(objects: Path, folder: Path) -> list[Path]:
    """The object files of an archive, in a new folder."""
    folder.mkdir()
    with tarfile.open(objects) as archive:
        for member in archive:  # Python 3.11.3 has no filter for names that leave the folder
            if (content := archive.extractfile(member)) is not None:
                (folder / Path(member.name).name).write_bytes(content.read())
    return sorted(folder.iterdir(), key=lambda file: (len(file.stem), file.stem))


def _bucket_object(objects: Path, folder: Path) -> Path:
    """One object file of a bucket, in which the sequence alone is visible, by the folder's name.

    Kernels of several buckets may have one name.
    """
    merged, result = folder.with_suffix(".merged"), folder.with_suffix(".o")
    run_compiler("-r", "-nostdlib", "-o", str(merged), *map(str, _unpacked(objects, folder)))
    asked = [*compiler_command(), "-print-prog-name=objcopy"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    kept = [f"--keep-global-symbol={name}" for name in ("sequence*", "__TVM*")]
    command = (found or "objcopy", "--wildcard", *kept, f"--redefine-sym=sequence={folder.name}")
    _run([*command, str(merged), str(result)])
    return result


def _sequence(bucket: int) -> str:
    """The C name of a bucket's calls."""
    return f"sequence_{bucket}"


@functools.cache
def provider_library() -> bytes:
    """The library of the execution provider that loads networks into ONNX Runtime."""
    with temporary_folder() as folder:
        provider, library = Path(folder, "onnxruntime.o"), Path(folder, "onnxruntime.so")
        compile_c(SOURCES / "onnxruntime.c", provider)
        run_compiler("-shared", "-o", *map(str, (library, provider)), "-ldl", "-Wl,--no-undefined")
        return library.read_bytes()


def filled(template: str, manifest: Mapping[str, Any], name: str) -> str:
    """Return the text of a template file with the name of a library filled in."""
    kind = (
        f"The tuned operator {manifest['task']['name']}"
        if "operator" in manifest
        else "A tuned network"
    )
    text = (SOURCES / template).read_text(encoding="utf-8")
    form = "sized" if "dimensions" in manifest else "fixed"
    text = _SECTION.sub(lambda part: "".join(part[form] or ""), text)
    for key, value in {
        "@name@": name,
        "@guard@": f"{name.upper()}_H",
        "@variable@": threads_variable(name),
        "@title@": f"{kind} as a library for C.",
        **_structures(manifest),
        **_extents(manifest, name),
    }.items():
        text = text.replace(key, value)
    return text


_SECTION = re.compile(
    r"^(?:@fixed@\n(?P<fixed>.*?))?(?:@sized@\n(?P<sized>.*?))?^@end@\n", re.MULTILINE | re.DOTALL
)
"""A part of a template for libraries of fixed shapes, for libraries of several buckets, or both."""


def _structures(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The members of the structures with inputs and outputs, and how a call reads them."""
    texts = {}
    for key, kind, const in (("inputs", "input", "const "), ("outputs", "output", "")):
        tensors = manifest[key]
        names = c_names([t.get("name", f"{kind}{n}") for n, t in enumerate(tensors)])
        members = [
            f"  {const}{_c_type(tensor['dtype'])} *{name}; /* {_words(tensor)}{_origin(tensor)} */"
            for name, tensor in zip(names, tensors, strict=True)
        ]
        texts[f"@first_{kind}@"] = names[0] if names else "unused"
        texts[f"@{kind}_members@"] = "\n".join(members) or "  const void *unused;"
        texts[f"@{kind}_values@"] = ", ".join(f"{key}->{name}" for name in names) or "NULL"
    takes = [f"{tensor['name']} ({_words(tensor)})" for tensor in manifest["inputs"]]
    texts["@taken@"] = json.dumps(f"the network takes {', '.join(takes)}")
    texts["@input_names@"] = ", ".join(json.dumps(tensor["name"]) for tensor in manifest["inputs"])
    return texts


def _extents(manifest: Mapping[str, Any], name: str) -> dict[str, str]:
    """The structure with a call's extents, and the arguments with it; fixed shapes have none."""
    dimensions = manifest.get("dimensions", ())
    members = c_names([dimension["name"] for dimension in dimensions])
    pairs = list(zip(members, dimensions, strict=True))
    only = f"const {name}_extents *extents"
    found = [
        f"  extents.{member} = extent_in(files[{number}], {axis});"
        for member, dimension in pairs
        for number, axis, *_ in dimension["axes"][:1]
    ]
    return {
        "@extents_members@": "\n".join(
            f"  int64_t {member}; /* {_possible(dimension)} */" for member, dimension in pairs
        ),
        "@found_extents@": "\n".join(found),
        "@only_extents@": only if members else "void",
        "@and_extents@": f", {only}" if members else "",
        "@and_address@": ", &extents" if members else "",
        "@and_value@": ", extents" if members else "",
    }


def _possible(dimension: Mapping[str, Any]) -> str:
    """The extents that calls may have along a dimension, in words."""
    *others, largest = map(str, dimension["buckets"])
    if all(axis[2] is not None for axis in dimension["axes"]):
        return f"1 to {largest}"
    return f"{', '.join(others)} or {largest}" if others else largest


def _c_type(dtype: str) -> str:
    """The type of elements in C; floats for which C has no type are integers with their bits."""
    if dtype in _C_FLOATS:
        return _C_FLOATS[dtype]
    return f"{'' if dtype.startswith('int') else 'u'}int{8 * _bytes(dtype)}_t"


_C_FLOATS = {"float32": "float", "float64": "double"}


def _bytes(dtype: str) -> int:
    """The bytes of an element."""
    kind = tvm.DataType(dtype)
    return (int(kind.bits) * int(kind.lanes) + 7) // 8


def _origin(tensor: Mapping[str, Any]) -> str:
    source, name = tensor.get("source"), tensor.get("name")
    quoted = json.dumps(source).replace("*/", "* /").replace("/*", "/ *")  # no end of a comment
    return "" if source in {None, name} else f", {quoted} in the model"


def _words(tensor: Mapping[str, Any]) -> str:
    return f"{tensor['dtype']} [{', '.join(map(str, tensor['shape']))}]"


def threads_variable(name: str) -> str:
    """The name of the environment variable that sets the number of threads of a library."""
    return f"{name.upper()}_NUM_THREADS"


def compile_c(source: Path, target: Path, *folders: Path) -> None:
    """Compile a C source file of the runtime."""
    from tvm_ffi.libinfo import include_paths  # noqa: PLC0415 - needed for linking alone

    headers = [f"-I{folder}" for folder in (*folders, SOURCES, *include_paths())]
    # The option `-x c` lets a C++ compiler read the source file as C.
    run_compiler(*headers, *_FLAGS, "-x", "c", "-c", str(source), "-o", str(target))


def compiler_command() -> list[str]:
    """The command of the C compiler: the one that CXX or CC names, or the first one on the PATH."""
    from tvm.support.cc import get_cc  # noqa: PLC0415 - needed for linking alone

    command = str(get_cc() or "").split()
    if command and shutil.which(command[0]):
        return command
    named = f"{command[0]}, which CXX or CC names" if command else "(cc, gcc or clang) on the PATH"
    error = TargetError(
        f"the network cannot be linked: there is no C compiler {named}",
        hint="Install one and repeat the command. If tuning is done, `chameleon compile` of the "
        "run folder does the rest; nothing has to be tuned again.",
    )
    error.may_pass = True
    raise error


def run_compiler(*words: str) -> None:
    """Call the C compiler, and raise an error with its message if it fails."""
    _run([*compiler_command(), *words])


def _run(command: Sequence[str]) -> None:
    """Call a program of the C compiler, and raise an error with its message if it fails."""
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        failed, reason = finished.returncode, finished.stderr[-400:]
    except OSError as error:
        failed, reason = 1, str(error)
    if failed:
        raise ChameleonError(
            f"the C compiler cannot make the network's library: {reason}",
            hint=f"It was called as {' '.join(command)}; CC names another one.",
        )


@functools.cache
def shared_objects() -> tuple[Path, ...]:
    """The object files that all libraries contain, compiled once per C compiler and cached."""
    kept = cache_path("runtime", _shared_facts())
    folder = temporary_folder()
    _FOLDERS.append(folder)
    objects = []
    for source in _SHARED:
        objects.append(Path(folder.name, source).with_suffix(".o"))
        known = read_cached_bytes(kept / objects[-1].name)
        if known is None:
            compile_c(SOURCES / source, objects[-1])
            write_cached_bytes(kept / objects[-1].name, objects[-1].read_bytes())
        else:
            objects[-1].write_bytes(known)
    return tuple(objects)


def _shared_facts() -> list[Any]:
    """The shared code, all headers that it may include, and the compiler."""
    command = [*compiler_command(), "--version"]
    compiler = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    sources = [*(SOURCES / name for name in _SHARED), *sorted(SOURCES.glob("*.h"))]
    code = [source.read_text(encoding="utf-8") for source in sources]
    return [command, _FLAGS, version("apache-tvm-ffi"), compiler, code]


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""Temporary folders that are kept until the process ends."""


def outputs_of(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The outputs of a library: those of the network, then the counts that cut them."""
    outputs = [
        {"name": f"output{number}", **output} for number, output in enumerate(manifest["outputs"])
    ]
    count = {"shape": [1], "dtype": "int64"}
    numbers = range(len(manifest.get("counts", ())))
    return [*outputs, *({"name": f"count{number}", **count} for number in numbers)]


def _names(manifest: Mapping[str, Any], name: str) -> str:
    """The text of ``names.h``: the names, shapes and constants that are special to one library."""
    outputs = outputs_of(manifest)
    tensors = [*manifest["inputs"], *outputs]
    # Linux permits AMX only on CPUs that have it, so its features are not asked for.
    features = [
        f"{{{json.dumps(feature)}, {', '.join(map(str, reported_bit(feature)))}}}"
        for feature in manifest["cpu_features"]
        if not feature.startswith("amx-")
    ]
    dimensions, buckets = manifest.get("dimensions", ()), manifest.get("buckets", [{}])
    values = {
        "INPUTS": len(manifest["inputs"]),
        "OUTPUTS": len(outputs),
        "DIMENSIONS": len(dimensions),
        "BUCKETS": len(buckets),
        "SIZES": "&sizes" if dimensions else "NULL",
        "EXTENTS": f"{name}_extents",
        "MOST_RANK": max((len(tensor["shape"]) for tensor in tensors), default=0) + 1,
        "THREADS": manifest["threads"],
        "THREADS_VARIABLE": json.dumps(threads_variable(name)),
        "TILES": int("amx" in manifest.get("permissions", ())),
        "FEATURES": len(features),
        "HANDLE": f"{name}_handle",
        "TENSOR": f"{name}_tensor",
        "API_NAME(function)": f"{name}_##function",
        "API(type, function)": f'__attribute__((visibility("default"))) type {name}_##function',
    }
    lines = [
        f'#include "{name}.h"',
        '#include "sequence.h"',
        '#include "sizes.h"',
        *(f"#define {key} {value}" for key, value in values.items()),
        c_array("struct feature", "features", [*features, "{0}"]),
        *(_sized_arrays(manifest, tensors) if dimensions else _fixed_arrays(manifest, tensors)),
        "",
    ]
    return "\n".join(lines)


def _fixed_arrays(manifest: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]) -> list[str]:
    """The definitions of a library's tensors and of its only bucket."""
    numbers = manifest.get("constants")
    constants = "NULL" if numbers is None else "constants"
    return [
        *([] if numbers is None else [c_array("int", constants, numbers)]),
        *(c_array("int64_t", f"extents_{n}", tensor["shape"]) for n, tensor in enumerate(tensors)),
        c_array("TENSOR", "described", map(_tensor, range(len(tensors)), tensors)),
        "extern const struct sequence sequence;",
        c_array("struct bucket", "buckets", [f"{{&sequence, {constants}, NULL, 0}}"]),
    ]


def _sized_arrays(
    manifest: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """The definitions of the tensors, dimensions and buckets of a library."""
    dimensions, first = manifest["dimensions"], manifest["buckets"][0]
    rows: dict[tuple[int, int], str] = {}
    steps: list[str] = []
    for place, dimension in enumerate(dimensions):
        for number, axis, pad in dimension["axes"]:
            rows[number, axis] = f"{{{place}, 0, 0, 1, {pad or 0:#x}}}"
        for number, axis, factor, *own in dimension["outputs"]:
            follows = f"{{{place}, {len(steps)}, {len(own)}, {factor}, 0}}"
            rows[len(manifest["inputs"]) + number, axis] = follows
            steps += [f"{{{more}, {stride}}}" for more, stride in own]
    forms = []
    for number, (tensor, shape) in enumerate(
        zip(tensors, [*first["inputs"], *first["outputs"]], strict=True)
    ):
        axes = [rows.get((number, axis), f"{{-1, 0, 0, {e}, 0}}") for axis, e in enumerate(shape)]
        yield c_array("struct axis", f"axes_{number}", axes or ["{0}"])
        forms.append(f"{{{len(shape)}, {_bytes(tensor['dtype'])}, axes_{number}}}")
    words = [
        f"{{{json.dumps(d['name'])}, {int(d['axes'][0][2] is not None)}, "
        f"{json.dumps(_possible(d))}}}"
        for d in dimensions
    ]
    yield c_array("struct dimension", "dimensions", words)
    yield c_array("struct form", "forms", forms)
    yield c_array("struct step", "steps", steps or ["{0}"])
    counts = f"{len(dimensions)}, {len(manifest['inputs'])}, {len(tensors)}"
    yield f"static const struct sizes sizes = {{{counts}, dimensions, forms, steps}};"
    described = [
        f"{{{json.dumps(t['name'])}, {json.dumps(t['dtype'])}, {len(t['shape'])}, NULL, 0}}"
        for t in tensors
    ]
    yield c_array("TENSOR", "described", described)
    entries = []
    for number, bucket in enumerate(manifest["buckets"]):
        yield f"extern const struct sequence {_sequence(number)};"
        yield c_array("int", f"constants_{number}", bucket["constants"])
        yield c_array("int64_t", f"extents_{number}", bucket["extents"])
        own = f"constants_{number}, extents_{number}, {bucket['tiles']}"
        entries.append(f"{{&{_sequence(number)}, {own}}}")
    yield c_array("struct bucket", "buckets", entries)


def c_array(kind: str, name: str, values: Iterable[object]) -> str:
    """The C definition of an array; an empty one gets one element, since C has no empty arrays."""
    body = ",\n".join(map(str, values)) or "0"
    return f"static const {kind} {name}[] = {{\n{body}\n}};"


def _tensor(number: int, tensor: Mapping[str, Any]) -> str:
    size = math.prod(tensor["shape"]) * _bytes(tensor["dtype"])
    words = (json.dumps(tensor["name"]), json.dumps(tensor["dtype"]), str(len(tensor["shape"])))
    return f"{{{', '.join(words)}, extents_{number}, {size}}}"
