"""The one place where files of others are opened: what they are, and how much they may hold or unpack to.

A file that is read may be a stranger's. So it must be a file, or a pipe that somebody writes to: a device may never
end and a pipe that nobody writes to waits for ever. What it holds, what it unpacks to, and how many values it has are
limited. The limits are generous: each is many times what real files have. `armillary.base.allowed` says how to raise
them.
"""

from __future__ import annotations

import json
import math
import os
import select
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.units import format_bytes, format_count

StrPath = str | os.PathLike[str]
Data = bytes | bytearray | memoryview

MOST_FILE = 1 << 32
"""Bytes of a trace: 4 GiB. Traces of a rank that we know have up to 0.9 GB."""
MOST_TEXT = 1 << 28
"""Bytes of a text file that is no trace: measurements, tables, HLO, configurations in JSON."""
MOST_YAML = 1 << 24
"""Bytes of a YAML file; how many values they may be is another limit, see `armillary.base.yaml_text`."""
MOST_UNPACKED = 1 << 30
"""Bytes that a compressed file may give in any case, however well it is packed."""
SURE_UNPACKED = 1 << 26
"""Bytes that a compressed file may give however small it is."""
RATIO = 256
"""Times its size that a larger one may give. Generated traces, which repeat themselves most, give 20 to 60 times their
size; gzip can give 1032 times, zstd 18,000 times."""
MOST_VALUES = 10_000_000
"""Values of a JSON document; as Python objects they take about 1.5 GB."""
MOST_DEPTH = 200
"""Levels of lists and objects within each other."""
WRITER_SECONDS = 1.0
"""Seconds after which somebody must have a pipe open for writing."""
PIPE_SECONDS = 25.0
"""Seconds for which a pipe that somebody writes to may give nothing."""
_BLOCK = 1 << 16
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_WHEN_EMPTY = "expected a file, or a pipe that somebody writes to"


class Packing(NamedTuple):
    """How a file is compressed: its name in messages, and what undoes it."""

    name: str
    unpack: Callable[[Data, int, StrPath], bytearray]


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
        _too_large(path, found.st_size, most)
    first = _some(descriptor, path, pipe)
    # Most files are small: a second read is the only proof that one is at its end.
    if not (more := _some(descriptor, path, pipe) if first else b""):
        return first
    # An array: to make room for one is faster than to let bytes grow.
    if pipe:
        return _rest_of_pipe(descriptor, path, bytearray(first + more), most)
    room = bytearray(max(found.st_size, 2 * _BLOCK) + 1)
    size = len(first) + len(more)
    room[:size] = first + more
    while True:
        with memoryview(room) as view:
            got = (
                os.readv(descriptor, [view[size:]])
                if hasattr(os, "readv")
                else _copy(descriptor, view[size:])
            )
        if not got:
            return memoryview(room)[:size].toreadonly()
        size += got
        if size > most:
            _too_large(path, size, most)
        # The file has grown.
        if size == len(room):
            room.extend(bytes(len(room)))


def _copy(descriptor: int, view: memoryview) -> int:
    found = os.read(descriptor, min(len(view), 1 << 20))
    view[: len(found)] = found
    return len(found)


def _rest_of_pipe(descriptor: int, path: StrPath, found: bytearray, most: float) -> memoryview:
    while more := _of_pipe(descriptor, path):
        found += more
        if len(found) > most:
            _too_large(path, len(found), most)
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


def _too_large(path: StrPath, size: float, most: float) -> NoReturn:
    raise InputError(
        f"{os.fspath(path)}: has {format_bytes(size)}, expected at most {format_bytes(most)} "
        f"({how_to_raise(size / most)})"
    )


def check_size(path: StrPath, most: float) -> None:
    """Refuse a file that another library opens by its name: one that is none, or is too large; see `read_bytes`."""
    os.close(open_file(path))
    found = os.stat(path)  # noqa: PTH116
    # Such a library goes back and forth in it.
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{os.fspath(path)}: is a pipe, expected a file")
    size = found.st_size
    if size > limit(most):
        _too_large(path, size, limit(most))


def check_members(archive: zipfile.ZipFile, path: StrPath, most: float = MOST_UNPACKED) -> None:
    """Refuse an archive of arrays whose members unpack to more than `most` bytes, before any of them is read.

    Raises:
        InputError: they do, or an array says that it is larger than its member.
        ValueError: a member is no array (``zipfile.BadZipFile``, ``zlib.error`` where it is damaged).
    """
    # Late: documents are read without it.
    from numpy.lib import format as npy

    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if size > limit(most):
        _too_large(path, size, limit(most))
    for member in members:
        with archive.open(member) as stream:
            version = npy.read_magic(stream)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(stream)
            # NumPy makes room for what the shape says before it looks at what is there.
            needed = math.prod(shape) * dtype.itemsize
            if needed > member.file_size:
                raise InputError(
                    f"{os.fspath(path)}: {member.filename:.40}: has {format_bytes(member.file_size)}, expected "
                    f"{format_bytes(needed)} for its shape"
                )


def packing(data: Data) -> Packing | None:
    """Return how `data` are compressed, by their first bytes; None: they are not."""
    start = bytes(data[:4])
    if start[:2] == _GZIP:
        return Packing("gzip", _gunzip)
    return Packing("zstd", _unzstd) if start == _ZSTD else None


def unpacked(data: Data, path: StrPath, most: float = MOST_UNPACKED) -> Data:
    """Return `data`, unpacked if gzip or zstd packed them; that may not be much more than they are.

    Raises:
        InputError: they are damaged, or give more than `most` bytes, or more than `RATIO` times as many.
    """
    found = packing(data)
    if found is None:
        return data
    room = min(limit(most), max(limit(SURE_UNPACKED), limit(RATIO) * len(data)))
    return found.unpack(data, -1 if math.isinf(room) else int(room), path)


def read_unpacked(path: StrPath, most: float = MOST_UNPACKED) -> Data:
    """Return what a file holds, unpacked: `read_bytes` and `unpacked`."""
    return unpacked(read_bytes(path), path, most)


def _gunzip(data: Data, most: int, path: StrPath) -> bytearray:
    found, rest = bytearray(), memoryview(data)
    try:
        # Several members may follow each other, and zeros as padding.
        while rest and bytes(rest[:1]) != b"\0":
            inflate = zlib.decompressobj(wbits=31)
            given: Any = rest
            while not inflate.eof:
                piece = inflate.decompress(given, 1 << 20)
                given = inflate.unconsumed_tail
                found += piece
                _check_unpacked(len(found), most, len(data), path)
                if not piece and not given and not inflate.eof:
                    raise EOFError("it ends in the middle")
            rest = memoryview(inflate.unused_data)
    except (zlib.error, EOFError) as error:
        raise InputError(f"{os.fspath(path)}: damaged gzip file ({error})") from error
    return found


def _unzstd(data: Data, most: int, path: StrPath) -> bytearray:
    library = zstandard_for(path)
    found = bytearray()
    try:
        # 128 MiB of window, zstd's own limit: a frame may ask for gigabytes.
        plain = library.ZstdDecompressor(max_window_size=1 << 27)
        with plain.stream_reader(data, read_across_frames=True) as stream:
            while piece := stream.read(1 << 20):
                found += piece
                _check_unpacked(len(found), most, len(data), path)
    except library.ZstdError as error:
        raise InputError(f"{os.fspath(path)}: damaged zstd file ({error})") from error
    return found


def _check_unpacked(size: int, most: int, packed: int, path: StrPath) -> None:
    if 0 <= most < size:
        raise InputError(
            f"{os.fspath(path)}: has {format_bytes(packed)} and unpacks to more than {format_bytes(most)}, expected "
            f"less ({how_to_raise(2)})"
        )


def zstandard_for(path: StrPath) -> Any:
    """Return the module that reads and writes .zst files such as `path`.

    Raises:
        InputError: it is not installed.
    """
    try:
        import zstandard
    except ImportError as error:
        raise InputError(
            f"{os.fspath(path)}: zstd needs the package zstandard, expected `pip install armillary[zstd]`"
        ) from error
    return zstandard


def check_json(text: str | bytes | bytearray | memoryview, where: StrPath) -> None:
    """Refuse JSON that has too many values to become Python objects, before it does.

    Raises:
        InputError: it may have more than `MOST_VALUES`.
    """
    plain: Any = bytes(text) if isinstance(text, memoryview) else text
    if len(plain) <= min(limit(MOST_VALUES), sys.maxsize):
        return
    signs: Any = (",", "[", "{") if isinstance(plain, str) else (b",", b"[", b"{")
    # Each value follows one of these; those within texts count, too.
    check_values(sum(plain.count(sign) for sign in signs), where)


def check_values(count: int, where: StrPath) -> None:
    """Refuse a document of more than `MOST_VALUES`.

    Raises:
        InputError: there are more.
    """
    most = limit(MOST_VALUES)
    if count > most:
        raise InputError(
            f"{os.fspath(where)}: has about {format_count(count)} values, expected at most {format_count(most)} "
            f"({how_to_raise(count / most)})"
        )


def parse_json(text: str | bytes | bytearray | memoryview, where: StrPath, **hooks: Any) -> Any:
    """Return what JSON says, whoever wrote it; `hooks` are those of ``json.loads``.

    Raises:
        InputError: it is nested too deeply or has too many values.
        json.JSONDecodeError: it is no JSON, or a number in it has thousands of digits.
        UnicodeDecodeError: its bytes are no text.
    """
    check_json(text, where)
    try:
        found = json.loads(bytes(text) if isinstance(text, memoryview) else text, **hooks)
    except RecursionError:
        raise _too_deep(where) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        raise json.JSONDecodeError("a number has thousands of digits", "", 0) from None
    check_depth(found, where)
    return found


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
    raise _too_deep(where)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _too_deep(where: StrPath) -> InputError:
    return InputError(f"{os.fspath(where)}: nested too deeply, expected at most {MOST_DEPTH} levels")


def read_plain(path: StrPath, most: float = MOST_TEXT) -> bytes:
    """Return the bytes of a text file, at most `most`; see `read_bytes`."""
    return bytes(read_bytes(path, most))


def json_within(text: str | bytes) -> Any:
    """Return what JSON says that stands in a field of a file, as some formats have it.

    Raises:
        ValueError: it is none, is nested too deeply, or has too many values.
    """
    try:
        return parse_json(text, "JSON in a text")
    except InputError as error:
        raise ValueError(str(error)) from None
