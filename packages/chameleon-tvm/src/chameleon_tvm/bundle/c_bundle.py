"""A delivered network or operator as a bundle for C: header, library, weights, an example."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.errors import ChameleonError, ConfigError, TargetError

from chameleon_tvm.bundle.pack import ARRAYS, PACKING
from chameleon_tvm.exporting import unoccupied
from chameleon_tvm.graph.load import CPUINFO, FLAGS, WEIGHTS
from chameleon_tvm.graph.package import MANIFEST, check_compiler, read_manifest
from chameleon_tvm.graph.sequence.calls import bytes_of
from chameleon_tvm.graph.sequence.library import OBJECTS
from chameleon_tvm.linking import architecture, own_triple
from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.words import identifier

_SOURCES = Path(__file__).with_name("c")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-Wall", "-fvisibility=hidden", "-shared")
_PACKING = (PACKING, ARRAYS, "pack.py")


@attrs.frozen(kw_only=True)
class Bundle:
    """What a bundle is called and is about.

    Attributes:
        name: of the library, and what its functions begin with.
        manifest: of the delivered folder.
    """

    name: str
    manifest: dict[str, Any]

    @property
    def tensors(self) -> list[dict[str, Any]]:
        """Inputs, then outputs, each with a name."""
        outputs = [
            {"name": f"output{place}", **one} for place, one in enumerate(self.manifest["outputs"])
        ]
        return [*self.manifest["inputs"], *outputs]

    def filled(self, template: str) -> str:
        """The text of a file of a bundle."""
        what = self.manifest.get("operator") or "network"
        kind = f"The tuned operator {what}" if "operator" in self.manifest else "A tuned network"
        text = (_SOURCES / template).read_text(encoding="utf-8")
        for key, value in {
            "@name@": self.name,
            "@guard@": f"{self.name.upper()}_H",
            "@title@": f"{kind} as a library for C.",
        }.items():
            text = text.replace(key, value)
        return text


def name_for(folder: Path, given: str | None) -> str:
    """What a bundle is called.

    Args:
        folder: where it goes, which names it where nothing else does.
        given: what was asked for.

    Raises:
        ConfigError: C has no such names.
    """
    name = given or identifier(folder.absolute().name)
    if not name.isascii() or not name.isidentifier() or name.startswith("_"):
        raise ConfigError(
            f"a library for C cannot be called {name!r}",
            hint="Name it with --name, in letters, digits and underscores, a letter first.",
        )
    return name


def write_c_bundle(delivered: Path, folder: Path, name: str) -> tuple[Path, ...]:
    """Write the bundle of a delivered folder.

    Args:
        delivered: what ``chameleon run`` left in ``network``, or ``deliver_operator`` wrote.
        folder: made where it is missing.
        name: of the library.

    Returns:
        The files.

    Raises:
        ConfigError: there is no bundle for such a network, or a file is there already.
        TargetError: there is no bundle for this system, or no C compiler.
        ChameleonError: the library cannot be linked.
    """
    manifest = read_manifest(delivered)
    _refuse(delivered, manifest)
    bundle = Bundle(name=name, manifest=manifest)
    texts = {f"{name}.h": "header.h", "CMakeLists.txt": "CMakeLists.txt", "main.cpp": "main.cpp"}
    copied = [one for one in (MANIFEST, *_PACKING) if (delivered / one).exists()]
    names = [*texts, f"lib{name}.so", WEIGHTS, *copied]
    unoccupied(folder, names)
    files = tuple(folder / one for one in names)
    try:
        for text, template in texts.items():
            (folder / text).write_text(bundle.filled(template), encoding="utf-8")
        for one in copied:
            shutil.copyfile(delivered / one, folder / one)
        weights = delivered / manifest.get("weights", WEIGHTS)
        shutil.copyfile(weights, folder / WEIGHTS)
        _link(bundle, delivered / OBJECTS, weights.stat().st_size, folder)
    except BaseException:
        # Half a bundle would only be in the way of the next try.
        for file in files:
            file.unlink(missing_ok=True)
        raise
    return files


def _refuse(delivered: Path, manifest: dict[str, Any]) -> None:
    """Refuse what there is no bundle for."""
    if not sys.platform.startswith("linux"):
        raise TargetError(
            "bundles for C are made on Linux only", hint="Load the network from Python instead."
        )
    check_compiler()
    if "buckets" in manifest:
        raise ConfigError(
            "a network in buckets of shapes has no bundle for C: it is several networks",
            hint="Tune it in one shape, or load it from Python, with its load.py.",
        )
    if manifest.get("virtual_machine"):
        raise ConfigError(
            f"TVM's virtual machine runs this network, because {manifest['virtual_machine']}; a "
            "bundle for C holds no such machine",
            hint="Load it from Python, with its load.py.",
        )
    if not (delivered / OBJECTS).exists():
        raise ConfigError(
            f"{delivered} has no {OBJECTS}: an earlier version delivered it",
            hint="Run `chameleon compile` on the run folder, which tunes nothing, then export.",
        )


def _link(bundle: Bundle, objects: Path, size: int, folder: Path) -> None:
    """Link the library, of which only the header's functions are visible.

    Raises:
        ChameleonError: the C compiler fails, or the kernels call what nothing here provides.
    """
    from tvm.support.cc import get_cc  # noqa: PLC0415 - needed for linking alone
    from tvm_ffi.libinfo import include_paths  # noqa: PLC0415

    library = f"lib{bundle.name}.so"
    with tempfile.TemporaryDirectory(prefix="chameleon-bundle-") as made:
        work = Path(made)
        (work / "bundle-tables.h").write_text(_tables(bundle, size), encoding="utf-8")
        visible = f"{{ global: {bundle.name}_*; local: *; }};\n"
        (work / "visible.map").write_text(visible, encoding="utf-8")
        kept = _extracted(objects, work)
        # The compiler may be one for C++, which takes the next file alone for C then.
        sources = [("-x", "c", str(_SOURCES / one)) for one in ("api.c", "backend.c")]
        command = [
            *(get_cc() or "cc").split(),
            *(f"-I{one}" for one in (work, folder, _SOURCES, *include_paths())),
            *_FLAGS,
            *itertools.chain.from_iterable(sources),
            *("-x", "none"),
            *map(str, kept),
            *("-Wl,--as-needed", "-lm", "-lpthread", "-Wl,--no-undefined"),
            f"-Wl,-soname,{library}",
            f"-Wl,--version-script={work / 'visible.map'}",
            *("-o", str(folder / library)),
        ]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise ChameleonError(
            f"the library for C cannot be linked: {finished.stderr[-400:]}",
            hint=f"It was called as {' '.join(command)}; CC names another compiler. Kernels that "
            "call TVM's own functions, such as sorting, run from Python alone.",
        )


def _extracted(objects: Path, folder: Path) -> list[Path]:
    """The objects of a delivered library, in the order in which it was linked of them."""
    made = []
    with tarfile.open(objects) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None:
                made.append(folder / Path(member.name).name)
                made[-1].write_bytes(content.read())
    return made


def _tables(bundle: Bundle, size: int) -> str:
    """The text of ``bundle-tables.h``, whose name no bundle's own header can have."""
    name, manifest = bundle.name, bundle.manifest
    tensors = bundle.tensors
    extents = [", ".join(map(str, one["shape"])) or "1" for one in tensors]
    described = [
        f"{{{json.dumps(one['name'])}, {json.dumps(one['dtype'])}, {len(one['shape'])}, "
        f"extents_{place}, {bytes_of(one['shape'], one['dtype'])}}}"
        for place, one in enumerate(tensors)
    ]
    types = [tvm.DataType(one["dtype"]) for one in tensors]
    features = [
        f"{{{json.dumps(one)}, {json.dumps(_flag(one))}}}" for one in manifest["cpu_features"]
    ]
    key = "Features" if architecture(own_triple()) == "aarch64" else "flags"
    sizes = {
        "INPUTS": len(manifest["inputs"]),
        "OUTPUTS": len(manifest["outputs"]),
        "THREADS": manifest["threads"],
        "MOST_THREADS": 1024,
        "TILES": int("amx" in manifest.get("permissions", ())),
        "WEIGHTS_SIZE": size,
        "FEATURES": len(features),
        "PROCESSOR": json.dumps(str(CPUINFO)),
        "FLAGS_KEY": json.dumps(key),
        "HANDLE": f"{name}_handle",
        "TENSOR": f"{name}_tensor",
        "API_NAME(function)": f"{name}_##function",
        "API(type, function)": f'__attribute__((visibility("default"))) type {name}_##function',
    }
    codes = (f"{{{int(one.type_code)}, {int(one.bits)}, {int(one.lanes)}}}" for one in types)
    return "\n".join(
        (
            f'#include "{name}.h"',
            *(f"#define {key} {value}" for key, value in sizes.items()),
            *(
                f"static const int64_t extents_{place}[] = {{{one}}};"
                for place, one in enumerate(extents)
            ),
            f"static const TENSOR described[] = {{{', '.join(described)}}};",
            f"static const DLDataType types[] = {{{', '.join(codes)}}};",
            "static const struct { const char *name, *flag; } features[] = {",
            f"{', '.join([*features, '{0, 0}'])}}};",
            "",
        )
    )


def _flag(feature: str) -> str:
    """A feature of LLVM's as the system's flag, in letters and digits alone."""
    return "".join(letter for letter in FLAGS.get(feature, feature) if letter not in "._-")
