"""Files of compiled kernels that are complete or absent: Numba's own files, but with a checksum and one per signature.

Numba keeps an index per function, and numbers its files. A damaged index causes a traceback until somebody deletes it;
damaged machine code crashes the process. If two processes add to one index at the same time, one may find the other's
code under its number. Here the name of a file identifies its code, and its first bytes are a hash of the rest: a file
that does not match is deleted, and the kernel is compiled again.

A hash tells that a file is whole, not who wrote it, and code is run. So folders of code are made for their owner alone,
and a file is taken only if it, and every folder from the root of the code down to it, belongs to this user or the
superuser and nobody else can write to it. Where permissions mean nothing (Windows), a user's folders are their own.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib.util
import os
import pickle
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import replacing

SUFFIX = ".code"
"""Of files of machine code that runs without Numba, see `machine_code`; those of Numba end in ``.nbc``."""
_SEAL = hashlib.sha256().digest_size
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class KernelFiles:
    """Stands for Numba's ``IndexDataCacheFile``: the machine code of a function, by signature and processor."""

    def __init__(
        self, folder: Path, name: str, version: str, suffix: str = ".nbc", root: Path | None = None
    ) -> None:
        """Keep the code of function `name`, made by `version` of Numba, in files of `folder` that end in `suffix`.

        Nobody else may be able to write to the folders from `root` on; without it, to `folder`.
        """
        self._folder = folder
        self._root = root or folder
        self._name = name
        self._version = version
        self._suffix = suffix
        self.problem: OSError | None = None
        """Why the last `save` kept nothing."""

    def _about(self, key: object) -> tuple[str, Path]:
        # Types have names that tell them apart; pickles of them may differ from process to process.
        known = repr((self._name, self._version, key))
        return (
            known,
            self._folder / f"{self._name}.{hashlib.sha256(known.encode()).hexdigest()[:24]}{self._suffix}",
        )

    def save(self, key: object, data: object) -> None:
        """Keep the code of a signature; where that fails, nothing is kept, and `problem` says why."""
        from numba.core.serialize import dumps

        known, path = self._about(key)
        content: bytes = dumps((known, data))  # type: ignore[no-untyped-call]
        self.problem = None
        try:
            make_own(self._folder, self._root)
            with replacing(path, private=True) as temporary:
                temporary.write_bytes(hashlib.sha256(content).digest() + content)
        except OSError as error:
            self.problem = error
        except InputError as error:
            cause = error.__cause__
            self.problem = cause if isinstance(cause, OSError) else OSError(str(error))

    def load(self, key: object) -> Any:
        """Return the code of a signature; None: there is none, or it was damaged and is thrown away."""
        known, path = self._about(key)
        content = read_own(path, self._root)
        if content is None:
            return None
        if hashlib.sha256(content[_SEAL:]).digest() == content[:_SEAL]:
            # Only sealed bytes are unpickled. A class that they name may be gone all the same.
            with suppress(Exception):
                written, data = pickle.loads(content[_SEAL:])
                if written == known:
                    return data
        with suppress(OSError):
            path.unlink()
        return None

    def flush(self) -> None:
        """Forget all code of the function."""
        for path in self._folder.glob(f"{self._name}.*{self._suffix}"):
            path.unlink(missing_ok=True)


def cache_home() -> Path:
    """Return the folder that holds what we keep between runs; as the standard says, a relative one is none."""
    given = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (given if given.is_absolute() else Path("~/.cache").expanduser()) / "armillary"


def make_own(folder: Path, root: Path) -> None:
    """Make a folder, and those above it down from `root`, that nobody else can write to.

    Raises:
        PermissionError: one of them belongs to somebody else.
        OSError: it cannot be made.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    for each in _down(folder, root):
        each.mkdir(0o700, exist_ok=True)
        if (
            not _is_own(each.lstat(), stat.S_IFDIR)
            and os.name == "posix"
            and each.lstat().st_uid == os.geteuid()
        ):
            # Made by another program, for a group.
            each.chmod(0o700)
    if not is_own(folder, root):
        raise PermissionError(errno.EPERM, "others can write there", str(folder))


def is_own(folder: Path, root: Path) -> bool:
    """Tell whether nobody else can write to a folder, nor to those above it down from `root`."""
    try:
        return all(_is_own(each.lstat(), stat.S_IFDIR) for each in _down(folder, root))
    except OSError:
        return False


def read_own(path: Path, root: Path) -> bytes | None:
    """Return what a file holds; None: there is none that only this user can have written."""
    if not is_own(path.parent, root):
        return None
    try:
        # A pipe would wait, and a link may lead anywhere.
        flags = (
            os.O_RDONLY
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_NOFOLLOW", 0)
            | getattr(os, "O_BINARY", 0)
        )
        with os.fdopen(os.open(path, flags), "rb") as file:
            return file.read() if _is_own(os.fstat(file.fileno()), stat.S_IFREG) else None
    except OSError:
        return None


def is_own_file(path: Path, root: Path) -> bool:
    """Tell whether a file, and the folders above it down from `root`, are such that nobody else can write to them."""
    try:
        return is_own(path.parent, root) and _is_own(path.lstat(), stat.S_IFREG)
    except OSError:
        return False


def _down(folder: Path, root: Path) -> list[Path]:
    """Return the folders from `root` down to `folder`."""
    inner = folder.relative_to(root).parts
    return [root.joinpath(*inner[:count]) for count in range(len(inner) + 1)]


def _is_own(found: os.stat_result, kind: int) -> bool:
    if stat.S_IFMT(found.st_mode) != kind:
        return False
    return os.name != "posix" or (found.st_uid in (os.geteuid(), 0) and not found.st_mode & _OTHERS)


def sources_of(name: str, file: Path, ours: Path) -> set[Path]:
    """Return the files, but those below `ours`, of a module and of what it imports from where its own package lies."""
    found: set[Path] = set()
    left = [(name, file)]
    while left:
        module, path = left.pop()
        if path in found or path.is_relative_to(ours):
            continue
        found.add(path)
        for other in _imports(module, path):
            loaded = sys.modules.get(other)
            origin = getattr(loaded, "__file__", None)
            if origin and origin.endswith(".py") and not _of_others(other):
                left.append((other, Path(origin)))
    return found


def _imports(module: str, path: Path) -> Iterator[str]:
    """Yield the names of modules that a module may import, also inside of functions."""
    package = module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield base
            yield from (f"{base}.{each.name}" for each in node.names)


def _of_others(name: str) -> bool:
    return (
        name.partition(".")[0] in ("numpy", "numba", "llvmlite")
        or name.partition(".")[0] in sys.stdlib_module_names
    )
