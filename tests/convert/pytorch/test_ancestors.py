from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from armillary.convert.pytorch.ancestors import Ancestors
from armillary.convert.pytorch.device import CpuOp


def chain(parent: dict[int, int], node: int) -> list[int]:
    """Return the callers of a node, one by one."""
    found = []
    while node in parent and parent[node] < node:
        node = parent[node]
        found.append(node)
    return found


def event(tid: int, end: int) -> CpuOp:
    return CpuOp("aten::mm", 0, end, tid, 0, 0, {}, False)


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, CpuOp | None]]:
    """Return the caller and the event of each node, most of them deep; a caller may be missing, or no lower."""
    rows = []
    for node in range(draw(st.integers(1, 60))):
        near = st.integers(max(node - 3, -1), node - 1)
        parent = draw(st.one_of(near, near, near, st.integers(-2, 70)))
        of = st.builds(event, st.integers(0, 1), st.integers(0, 9))
        rows.append((parent, draw(st.one_of(of, of, of, st.none()))))
    return rows


@given(trees(), st.integers(0, 1), st.integers(0, 10))
def test_leaps_lead_where_steps_do(rows: list[tuple[int, CpuOp | None]], tid: int, start: int) -> None:
    known = Ancestors()
    events = {}
    for node, (parent, own) in enumerate(rows):
        known.add(node, parent, own)
        events[node] = own
    for node in range(len(rows)):
        callers = chain(known.parent, node)
        for outer in range(-3, len(rows) + 3):
            assert known.is_inside(node, outer) == (outer in callers)
        far = known.above(node, tid, start)
        if far != node:
            assert far in callers
            passed = [node, *callers[: callers.index(far)]]
            over = [own for each in passed if (own := events[each])]
            assert len(over) == len(passed)
            assert all(own.tid == tid and own.end < start for own in over)


def test_few_steps_lead_to_the_outermost() -> None:
    known, looked = Ancestors(), 0
    for node in range(1, 100_001):
        known.add(node, node - 1, event(7, 5))

    class Counted(dict[int, int]):
        def get(self, key: int, default: int | None = None) -> int | None:  # type: ignore[override]
            nonlocal looked
            looked += 1
            return super().get(key, default)

    known.parent = Counted(known.parent)
    assert known.is_inside(100_000, 0)
    at, leaps = 100_000, 0
    while at:
        at, leaps = known.above(at, 7, 6), leaps + 1
    assert max(looked, leaps) < 50
