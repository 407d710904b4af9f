"""Archives of arrays and a JSON header, with a checksum over both: one .npz without pickled objects.

Files come from others, so reading trusts nothing: an array has the size that its shape says, and every number in the
header is finite and of moderate size.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.reading import MOST_FILE, check_size
from armillary.base.units import format_bytes

Arrays = Mapping[str, NDArray[Any]]
CHECKSUM = "checksum"
MOST_BYTES = 1 << 30
"""Most bytes of an archive, unpacked; the largest model of the tests has a few MiB."""
MOST_HEADER = 1 << 26
"""Most bytes of the header; as Python objects it takes ten times as much."""
MOST_NESTED = 64
"""Most levels of nesting of a header; trees and rules need less than 30."""
LARGEST = 2.0**53
"""Largest magnitude of a number in a header: up to there floats represent every integer."""
_DIGITS = 24
_SHOWN = 40


class _Strange:
    """A number of a header that cannot be used in arithmetic (NaN, infinite, too large), kept as its text."""

    def __init__(self, text: str) -> None:
        self.text = text


def write_archive(path: Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write an archive.

    Raises:
        InputError: the file cannot be written.
    """
    parts = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays}
    # Last, so that it covers the header too.
    parts[CHECKSUM] = np.frombuffer(checksum(parts).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **parts)  # type: ignore[arg-type]


def checksum(arrays: Arrays) -> str:
    """Return the SHA-256 of names, types, shapes and contents of all arrays but the checksum's own."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        if name != CHECKSUM:
            array = np.ascontiguousarray(arrays[name])
            found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            found.update(array.tobytes())
    return found.hexdigest()


def read_archive(path: Path, expected: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of an archive; `check_sum` checks that they are what was written.

    Raises:
        InputError: it is no archive, too large, or has numbers that are not finite or too large; names the key.
    """
    try:
        arrays = _arrays(path, expected)
        header = json.loads(
            arrays["header"].tobytes(), parse_int=_integer, parse_float=_real, parse_constant=_Strange
        )
        if not isinstance(header, dict):
            raise TypeError("header")
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}), expected {expected}"
        ) from error
    except RecursionError as error:
        raise InputError(
            f"{path}: header: nested too deeply, expected at most {MOST_NESTED} levels"
        ) from error
    # Whatever a damaged file makes zipfile, NumPy or json raise means the same to a user.
    except Exception as error:
        raise InputError(f"{path}: no model, expected {expected}") from error
    _check_numbers(header, path)
    return header, arrays


def check_sum(path: Path, arrays: Arrays, expected: str) -> None:
    """Refuse an archive whose content is not what was written.

    Raises:
        InputError: the checksum is missing or does not match.
    """
    there = arrays.get(CHECKSUM)
    if there is None or there.tobytes() != checksum(arrays).encode():
        raise InputError(
            f"{path}: was changed or damaged after it was written (its checksum is that of another content), "
            f"expected {expected}"
        )


def whole(value: Any, name: str, low: int, high: int) -> int:
    """Return an integer of a header.

    Raises:
        ValueError: it is none, or not from `low` to `high`; names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} {value!r:.{_SHOWN}}, expected an integer from {low} to {high}")
    return value


def real(value: Any, name: str, low: float, high: float) -> float:
    """Return a number of a header.

    Raises:
        ValueError: it is none, or not from `low` to `high`; names it.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"{name} {value!r:.{_SHOWN}}, expected a number from {low:g} to {high:g}")
    return float(value)


@contextmanager
def reading(where: str, key: str) -> Iterator[None]:
    """Context in which errors name the file and the key that is being read.

    Raises:
        InputError: something is wrong.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        what = f"{type(error).__name__} " if not isinstance(error, ValueError) else ""
        text = " ".join(str(error).split())[:200]
        raise InputError(
            f"{where}: {key:.80}: {what}{text}; expected what `armillary generate learn` writes there"
        ) from error


def _arrays(path: Path, expected: str) -> dict[str, NDArray[Any]]:
    check_size(path, MOST_FILE)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        # The directory states unpacked sizes, so a small file that unpacks to many GiB is refused before it does.
        total = sum(member.file_size for member in members)
        if total > MOST_BYTES:
            raise InputError(
                f"{path}: has {format_bytes(total)} unpacked, expected {expected} of at most "
                f"{format_bytes(MOST_BYTES)}"
            )
        found = {}
        for member in members:
            if member.filename == "header.npy" and member.file_size > MOST_HEADER:
                raise InputError(
                    f"{path}: header: has {format_bytes(member.file_size)}, expected at most "
                    f"{format_bytes(MOST_HEADER)}"
                )
            data = archive.read(member)
            name = member.filename.removesuffix(".npy")
            found[name] = _array(data, f"{path}: {name:.{_SHOWN}}")
    return found


def _array(data: bytes, where: str) -> NDArray[Any]:
    """Return an array of a member, whose size is that of its shape."""
    file = io.BytesIO(data)
    # Not np.load, which allocates what the shape says before it looks at the data.
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject or dtype.kind not in "iufb" or fortran:
        raise ValueError(f"{where}: is of type {dtype}, expected numbers in rows")
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != len(data) - file.tell():
        raise InputError(
            f"{where}: has {len(data) - file.tell()} bytes, expected {size} for its shape {shape}"
        )
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape).copy()


def _integer(text: str) -> Any:
    # The length first: int() refuses texts of very many digits, or takes long for them.
    return int(text) if len(text) < _DIGITS and abs(int(text)) <= LARGEST else _Strange(text)


def _real(text: str) -> Any:
    value = float(text)
    return value if abs(value) <= LARGEST else _Strange(text)


def _check_numbers(header: dict[str, Any], path: Path) -> None:
    """Check that all numbers are moderate and nothing is nested deeply."""
    # A stack of its own: a header that json could parse may still be too deep for recursion here.
    stack: list[tuple[Any, tuple[Any, ...]]] = [(header, ())]
    while stack:
        value, place = stack.pop()
        if isinstance(value, _Strange):
            raise InputError(
                f"{path}: {_key(place)}: {value.text:.{_SHOWN}}, expected a number of at most {LARGEST:.0f}"
            )
        if isinstance(value, (dict, list)):
            if len(place) >= MOST_NESTED:
                raise InputError(
                    f"{path}: {_key(place)}: nested too deeply, expected at most {MOST_NESTED} levels"
                )
            stack += [(inner, (*place, key)) for key, inner in _inside(value)]


def _inside(value: Any) -> Iterator[tuple[Any, Any]]:
    return iter(value.items()) if isinstance(value, dict) else enumerate(value)


def _key(place: tuple[Any, ...]) -> str:
    """Return the place of a value as messages show it, shortened."""
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each:.{_SHOWN}}" for each in place)
    return text.lstrip(".")[:120]
