"""ASTRA-sim's tracker of local memory: which tensors are live when, by what nodes say that they read and write.

A node reads its inputs and writes its outputs while it runs. A tensor lives from the beginning of its write to the end
of the read that was recorded last, or for ever if nothing reads it; one that is read before anything writes it counts
as written in the first 10 ns. Nodes are recorded as they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.text import on_one_line
from armillary.report.astra_log.statistics import started
from armillary.trace import Graph

Ints = NDArray[np.int64]
BEFORE = (0, 10, "UNDEFINED", 2**64 - 1)
"""The write of a tensor that nothing writes: begin, end, name and id of the node."""
LIFETIMES, COUNTER, HEAP = 1_000_000, 2_000_000, 3_000_000
"""Added to a rank: the processes of the trace that show these."""

Access = tuple[int, int, str, int]
"""Begin and end in ticks, name and id of a node."""


@dataclass
class Tensor:
    """A tensor: its bytes, its write, and its reads as they were recorded."""

    size: int
    write: Access
    reads: list[Access] = field(default_factory=list)

    def live(self, last: int) -> tuple[int, int]:
        """Return from when to when it lives; `last` is the end of the run."""
        return self.write[0], self.reads[-1][1] if self.reads else last


@dataclass
class Usage:
    """The tensors of a rank by their names."""

    tensors: dict[str, Tensor]
    last: int
    """The tick at which the last node ends."""

    def steps(self) -> tuple[Ints, Ints]:
        """Return the ticks at which the live bytes change, and the live bytes from then on."""
        begins = np.array([t.write[0] for t in self.tensors.values()], np.int64)
        freed = [t for t in self.tensors.values() if t.reads]
        ends = np.array([t.reads[-1][1] for t in freed], np.int64)
        sizes = [t.size for t in self.tensors.values()] + [-t.size for t in freed]
        ticks, place = np.unique(np.concatenate([begins, ends]), return_inverse=True)
        change = np.zeros(len(ticks), np.int64)
        np.add.at(change, place, np.array(sizes, np.int64))
        return ticks, np.cumsum(change)

    @property
    def peak(self) -> int:
        """The most live bytes, counted after all that happens at a tick."""
        return int(self.steps()[1].max(initial=0))


def usage(graph: Graph, start: Ints, end: Ints) -> Usage:
    """Return what the nodes of a graph read and wrote.

    Args:
        graph: Every node has the attributes ``inputs`` and ``outputs``: lists of a tensor and its bytes in turn.
        start: When each node started, in ticks.
        end: When it ended.

    Raises:
        InputError: a node lacks one or it is no such list, or a tensor is written twice.
    """
    found: dict[str, Tensor] = {}
    for position in started(graph, start).tolist():
        node = (
            int(start[position]), int(end[position]), on_one_line(graph.name(position)), int(graph.ids[position])
        )  # fmt: skip
        attributes = {name: value for name, _, value in graph.attrs(position)}
        for name, size in _tensors(graph, position, attributes, "inputs"):
            found.setdefault(name, Tensor(size, BEFORE)).reads.append(node)
        for name, size in _tensors(graph, position, attributes, "outputs"):
            if name in found:
                raise InputError(
                    f"{graph.node(position)} writes tensor '{name}', which node {found[name].write[3]} "
                    f"'{found[name].write[2]}' wrote; expected one write of a tensor (track-local-mem)"
                )
            found[name] = Tensor(size, node)
    return Usage(found, int(end.max(initial=0)))


def _tensors(
    graph: Graph, position: int, attributes: dict[str, Any], which: str
) -> Iterator[tuple[str, int]]:
    form = "a list of a tensor and its bytes in turn, which track-local-mem in the system file needs of every node"
    if which not in attributes:
        raise InputError(f"{graph.node(position)} has no attribute {which}; expected {form}")
    # One without a value is a list of nothing.
    words = attributes[which] or []
    whole = isinstance(words, (list, tuple)) and len(words) % 2 == 0
    if not whole or not all(str(size).isdecimal() and int(size) < 2**53 for size in words[1::2]):
        raise InputError(f"{graph.node(position)}: {which} is {str(words)[:80]}; expected {form}")
    for name, size in zip(words[::2], words[1::2], strict=True):
        # One of no bytes is left out.
        if int(size):
            yield on_one_line(str(name)), int(size)


def format_bytes(size: int) -> str:
    """Return bytes as that program prints them, ``1.50 GB``: a GB is 1024 MB."""
    value, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1024 or unit == "TB":
            break
        value /= 1024
    return f"{value:.2f} {unit}"


def events(used: Usage, rank: int) -> list[dict[str, Any]]:
    """Return the events of the trace of a rank, for chrome://tracing: reads, writes, lifetimes, live bytes, a heap."""
    found: list[dict[str, Any]] = []
    heap: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": HEAP + rank, "args": {"name": "Tensor Lifetime Heap"}}
    ]
    for number, (name, tensor) in enumerate(used.tensors.items()):
        accesses = [("tensorWrite", tensor.write), *(("tensorRead", read) for read in tensor.reads)]
        for category, (begin, end, node, node_id) in accesses:
            args = {"size": tensor.size, "node_name": node, "node_id": node_id}
            found += _pair(name, category, begin, end, rank, number, args)
        begin, end = tensor.live(used.last)
        found += _pair(name, "tensorLifetime", begin, end, LIFETIMES + rank, number, {"size": tensor.size})
        about = {
            "tensor_name": name, "size_bytes": tensor.size, "size_mb": tensor.size / 2**20,
            "lifetime_ns": end - begin, "position": number,
        }  # fmt: skip
        heap.append(
            {"name": name, "cat": "tensorHeatmap", "ph": "X", "ts": begin * 1e-3, "dur": (end - begin) * 1e-3,
             "pid": HEAP + rank, "tid": number, "args": about}
        )  # fmt: skip
    for tick, live in zip(*(values.tolist() for values in used.steps()), strict=True):
        found.append(
            {"name": "GPU Memory Usage (MB)", "cat": "GPU Memory", "ph": "C", "ts": tick * 1e-3,
             "pid": COUNTER + rank, "args": {"Memory_MB": live / 2**20}}
        )  # fmt: skip
    summary = {"tensors": len(used.tensors), "peak_bytes": used.peak}
    heap.append(
        {"name": "summary", "cat": "tensorHeatmap", "ph": "i", "s": "p", "ts": used.last * 1e-3,
         "pid": HEAP + rank, "tid": 0, "args": summary}
    )  # fmt: skip
    return found + heap


def _pair(
    name: str, category: str, begin: int, end: int, pid: int, tid: int, args: dict[str, Any]
) -> list[dict[str, Any]]:
    shared = {"name": name, "cat": category, "pid": pid, "tid": tid, "args": args}
    return [shared | {"ph": "B", "ts": begin * 1e-3}, shared | {"ph": "E", "ts": end * 1e-3}]
