"""Files that this user alone can have written: machine code that was kept is run, so it must not be anybody else's.

A hash tells that a file is whole, not who wrote it. So folders of code are made for their owner alone, and a file is
taken only if it, and every folder from the root of the code down to it, belongs to this user or the superuser and
nobody else can write to it. Where permissions mean nothing (Windows), the folders of a user are their own.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


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
