"""Inputs of trace commands: files, and prefixes of the files of all ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace.columns import NodeType
from armillary.trace.files import SUFFIXES, StrPath, load_trace, rank_files, read_graph
from armillary.trace.graph import Graph
from armillary.trace.trace import Trace

_RANK_FILE = re.compile(r"(.+)\.\d+(?:" + "|".join(map(re.escape, SUFFIXES)) + ")")


@dataclass(frozen=True)
class Input:
    """A trace and its name."""

    name: str
    trace: Trace
    whole: bool
    """Whether it is the trace of all ranks instead of one file."""


def read_input(path: StrPath) -> Input:
    """Read a file, or all ranks where `path` is the prefix of ``<prefix>.<rank>.et``.

    Raises:
        InputError: it is neither, or cannot be read.
    """
    name = os.fspath(path)
    # A prefix may also be the name of a folder, which is not a file to read.
    if name.endswith(SUFFIXES) or (Path(name).exists() and not Path(name).is_dir()):
        return Input(name, Trace.replicate(read_graph(name), 1), whole=False)
    return Input(name, load_trace(name), whole=True)


def check_recorded(trace: Trace) -> None:
    """Refuse a trace some of whose communication has no recorded time, so that only a machine can tell it.

    Raises:
        InputError: names the first such node.
    """
    for graph in trace.graphs:
        missing = np.flatnonzero(without_time(graph))
        if len(missing):
            raise InputError(
                f"{graph.node(int(missing[0]))} has no recorded time ({len(missing)} such communications); expected "
                "--system and --network, or a STUDY, whose machine tells it"
            )


def without_time(graph: Graph) -> NDArray[np.bool_]:
    """Return for each node whether it is communication that has no recorded time."""
    moves = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
    # Newer traces have ns.
    timed = graph.has("duration_ns") | (graph.duration_micros > 0)
    found: NDArray[np.bool_] = np.isin(graph.types, moves) & ~timed
    return found


def read_inputs(paths: Sequence[StrPath]) -> list[Input]:
    """Read several; two or more files that are all those of a prefix are read as that prefix."""
    names = [os.fspath(path) for path in paths]
    matches = {name: match[1] for name in names if (match := _RANK_FILE.fullmatch(name))}
    # The shell expands run.*.et to files; together they mean the whole trace `run`.
    whole = {prefix for prefix in set(matches.values()) if _is_whole(prefix, matches)}
    asked = [matches[name] if matches.get(name) in whole else name for name in names]
    # In order, each prefix once.
    return [read_input(name) for name in dict.fromkeys(asked)]


def _is_whole(prefix: str, matches: dict[str, str]) -> bool:
    given = {name for name, of in matches.items() if of == prefix}
    folder, stem = os.path.split(prefix)
    try:
        files = rank_files(folder, stem, None)
    except InputError:
        return False
    return len(given) > 1 and given == {f"{folder}/{name}" if folder else name for name in files}
