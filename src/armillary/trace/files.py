"""Reading trace files."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence

import numpy as np

from armillary.base.errors import InputError
from armillary.base.packing import read_unpacked
from armillary.trace._decode import Data, decode, decode_many
from armillary.trace.graph import Graph
from armillary.trace.other_formats import refuse_other
from armillary.trace.trace import Trace

StrPath = str | os.PathLike[str]

SUFFIXES = (".et", ".et.gz", ".et.zst", ".json")
"""What may follow ``<prefix>.<rank>``; where a rank has several files, the first of these is read."""

_READ_AT_ONCE = 1 << 16
_BATCH_BYTES = 1 << 25


def load_trace(prefix: StrPath, ranks: int | None = None, *, bytes_per_node: float = 0) -> Trace:
    """Read the files ``<prefix>.<rank>.et`` of all ranks.

    Also ``.et.gz``, ``.et.zst`` (compression is recognised by content, whatever the name) and
    ``.json`` (the layout of `graph_to_json`). Files with equal contents share one graph.

    Args:
        prefix: path up to the dot before the rank.
        ranks: number of ranks to read; None for all there are.
        bytes_per_node: What each node of different graphs will take once they are read: `memory.SIMULATED`.

    Raises:
        ShortageError: there is less memory than that.
        InputError: no file, a rank is missing in between, or a file cannot be read or is not a trace.
    """
    if not isinstance(prefix, str | os.PathLike):
        raise InputError(f"trace: got {prefix!r:.60}, expected the path of its files up to the rank")
    if ranks is not None and ranks < 1:
        raise InputError(f"{os.fspath(prefix)}: ranks is {ranks}, expected at least 1")
    folder, stem = os.path.split(os.fspath(prefix))
    names = rank_files(folder, stem, ranks)
    rank_graph = np.empty(len(names), dtype=np.int32)
    index: dict[bytes | tuple[int, bytes], int] = {}
    graphs: list[Graph] = []
    pending: list[Data] = []
    sources: list[str] = []
    size, each = 0, bytes_per_node
    for rank, name in enumerate(names):
        path = f"{folder}/{name}" if folder else name
        data = _read(path)
        # A small file is its own key; a large one a digest, so that it need not stay in memory.
        key = data if isinstance(data, bytes) else (len(data), hashlib.sha256(data).digest())
        rank_graph[rank] = known = index.setdefault(key, len(index))
        # The same contents as an earlier rank, decoded or waiting to be.
        if known < len(graphs) + len(pending):
            continue
        if name.endswith(".json"):
            refuse_other(path, "a Chakra trace")
            from armillary.trace._encode import encode

            # By way of the encoder, so that graphs from JSON share the columns of their batch, too.
            data = encode(_from_json(data, path))
        pending.append(data)
        sources.append(path)
        size += len(data)
        # Files decoded together share columns; a batch bounds how much text is held beside them.
        if size >= _BATCH_BYTES:
            graphs += decode_many(pending, sources, bytes_per_node=each)
            pending, sources, size = [], [], 0
    graphs += decode_many(pending, sources, bytes_per_node=each) if pending else []
    return Trace(tuple(graphs), rank_graph)


def rank_files(folder: str, stem: str, ranks: int | None) -> list[str]:
    """Return the file name of every rank from 0.

    Raises:
        InputError: there is none, or one is missing in between.
    """
    try:
        listing = os.listdir(folder or ".")  # noqa: PTH208  a Path per file would cost more than reading it
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror}, expected the folder of the trace files '{stem}.<rank>.et'"
        ) from error
    present = set(listing)
    if not stem:
        raise InputError(
            f"{folder}/: expected a prefix such as '{folder}/<name>' of files '<name>.<rank>.et'"
        )
    found: list[str] = []
    while ranks is None or len(found) < ranks:
        name = next((n for s in SUFFIXES if (n := f"{stem}.{len(found)}{s}") in present), None)
        if name is None:
            break
        found.append(name)
    # The rest explains what is missing: only errors pay for it.
    if len(found) == ranks:
        return found
    prefix = os.path.join(folder, stem)  # noqa: PTH118
    pattern = re.compile(re.escape(stem) + r"\.(\d+)\.(et|et\.gz|et\.zst|json)")
    files = {int(match[1]): name for name in listing if (match := pattern.fullmatch(name))}
    missing = len(found)
    if files and (max(files) >= missing or ranks is not None):
        last = max(*files, (ranks or 1) - 1)
        near = sorted(sorted(files, key=lambda rank: abs(rank - missing))[:4])
        raise InputError(
            f"{prefix}.{missing}.et: no file for rank {missing}, expected one for every rank from 0 to "
            f"{last}; nearest: {', '.join(files[rank] for rank in near)}"
        )
    if not found:
        others = sorted(
            {name[: m.start()] for name in listing if (m := re.search(r"\.\d+\.(et|json)", name))}
        )
        what = f"prefixes there: {', '.join(others[:5])}" if others else _there(listing)
        raise InputError(f"{prefix}: no trace file '{stem}.<rank>.et' in the folder ({what})")
    return found


def _there(listing: Sequence[str]) -> str:
    if not listing:
        return "it is empty"
    return "it holds " + ", ".join(sorted(listing)[:5]) + (", …" if len(listing) > 5 else "")


def _read(path: str) -> Data:
    """Return the decompressed contents of a file."""
    try:
        data = read_unpacked(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a readable trace file") from error
    # Small contents are their own key in `load_trace`.
    return bytes(data) if len(data) <= _READ_AT_ONCE else memoryview(data)


def read_graph(path: StrPath) -> Graph:
    """Read one trace file, ``.et`` (plain, gzip or zstd) or ``.json``.

    Raises:
        InputError: it cannot be read or is not a trace.
    """
    name = os.fspath(path)
    refuse_other(name, "a Chakra trace")
    data = _read(name)
    is_json = name.endswith(".json") or bytes(data[:1]) in (b"{", b"[")
    return _from_json(data, name) if is_json else decode(data, name)


def _from_json(data: Data, path: str) -> Graph:
    from armillary.trace.json_layout import graph_from_json

    return graph_from_json(bytes(data), path)
