"""Notes the files that a network and its data are read from, to notice later that one changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce, wraps
from importlib import import_module
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any, TypeVar

import attrs


@attrs.frozen(kw_only=True)
class SourceFile:
    """The content of a file when it was read, or the names of a folder's files of one kind.

    Attributes:
        digest: The BLAKE2b digest of the content.
        state: Size in bytes, times of the last changes of content and of metadata in nanoseconds,
            and the number of the inode. If all are the same, so is the content.
    """

    digest: str
    state: tuple[int, ...]


T = TypeVar("T")

SourceFiles = dict[str, SourceFile]
"""Files by their absolute paths, and folders' files of one kind by patterns such as ``a/*.png``."""


def read_sources(files: Iterable[Path | str]) -> SourceFiles:
    """Compute the digests of files; raise an ``OSError`` if one cannot be read."""
    sources = {}
    for path in map(absolute, files):
        state = state_of(path)  # before it is read: a change meanwhile is noticed later
        if is_pattern(path):
            names = sorted(file.name for file in Path(path).parent.glob(Path(path).name))
            digest = hashlib.blake2b("/".join(names).encode()).hexdigest()
        else:
            with Path(path).open("rb") as stream:
                digest = hashlib.file_digest(stream, "blake2b").hexdigest()
        sources[path] = SourceFile(digest=digest, state=state)
    return sources


def is_pattern(path: str) -> bool:
    """Whether a path stands for the files of a folder that has one."""
    whole = Path(path)
    return whole.name.startswith("*.") and whole.parent.is_dir() and not whole.exists()


def absolute(path: Path | str) -> str:
    """An absolute path without ``..``."""
    # Links stay, since they may point to another file later.
    return os.path.normpath(Path(path).absolute())


def state_of(path: str) -> tuple[int, ...]:
    """The ``SourceFile.state`` of a file, or of the folder of a pattern."""
    facts = (Path(path).parent if is_pattern(path) else Path(path)).stat()
    return (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def loaded_modules(source: str) -> list[str]:
    """The files of the package of ``package.module:function``, as far as they are loaded.

    The package may be installed or have been imported before, so that no watch sees its files.
    """
    module = source.partition(":")[0]
    package = "" if module.endswith(".py") else module.partition(".")[0]
    modules = [sys.modules[name] for name in tuple(sys.modules) if name.split(".")[0] == package]
    files = [getattr(module, "__file__", None) or "" for module in modules]
    return [file for file in files if file.endswith(".py")]


_open_watches: list[set[str]] = []
_listed: set[str] = set()
"""Folders whose files were listed, as by a data set that reads all of them."""


class _Children:
    """The files that forked processes open, such as those that load data."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._read = 0

    def note(self, path: str) -> None:
        """Note a file in a forked process, which shares the log's end with this one."""
        os.write(self._log.fileno(), f"{path}\0".encode())

    def new(self) -> set[str]:
        """The files since the last call."""
        found = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, self._read)
        self._read += len(found)
        return set(found.decode().split("\0")[:-1])


_children = cache(_Children)


@contextlib.contextmanager
def watched(sources: SourceFiles) -> Iterator[None]:
    """Add the files of the user that Python opens meanwhile, such as weights and modules."""
    _install_hook()
    if _children().owner != os.getpid():
        _children.cache_clear()
    paths: set[str] = set()
    _open_watches.append(paths)
    try:
        yield
    finally:
        # Another watch may have seen the same files so far.
        _open_watches[:] = [watch for watch in _open_watches if watch is not paths]
        paths |= _children().new()
        paths |= {
            str(file.with_name(f"*{file.suffix}"))
            for file in map(Path, paths)
            if file.suffix and str(file.parent) in _listed
        }
        for path in sorted(paths - sources.keys()):
            known = Path(path).is_file() or is_pattern(path)
            if known and not path.startswith(_other_folders()):
                with contextlib.suppress(OSError):
                    sources |= read_sources([path])


def watched_items(items: Callable[[], Iterator[T]], sources: SourceFiles) -> Iterator[T]:
    """Yield the items of an iterator, and watch the files that it reads for each of them."""
    with watched(sources):
        iterator = items()
    while True:
        with watched(sources):
            item = next(iterator, _END)
        if item is _END:
            return
        yield item


_END: Any = object()


_READERS = {"safetensors": "safe_open", "h5py": "File.__init__", "torch": "from_file"}
"""Functions that open files without Python's ``open``, by the module that has them."""


@cache
def _install_hook() -> None:
    """Let Python call a function whenever it opens a file, which cannot be undone."""
    for module in _READERS.keys() & sys.modules.keys():
        _watch_reader(module)
    sys.addaudithook(_note_opened)


@cache
def _watch_reader(module: str) -> None:
    """Let a library's function note the files among its arguments."""
    try:
        *owners, name = _READERS[module].split(".")
        owner = reduce(getattr, owners, import_module(module))
        read = getattr(owner, name)
    except (ImportError, AttributeError):
        return  # the user's code gets the error

    @wraps(read, updated=())
    def noted(*arguments: Any, **named: Any) -> Any:
        for value in (*arguments, *named.values()):
            if isinstance(value, str | bytes | os.PathLike):
                _note(value)
        return read(*arguments, **named)

    # Other modules may have imported the function before.
    for holder in (owner, *sys.modules.values()):
        if getattr(holder, "__dict__", {}).get(name) is read:  # a name may stand for None
            setattr(holder, name, noted)


def _note(path: Any) -> None:
    name = absolute(os.fsdecode(path))
    if os.getpid() != _children().owner and _open_watches:
        _children().note(name)
    for paths in _open_watches:
        paths.add(name)


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import" and arguments[0] in _READERS:
        _watch_reader(arguments[0])
    if event not in {"open", "os.listdir", "os.scandir"} or not _open_watches:
        return
    # Source code that is only shown in messages, such as that of the calling program, and folders
    # in which Python looks for modules.
    caller = str(sys._getframe(1).f_globals.get("__name__"))  # noqa: SLF001
    if caller in {"tokenize", "linecache"} or (event != "open" and "importlib" in caller):
        return
    if event != "open":
        folder = arguments[0]
        if isinstance(folder, str | bytes | os.PathLike | None):
            _listed.add(absolute(os.fsdecode(folder or ".")))
        return
    path, _, flags = arguments
    if not isinstance(path, str | bytes | os.PathLike) or flags & (os.O_WRONLY | os.O_RDWR):
        return
    name = absolute(os.fsdecode(path))
    if name.endswith(".pyc"):
        with contextlib.suppress(ValueError):
            name = source_from_cache(name)
    _note(name)


@cache
def _other_folders() -> tuple[str, ...]:
    """Folders with files that are not the user's: of the system, of libraries, of Chameleon."""
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    modules = [module for name, module in sys.modules.items() if name.startswith("chameleon_")]
    files = [file for module in modules if (file := getattr(module, "__file__", None))]
    own = {str(Path(file).parent) for file in files}
    scratch = f"{tempfile.gettempdir()}/chameleon-"
    folders = {*libraries, *own, "/proc", "/sys", "/dev", "/etc", "/usr"}
    return (*(f"{folder}/" for folder in folders), scratch)
