"""Files that are complete or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armillary.errors import InputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside `path` to write to, and rename it to `path` if all went well.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror or error}), expected a path that can be written"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; see `replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def check_folder(option: str, path: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a path of `option` that cannot be written.

    Raises:
        InputError: its folder is missing, or it is a folder.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{option} {target}: there is no folder '{target.parent}'")
    if target.is_dir():
        raise InputError(f"{option} {target}: is a folder, expected a file name")
