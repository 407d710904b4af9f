"""The one place that opens files from other sources, and limits their type and size.

An input file may come from anybody. So it must be a regular file, or a pipe that somebody writes to: a device may
never end, and a pipe without a writer waits forever. Its size, its unpacked size (`armillary.base.packing`), and its
number of values (`armillary.base.json_text`) are limited. The limits are generous: each is many times that of real
files. `armillary.base.allowed` says how to raise them.
"""

from __future__ import annotations

import math
import os
import select
import stat
from collections.abc import Iterable
from typing import Any, NoReturn

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.units import format_bytes, format_count

StrPath = str | os.PathLike[str]

MOST_FILE = 1 << 32
"""Bytes of a trace: 4 GiB. Traces of a rank that we know have up to 0.9 GB."""
MOST_TEXT = 1 << 28
"""Bytes of a text file that is no trace: measurements, tables, HLO, configurations in JSON."""
MOST_YAML = 1 << 24
"""Bytes of a YAML file; how many values they may be is another limit, see `armillary.base.yaml_text`."""
WRITER_SECONDS = 1.0
"""Seconds after which somebody must have a pipe open for writing."""
PIPE_SECONDS = 25.0
"""Seconds for which a pipe that somebody writes to may give nothing."""
_BLOCK = 1 << 16
_WHEN_EMPTY = "expected a file, or a pipe that somebody writes to"
MOST_LINES = 10_000_000
"""Lines of a text: 0.6 GB once it is cut at them, however short they are. Logs that we know have up to 0.5 million."""
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""What ends a line, for `str.splitlines`."""
MOST_VALUES = 10_000_000
"""Values of a JSON document; as Python objects they take about 1.5 GB."""
MOST_DEPTH = 200
"""Levels of lists and objects within each other."""


def read_bytes(path: StrPath, most: float = MOST_FILE) -> bytes | memoryview:
    """Return what a file holds.

    Raises:
        InputError: it is a device or a pipe that nobody writes to, or holds more than `most` bytes.
        OSError: it cannot be read.
    """
    descriptor = open_file(path)
    try:
        return _read(descriptor, path, limit(most))
    finally:
        os.close(descriptor)


def open_file(path: StrPath) -> int:
    """Return a descriptor of a file or pipe, without ever waiting for it.

    Raises:
        InputError: it is something else.
        OSError: it cannot be opened; a folder is an error of this kind, too.
    """
    # Asked before it is opened: to open some devices does something.
    _check_kind(os.stat(path), path)  # noqa: PTH116
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    descriptor = os.open(path, flags)
    try:
        # Another may have taken its place.
        _check_kind(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_kind(found: os.stat_result, path: StrPath) -> None:
    mode = found.st_mode
    if stat.S_ISREG(mode):
        # Those of /proc and /sys may wait or never end, and have no size.
        if found.st_size == 0 and found.st_dev in _of_system():
            _refuse(path, "is a view of the running system")
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(21, os.strerror(21), os.fspath(path))
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        _refuse(path, "is a device")
    if stat.S_ISSOCK(mode):
        _refuse(path, "is a socket")


def _of_system() -> set[int]:
    return {os.stat(each).st_dev for each in ("/proc", "/sys") if os.path.isdir(each)}  # noqa: PTH112, PTH116


def _refuse(path: StrPath, what: str) -> NoReturn:
    raise InputError(f"{os.fspath(path)}: {what}, {_WHEN_EMPTY}")


def _read(descriptor: int, path: StrPath, most: float) -> bytes | memoryview:
    found = os.fstat(descriptor)
    pipe = stat.S_ISFIFO(found.st_mode)
    if found.st_size > most:
        too_large(path, found.st_size, most)
    first = _some(descriptor, path, pipe)
    # Most files are small: a second read is the only proof that one is at its end.
    if not (more := _some(descriptor, path, pipe) if first else b""):
        return first
    # An array: to make room for one is faster than to let bytes grow.
    if pipe:
        return _rest_of_pipe(descriptor, path, bytearray(first + more), most)
    room = _room(max(found.st_size, 2 * _BLOCK) + 1)
    size = len(first) + len(more)
    room[:size] = first + more
    while True:
        view = room[size:]
        got = os.readv(descriptor, [view]) if hasattr(os, "readv") else _copy(descriptor, view)
        if not got:
            return room[:size].toreadonly()
        size += got
        if size > most:
            too_large(path, size, most)
        # The file has grown.
        if size == len(room):
            longer = _room(2 * size)
            longer[:size] = room
            room = longer


def _room(size: int) -> memoryview:
    """Return room for bytes that are written before they are read: clearing 100 MB takes as long as parsing them."""
    # Few commands read files of this size, and NumPy is not there yet where they do not.
    import numpy as np

    return np.empty(size, np.uint8).data


def _copy(descriptor: int, view: memoryview) -> int:
    found = os.read(descriptor, min(len(view), 1 << 20))
    view[: len(found)] = found
    return len(found)


def _rest_of_pipe(descriptor: int, path: StrPath, found: bytearray, most: float) -> memoryview:
    while more := _of_pipe(descriptor, path):
        found += more
        if len(found) > most:
            too_large(path, len(found), most)
    return memoryview(found).toreadonly()


def _some(descriptor: int, path: StrPath, pipe: bool) -> bytes:
    return _of_pipe(descriptor, path) if pipe else os.read(descriptor, _BLOCK)


def _of_pipe(descriptor: int, path: StrPath) -> bytes:
    """Return what a pipe gives next, "" at its end; it has been opened so that no read waits."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    for seconds in (0.0, WRITER_SECONDS, limit(PIPE_SECONDS)):
        ready = poll.poll(None if math.isinf(seconds) else int(seconds * 1000))
        try:
            found = os.read(descriptor, _BLOCK)
        # Somebody has it open for writing, and has not written yet.
        except BlockingIOError:
            continue
        # At the end of what was written, poll says so at once.
        if found or ready:
            return found
        if seconds:
            _refuse(path, "is a pipe that nobody writes to")
    raise InputError(
        f"{os.fspath(path)}: is a pipe that has given nothing for {limit(PIPE_SECONDS):g} s, {_WHEN_EMPTY} "
        f"({how_to_raise(2)})"
    )


def too_large(path: StrPath, size: float, most: float) -> NoReturn:
    """Refuse a file of `size` bytes, as more than `most`."""
    raise InputError(
        f"{os.fspath(path)}: has {format_bytes(size)}, expected at most {format_bytes(most)} "
        f"({how_to_raise(size / most)})"
    )


def decoded(data: bytes | bytearray | memoryview, path: StrPath) -> str:
    """Return the text that a file holds, without the mark of its order of bytes.

    Raises:
        InputError: it has more than `MOST_LINES` lines.
        UnicodeDecodeError: it is no UTF-8.
    """
    text = bytes(data).decode("utf-8-sig")
    most = limit(MOST_LINES)
    if len(text) > most and (lines := sum(map(text.count, _BREAKS))) > most:
        raise InputError(
            f"{os.fspath(path)}: has {format_count(lines)} lines, expected at most {format_count(int(most))} "
            f"({how_to_raise(lines / most)})"
        )
    return text


def check_size(path: StrPath, most: float) -> None:
    """Refuse a file that another library opens by its name: one that is none, or is too large; see `read_bytes`."""
    os.close(open_file(path))
    found = os.stat(path)  # noqa: PTH116
    # Such a library goes back and forth in it.
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{os.fspath(path)}: is a pipe, expected a file")
    size = found.st_size
    if size > limit(most):
        too_large(path, size, limit(most))


def read_plain(path: StrPath, most: float = MOST_TEXT) -> bytes:
    """Return the bytes of a text file, at most `most`; see `read_bytes`."""
    return bytes(read_bytes(path, most))


def check_values(count: int, where: StrPath) -> None:
    """Refuse a document of more than `MOST_VALUES`.

    Raises:
        InputError: there are more.
    """
    most = limit(MOST_VALUES)
    if count > most:
        raise InputError(
            f"{os.fspath(where)}: has about {format_count(count)} values, expected at most {format_count(int(most))} "
            f"({how_to_raise(count / most)})"
        )


def check_depth(value: Any, where: StrPath) -> None:
    """Refuse lists and mappings within each other beyond `MOST_DEPTH`: what walks them would run out of stack.

    Raises:
        InputError: they are nested more deeply, or a list is within itself.
    """
    level = [value]
    # Level by level, not by recursion. What stands at several places, as aliases do, counts once a level.
    for _ in range(MOST_DEPTH + 1):
        inner = {id(each): each for one in level for each in _inside(one) if isinstance(each, (dict, list))}
        if not inner:
            return
        level = list(inner.values())
    raise too_deep(where)


def _inside(value: Any) -> Iterable[Any]:
    found: Iterable[Any] = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    # Lists of a million numbers have nothing inside.
    return found if any(issubclass(kind, (dict, list)) for kind in set(map(type, found))) else ()


def too_deep(where: StrPath) -> InputError:
    """Return the refusal of a document whose levels are too many."""
    return InputError(f"{os.fspath(where)}: nested too deeply, expected at most {MOST_DEPTH} levels")
