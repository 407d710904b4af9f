"""Compressed files and archives: their unpacked size is limited before memory is allocated for it."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.reading import StrPath, read_bytes, too_large
from armillary.base.units import format_bytes

Data = bytes | bytearray | memoryview

MOST_UNPACKED = 1 << 30
"""Bytes that a compressed file may give in any case, however well it is packed."""
SURE_UNPACKED = 1 << 26
"""Bytes that a compressed file may give however small it is."""
RATIO = 256
"""Times its size that a larger one may give. Generated traces, which repeat themselves most, give 20 to 60 times their
size; gzip can give 1032 times, zstd 18,000 times."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Packing(NamedTuple):
    """How a file is compressed: its name in messages, and what undoes it."""

    name: str
    unpack: Callable[[Data, int, StrPath], bytearray]


def packing(data: Data) -> Packing | None:
    """Return how `data` are compressed, by their first bytes; None: they are not."""
    start = bytes(data[:4])
    if start[:2] == _GZIP:
        return Packing("gzip", _gunzip)
    return Packing("zstd", _unzstd) if start == _ZSTD else None


def unpacked(data: Data, path: StrPath, most: float = MOST_UNPACKED) -> Data:
    """Return `data`, unpacked if gzip or zstd compressed them; the expansion is limited.

    Raises:
        InputError: they are damaged, or give more than `most` bytes, or more than `RATIO` times as many.
    """
    found = packing(data)
    if found is None:
        return data
    room = min(limit(most), max(limit(SURE_UNPACKED), limit(RATIO) * len(data)))
    return found.unpack(data, -1 if math.isinf(room) else int(room), path)


def beginning(head: bytes, most: int) -> bytes:
    """Return at most `most` bytes that the first bytes of a file unpack to; none where they are damaged."""
    if head[:2] == _GZIP:
        try:
            return zlib.decompressobj(wbits=31).decompress(head, most)
        except zlib.error:
            return b""
    if head[:4] == _ZSTD:
        try:
            import zstandard
        except ImportError:
            return b""
        try:
            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(head) as stream:
                return stream.read(most)
        except zstandard.ZstdError:
            return b""
    return head[:most]


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
        too_large(path, size, limit(most))
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
