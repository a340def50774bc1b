"""Links compiled kernels and the C runtime into a library that needs only the C library."""

from __future__ import annotations

import functools
import json
import math
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
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
    *("kernels.c", "weights.c", "processor.c"),
)
"""C files that are the same in all libraries."""

_TVM_CALLS = b"__TVMFFIFunctionCall\0"
"""The symbol of kernels that call functions of TVM, such as sorting."""


def needs_tvm(objects: Path) -> bool:
    """Whether compiled kernels call functions that only TVM's runtime has, such as sorting."""
    return _TVM_CALLS in objects.read_bytes()


def link_library(
    objects: Path, manifest: Mapping[str, Any], library: Path, name: str, pool: Sequence[str] = ()
) -> None:
    """Link kernels into a shared library that exports only the functions of ``header.h``."""
    shared = [file for file in shared_objects() if not pool or file.stem != "pool"]
    with temporary_folder() as folder:
        work = Path(folder)
        (work / "names.h").write_text(_names(manifest, name), encoding="utf-8")
        (work / f"{name}.h").write_text(filled("header.h", manifest, name), encoding="utf-8")
        (work / "visible.map").write_text(f"{{ global: {name}_*; local: *; }};\n", encoding="utf-8")
        compile_c(SOURCES / "api.c", work / "api.o", work)
        (work / "objects").mkdir()
        with tarfile.open(objects) as archive:
            for member in archive:  # Python 3.11.3 has no filter for names that leave the folder
                if (content := archive.extractfile(member)) is not None:
                    (work / "objects" / Path(member.name).name).write_bytes(content.read())
        kernels = sorted((work / "objects").iterdir(), key=lambda file: (len(file.stem), file.stem))
        run_compiler(
            *("-shared", "-o", str(library)),
            *map(str, (work / "api.o", *shared, *kernels)),
            *pool,
            *("-Wl,--as-needed", "-lm", "-lpthread", "-Wl,--no-undefined"),
            f"-Wl,-soname,{library.name}",
            f"-Wl,--version-script={work / 'visible.map'}",
        )


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
    for key, value in {
        "@name@": name,
        "@guard@": f"{name.upper()}_H",
        "@variable@": threads_variable(name),
        "@title@": f"{kind} as a library for C.",
        **_structures(manifest),
    }.items():
        text = text.replace(key, value)
    return text


def _structures(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The members of the structures with inputs and outputs, and how a call reads them."""
    texts = {}
    for key, kind, const in (("inputs", "input", "const "), ("outputs", "output", "")):
        tensors = manifest[key]
        names = c_names([t.get("name", f"{kind}{n}") for n, t in enumerate(tensors)])
        members = [
            f"  {const}{_c_type(tensor['dtype'])} *{name}; /* {_words(tensor)} */"
            for name, tensor in zip(names, tensors, strict=True)
        ]
        texts[f"@first_{kind}@"] = names[0] if names else "unused"
        texts[f"@{kind}_members@"] = "\n".join(members) or "  const void *unused;"
        texts[f"@{kind}_values@"] = ", ".join(f"{key}->{name}" for name in names) or "NULL"
    return texts


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


def _words(tensor: Mapping[str, Any]) -> str:
    source, name = tensor.get("source"), tensor.get("name")
    quoted = json.dumps(source).replace("*/", "* /").replace("/*", "/ *")  # no end of a comment
    origin = "" if source in {None, name} else f", {quoted} in the model"
    return f"{tensor['dtype']} {list(tensor['shape'])}{origin}"


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
    command = [*compiler_command(), *words]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise ChameleonError(
            f"the C compiler cannot make the network's library: {finished.stderr[-400:]}",
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


def _names(manifest: Mapping[str, Any], name: str) -> str:
    """The text of ``names.h``: the names, shapes and constants that are special to one library."""
    outputs = [
        {"name": f"output{number}", **output} for number, output in enumerate(manifest["outputs"])
    ]
    tensors = [*manifest["inputs"], *outputs]
    # Linux permits AMX only on CPUs that have it, so its features are not asked for.
    features = [
        f"{{{json.dumps(feature)}, {', '.join(map(str, reported_bit(feature)))}}}"
        for feature in manifest["cpu_features"]
        if not feature.startswith("amx-")
    ]
    values = {
        "INPUTS": len(manifest["inputs"]),
        "OUTPUTS": len(manifest["outputs"]),
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
        '#include "runtime.h"',
        *(f"#define {key} {value}" for key, value in values.items()),
        *(c_array("int64_t", f"extents_{n}", tensor["shape"]) for n, tensor in enumerate(tensors)),
        c_array("TENSOR", "described", map(_tensor, range(len(tensors)), tensors)),
        c_array("struct feature", "features", [*features, "{0}"]),
    ]
    return "\n".join([*lines, ""])


def c_array(kind: str, name: str, values: Iterable[object]) -> str:
    """The C definition of an array; an empty one gets one element, since C has no empty arrays."""
    body = ",\n".join(map(str, values)) or "0"
    return f"static const {kind} {name}[] = {{\n{body}\n}};"


def _tensor(number: int, tensor: Mapping[str, Any]) -> str:
    size = math.prod(tensor["shape"]) * _bytes(tensor["dtype"])
    words = (json.dumps(tensor["name"]), json.dumps(tensor["dtype"]), str(len(tensor["shape"])))
    return f"{{{', '.join(words)}, extents_{number}, {size}}}"
