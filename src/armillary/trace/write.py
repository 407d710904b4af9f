"""Writing traces to files, and their groups."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np

from armillary.base.errors import InputError
from armillary.base.files import StrPath, replacing, write_text
from armillary.base.reading import zstandard_for
from armillary.trace._encode import choose_mode, encode
from armillary.trace.axis_sets import AxisSets
from armillary.trace.graph import Graph
from armillary.trace.stamp import Stamps
from armillary.trace.trace import WORLD, Trace, read_groups

_MOST_THREADS = 8


def write_graph(path: StrPath, graph: Graph, compress: Literal["gzip", "zstd"] | None = None) -> None:
    """Write one trace file, under a temporary name first so that no partial file is ever visible.

    Args:
        path: the file; with suffix ``.json`` it is written in the JSON layout.
        graph: what to write.
        compress: None for plain.

    Raises:
        InputError: the folder cannot be written.
    """
    target = Path(path)
    if target.suffix == ".json":
        from armillary.trace.json_layout import graph_to_json

        data = graph_to_json(graph).encode()
    else:
        data = encode(graph)
    _write(target, data, compress)


def _write(target: Path, data: bytes, compress: Literal["gzip", "zstd"] | None) -> None:
    if compress == "gzip":
        # Without a time of writing, equal graphs give equal files.
        data = gzip.compress(data, compresslevel=6, mtime=0)
    elif compress == "zstd":
        data = zstandard_for(target).ZstdCompressor().compress(data)
    with replacing(target) as temporary:
        temporary.write_bytes(data)


def write_trace(
    prefix: StrPath,
    trace: Trace,
    compress: Literal["gzip", "zstd"] | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write ``<prefix>.<rank>.et`` for every rank (with ``.gz`` or ``.zst`` when compressed).

    For a trace with a grid, every rank's file has its own groups and peers; see `expand.rank_graph`.

    Args:
        prefix: path up to the dot before the rank.
        trace: what to write.
        compress: None for plain.
        progress: called after each file with the number of files written so far.

    Raises:
        InputError: the folder cannot be written, or a rank has no such group or peer.
    """
    suffix = {None: ".et", "gzip": ".et.gz", "zstd": ".et.zst"}[compress]
    if trace.grid is None:
        mode = choose_mode(trace.total_nodes)
        first = np.unique(trace.rank_graph, return_index=True)[1].tolist()

        def data_of(rank: int) -> bytes:
            return encode(trace.graph(rank), mode)

    else:
        stamps = Stamps(trace)
        first, data_of = stamps.samples, stamps.file

    def write(rank: int) -> None:
        _write(Path(f"{os.fspath(prefix)}.{rank}{suffix}"), data_of(rank), compress)

    for done, rank in enumerate(first, 1):  # one thread alone prepares kernels and class graphs
        write(rank)
        if progress:
            progress(done)
    # The remaining files only copy, compress and write, which threads do in parallel.
    rest = np.delete(np.arange(trace.n_ranks), first).tolist()
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        for done, _ in enumerate(pool.map(write, rest), len(first) + 1):
            if progress:
                progress(done)


def groups_of(trace: Trace) -> dict[int, list[int]]:
    """Return the ranks of every group of a trace by number, without the group of all ranks.

    Raises:
        InputError: a definition cannot be read.
    """
    if trace.grid is not None:
        axis_sets = AxisSets(trace).all[1:]
        return {f.base + i: ranks for f in axis_sets for i, ranks in enumerate(f.members.tolist())}
    groups, findings = read_groups(trace)
    if findings:
        raise InputError(findings[0].message)
    return {number: ranks.tolist() for number, ranks in groups.items() if number != WORLD}


def write_group_file(path: StrPath, trace: Trace) -> None:
    """Write the groups of a trace as ``{"1": [ranks], ...}``; those of `write_trace` have the same numbers.

    Raises:
        InputError: a definition cannot be read, or the file not be written.
    """
    rows = (f'"{number}": {json.dumps(ranks)}' for number, ranks in groups_of(trace).items())
    write_text(path, "{" + ",\n ".join(rows) + "}\n")
