"""What a program was made of besides its arguments: files that it read, modules of its own, and its environment.

A capture that was interrupted goes on with the ranks that are there only if all of these are what they were.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.reading import read_plain
from armillary.capture.where import is_users

MOST_READ = 1 << 24
"""Bytes of a file whose content is compared; of larger ones size and time are: those are data."""
NOT_MEANT = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES")
"""Variables that a rank gets from us beside those of torchrun, and those that shells change on their own."""


class NoInput(io.TextIOBase):
    """Standard input of a rank: all ranks would read from the same one."""

    def read(self, *_: Any) -> str:
        """Refuse: what is not there must not be taken for an empty text."""
        raise EOFError("it reads standard input")

    readline = read  # type: ignore[assignment]


class Inputs:
    """Follows which files below its folders a program reads, and which variables of the environment."""

    def __init__(self, given: Mapping[str, str], folders: Iterable[Path]) -> None:
        """Begin.

        Args:
            given: Variables that the program sees whatever the environment has.
            folders: Those below which files count.
        """
        self._given, self._before = given, dict(os.environ)
        self._files: set[str] = set()
        self._names: set[str] = set()
        self._on = True
        self._below = tuple({str(folder.resolve()) + os.sep for folder in folders})
        sys.addaudithook(self._opened)
        environ: Any = type(os.environ)
        item: Callable[[Any, Any], Any] = environ.__getitem__
        names = self._names

        def noted(self: Any, name: Any) -> Any:
            # `os.environb` is of the same class, and has names in bytes.
            if isinstance(name, str | bytes):
                names.add(os.fsdecode(name))
            return item(self, name)

        environ.__getitem__ = noted

    def found(self) -> tuple[dict[str, str], list[str], str]:
        """Return file -> digest, names of variables, and a digest of their values; it follows no further."""
        self._on = False
        files = set(self._files)
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.endswith(".py") and is_users(file):
                files.add(str(Path(file).resolve()))
        names = sorted(each for each in self._names if each not in self._given and each not in NOT_MEANT)
        digests = {file: found for file in sorted(files) if (found := _digest(file))}
        # As they were: imports set some for themselves.
        return digests, names, values_of(names, self._before)

    def _opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not self._on or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        mode = arguments[1]
        if isinstance(mode, str) and not mode.startswith("r"):
            return
        try:
            path = str(Path(os.fsdecode(arguments[0])).resolve())
        except (OSError, RuntimeError, ValueError):  # whoever opens it is told
            return
        if path.startswith(self._below) and not path.endswith(".pyc"):
            self._files.add(path)


def values_of(names: list[str], environment: Mapping[str, str]) -> str:
    """Return a digest of variables of the environment: their values are nobody's business."""
    pairs = [(name, environment.get(name)) for name in names]
    return hashlib.sha256(repr(pairs).encode()).hexdigest()


def unchanged(files: Mapping[str, str], names: list[str], values: str) -> bool:
    """Return whether files and variables are what `Inputs.found` has found."""
    return values_of(names, dict(os.environ)) == values and all(
        _digest(file) == found for file, found in files.items()
    )


def _digest(file: str) -> str:
    path = Path(file)
    try:
        about = path.stat()
        if about.st_size > MOST_READ or not path.is_file():
            return f"{about.st_size} bytes of {about.st_mtime_ns}"
        return hashlib.sha256(read_plain(path)).hexdigest()
    except (OSError, InputError):
        return ""  # it is no longer there
