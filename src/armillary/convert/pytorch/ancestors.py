"""The callers of operators, callers of callers and so on: long chains of them are crossed in leaps.

A damaged trace, or a hostile one, may have a hundred thousand operators within each other, and each may ask for the
outermost. So every node has a leap beside its caller, to one so far up that any other is reached in a logarithm of
steps (Myers, "An applicative random-access stack", 1983). It also knows what holds for all that are leapt over.
"""

from __future__ import annotations

from armillary.convert.pytorch.device import CpuOp

_Span = tuple[int | None, int]
_NONE: _Span = (None, -(1 << 63))
_MIXED: _Span = (None, 1 << 63)
"""Thread and latest end of the events of some nodes: of none, and of those of several threads, or without events."""


class Ancestors:
    """The callers of the nodes added so far. Ids descend on the way up; what does not is a root."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}
        """Node -> its caller, also where that is no lower."""
        self._leap: dict[int, int] = {}
        self._depth: dict[int, int] = {}
        self._over: dict[int, _Span] = {}
        """What the leap of a node passes, the node itself included."""

    def add(self, node: int, parent: int, event: CpuOp | None) -> None:
        """Add a node, after its caller."""
        self.parent[node] = parent
        if parent >= node:
            # A damaged trace may go in circles.
            self._leap[node], self._depth[node], self._over[node] = node, 0, _NONE
            return
        own = (event.tid, event.end) if event else _MIXED
        leap, depth = self._leap.get(parent, parent), self._depth.get(parent, 0)
        middle, further = self._depth.get(leap, 0), self._leap.get(leap, leap)
        self._depth[node] = depth + 1
        if depth - middle == middle - self._depth.get(further, 0):
            self._leap[node] = further
            self._over[node] = _joined(own, self._over.get(parent, _NONE), self._over.get(leap, _NONE))
        else:
            self._leap[node], self._over[node] = parent, own

    def is_inside(self, node: int, outer: int) -> bool:
        """Return whether a node has another among its callers."""
        while outer < node and self.parent.get(node, node) < node:
            leap = self._leap[node]
            node = leap if leap >= outer else self.parent[node]
            if node == outer:
                return True
        return False

    def above(self, node: int, tid: int, start: int) -> int:
        """Return where a leap over events of one thread leads that ended before `start`; else the node."""
        thread, end = self._over.get(node, _NONE)
        return self._leap[node] if thread == tid and end < start else node


def _joined(*spans: _Span) -> _Span:
    some = [span for span in spans if span is not _NONE]
    if len({thread for thread, _ in some}) > 1 or any(thread is None for thread, _ in some):
        return _MIXED
    return some[0][0], max(end for _, end in some)
