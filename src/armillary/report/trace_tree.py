"""The nodes of a trace in nested groups of few entries each, as a page opens them.

Calls nest where a trace records them, as PyTorch's do. Elsewhere nodes that follow each other and share a micro-batch,
a layer or a module, as their attributes and dotted names say, are a group. What is still too long is cut into runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.report.trace_drawing import Drawing, callers

I64 = NDArray[np.int64]

FEW = 24
"""Most entries of a group: boxes of a screen of 1280 by 900 pixels at their full size."""
_DEEPEST = 60
"""Control dependencies that nest deeper say an order, not calls: those of seven recorded PyTorch programs nest 6 to 11
deep, and each module of modules adds one."""
_PATH = re.compile(r"[^\s:<>()./]+(?:[./][^\s:<>()./]+)+")
"""Names of modules; "aten::add" and the signature of a C++ function are none."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Groups within groups; the first one is the root."""

    parent: list[int]
    """(groups): the group around each, always an earlier one; -1 for the root."""
    label: list[str]
    """(groups): its name."""
    group: I64
    """(boxes): the innermost group around each box."""
    calls: bool
    """Whether a group is a call and what it calls; the call is its first box."""


@dataclass
class _Group:
    label: str
    entries: list[int | _Group] = field(default_factory=list)


def tree(drawn: Drawing) -> Tree:
    """Return the groups of what is drawn; those of nodes, not of boxes, follow calls or modules."""
    root, calls = _Group(drawn.graph.source), False
    if drawn.how != "none":
        root.entries += range(drawn.n_boxes)
    else:
        caller = callers(drawn.graph)
        # Nodes of the network or the device may have no caller; of recorded programs, 96 to 100 % have one.
        calls = (
            len(caller) > 0 and (caller != np.arange(len(caller))).mean() > 0.5 and _depth(caller) <= _DEEPEST
        )
        if calls:
            _fill_calls(root, caller.tolist(), drawn.labels)
        else:
            _fill_runs(root, _paths(drawn))
    return _numbered(root, drawn.labels, calls=bool(calls))


def tree_of_boxes(nodes: Drawing, boxes: Drawing) -> Tree:
    """Return a group for each of `boxes`, with the nodes of which it consists."""
    members: list[list[int | _Group]] = [[] for _ in range(boxes.n_boxes)]
    for node, box in enumerate(boxes.box.tolist()):
        members[box].append(node)
    root = _Group(nodes.graph.source, [_Group(*each) for each in zip(boxes.labels, members, strict=True)])
    return _numbered(root, nodes.labels)


def _depth(caller: I64) -> int:
    depth = [0] * len(caller)
    for node, above in enumerate(caller.tolist()):
        if above != node:
            depth[node] = depth[above] + 1
    return max(depth, default=0)


def _fill_calls(root: _Group, caller: Sequence[int], labels: Sequence[str]) -> None:
    """Put every call, and after it what it calls, into a group."""
    groups: dict[int, _Group] = {}
    calls = {above for node, above in enumerate(caller) if above != node}
    for node, above in enumerate(caller):
        around = groups[above] if above != node else root
        if node in calls:
            groups[node] = _Group(labels[node], [node])
            around.entries.append(groups[node])
        else:
            around.entries.append(node)


def _paths(drawn: Drawing) -> Iterator[tuple[str, ...]]:
    """Yield micro-batch, layer and modules of every node, as far as they are known."""
    graph = drawn.graph
    known = [
        (title, graph.has(name).tolist(), graph.ints(name).tolist())
        for title, name in (("micro-batch", "micro_batch"), ("layer", "layer"))
    ]
    for at, name in enumerate(graph.names()):
        said = [f"{title} {values[at]}" for title, has, values in known if has[at] and values[at] >= 0]
        yield (*said, *(re.split("[./]", name)[:-1] if _PATH.fullmatch(name) else ()))


def _fill_runs(root: _Group, paths: Iterator[tuple[str, ...]]) -> None:
    """Put nodes that follow each other, and share the beginning of their paths, into a group."""
    around = [root]
    before: tuple[str, ...] = ()
    for node, path in enumerate(paths):
        shared = 0
        while shared < min(len(path), len(before)) and path[shared] == before[shared]:
            shared += 1
        del around[1 + shared :]
        for name in path[shared:]:
            inner = _Group(name)
            around[-1].entries.append(inner)
            around.append(inner)
        around[-1].entries.append(node)
        before = path


def _numbered(root: _Group, labels: Sequence[str], *, calls: bool = False) -> Tree:
    parent, names, group = [-1], [root.label], np.zeros(len(labels), dtype=np.int64)
    waiting = [(0, root)]
    while waiting:
        number, outer = waiting.pop()
        # A call stays beside the runs of what it calls.
        head = outer.entries[:1] if calls and outer is not root else []
        for entry in (*head, *_cut(outer.entries[len(head) :], labels)):
            # A group of one entry says nothing that the entry does not.
            while isinstance(entry, _Group) and len(entry.entries) == 1:
                entry = entry.entries[0]
            if isinstance(entry, _Group):
                waiting.append((len(parent), entry))
                parent.append(number)
                names.append(entry.label)
            else:
                group[entry] = number
    return Tree(parent, names, group, calls)


def _cut(entries: list[int | _Group], labels: Sequence[str]) -> list[int | _Group]:
    """Return at most `FEW` entries: those there are, or groups of as many that follow each other."""
    if len(entries) <= FEW:
        return entries
    levels = 1
    while FEW**levels < len(entries):
        levels += 1
    # As many on each level: 65 are nine groups of seven, not three of 24.
    length = math.ceil(len(entries) / math.ceil(len(entries) ** (1 / levels)))
    runs = [entries[at : at + length] for at in range(0, len(entries), length)]
    return [_Group(_run_name(run[0], run[-1], labels), run) for run in runs]


def _run_name(first: int | _Group, last: int | _Group, labels: Sequence[str]) -> str:
    ends = [each.label if isinstance(each, _Group) else labels[each] for each in (first, last)]
    return ends[0] if ends[0] == ends[1] else " … ".join(ends)
