"""The text of files of measurements."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from armillary.base.errors import InputError


def measured_text(path: Path) -> str:
    """Return the text of a file, unpacked if gzip packed it or the name says so.

    Raises:
        InputError: it cannot be read, or is not text.
    """
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" or raw[:2] == b"\x1f\x8b" else raw).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not text, expected a CSV file or a log") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
