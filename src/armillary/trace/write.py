"""Writing traces to files, and their groups."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np

from armillary.base.errors import InputError
from armillary.base.files import StrPath, replacing, write_text
from armillary.base.packing import zstandard_for
from armillary.trace._encode import choose_mode, encode
from armillary.trace.axis_sets import AxisSets
from armillary.trace.files import SUFFIXES
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

    An earlier trace of this prefix is replaced. Rank 0 goes first of what is removed and comes last of what is
    written: without it nothing is read, so that no half of a trace, and no mixture of two, is ever taken for one.

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

    written: list[Path] = []

    def write(rank: int, data: bytes) -> None:
        path = Path(f"{os.fspath(prefix)}.{rank}{suffix}")
        _write(path, data, compress)
        written.append(path)

    # One thread alone prepares kernels and class graphs: it writes the first rank of each class.
    zero = data_of(0)
    _remove(_earlier(prefix, 0))
    try:
        for rank in first:
            if rank:
                write(rank, data_of(rank))
                if progress:
                    progress(len(written))
        # The remaining files only copy, compress and write, which threads do in parallel.
        rest = np.setdiff1d(np.arange(1, trace.n_ranks), first).tolist()
        begun = len(written)
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            for done, _ in enumerate(pool.map(lambda rank: write(rank, data_of(rank)), rest), begun + 1):
                if progress:
                    progress(done)
        _remove(set(_earlier(prefix)).difference(written))
        write(0, zero)
        if progress:
            progress(trace.n_ranks)
    except BaseException:
        with suppress(InputError):
            _remove(written)
        raise


def _earlier(prefix: StrPath, rank: int | None = None) -> list[Path]:
    """Return the files of ranks, or of a rank, that are there; of JSON none, which may be something else."""
    folder, stem = Path(f"{os.fspath(prefix)}.").parent, Path(f"{os.fspath(prefix)}.").name
    if rank is not None:
        named = [folder / f"{stem}{rank}{suffix}" for suffix in SUFFIXES if suffix != ".json"]
        return [path for path in named if path.is_file()]
    suffixes = "|".join(re.escape(suffix) for suffix in SUFFIXES if suffix != ".json")
    pattern = re.compile(rf"{re.escape(stem)}\d+({suffixes})")
    listing = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208  a Path per file of others would cost more
    return [folder / name for name in listing if pattern.fullmatch(name)]


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        # Where a link leads, as `replacing` does.
        target = Path(os.path.realpath(path))
        try:
            if target.is_file():
                target.unlink()
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


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
