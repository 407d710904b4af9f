"""The text of files of measurements."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from armillary.errors import InputError


def measured_text(path: Path) -> str:
    """Return the text of a file, unpacked if its name ends in .gz.

    Raises:
        InputError: it cannot be read, or is not text.
    """
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
