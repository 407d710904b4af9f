"""What the rows of a step read and write, and which of them compiled code does not run, or runs elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from armillary.capture.kinds import Kind
from armillary.capture.log import COMMUNICATION, JOIN, OPERATOR, Communication, Row

FUSED = ("elementwise", "memory", "normalization", "reduction")
"""Families of operators that Inductor generates kernels for; it calls libraries for the others."""
APART = ("fsdp::",)
"""Namespaces of what runs in hooks of modules, which are not compiled with them."""
SUMS = ("aten::add", "aten::add_")
"""Operators with which autograd adds up gradients that come from several places."""


class Flow(NamedTuple):
    """What a row reads and writes.

    Attributes:
        row: Its number.
        region: Call of a compiled part that it is in, below 0 in its backward pass; 0: none.
        reads: Number of a storage -> bytes.
        writes: The same.
        again: Whether a checkpoint makes it again.
        mark: Changes of memory before it ended; -1: it is not known.
    """

    row: int
    region: int
    reads: Mapping[int, int]
    writes: Mapping[int, int]
    again: bool = False
    mark: int = -1


def unread(rows: Sequence[Row], flows: Sequence[Flow], alive: set[int]) -> tuple[set[int], set[int]]:
    """Return rows that a checkpoint makes again for nothing, and what they would make."""
    found, none = set[int](), set[int]()
    read = set(alive)
    for flow in reversed(flows):
        own = rows[flow.row].kind == OPERATOR and not flow.writes.keys() & flow.reads.keys()
        if flow.again and flow.region and flow.writes and own and not read.intersection(flow.writes):
            found.add(flow.row)
            none.update(flow.writes)
        else:
            read.update(flow.reads)
    return found, none


def once(
    rows: Sequence[Row],
    kinds: Sequence[Kind],
    flows: Sequence[Flow],
    alive: set[int],
    communications: Sequence[Communication],
) -> tuple[list[Flow], set[int], dict[int, int]]:
    """Leave out what a call makes a second time of the same, such as the casts of one input for several GEMMs.

    Only of results that are read whole and never changed: parts of one may be alike.

    Returns:
        The flows that are left; the rows that are not; and what stands for each storage that they would make.
    """
    times, size, made_at = Counter[int](), dict[int, int](), dict[int, int]()
    for flow in flows:
        times.update(flow.writes.keys())
        size |= flow.writes
        made_at |= dict.fromkeys(flow.writes, flow.row)

    def what(flow: Flow) -> Kind | Communication | None:
        """Return what a row does, if it always makes the same of the same."""
        row, whole = rows[flow.row], bool(flow.reads and flow.writes)
        whole = whole and all(times[each] == 1 and size[each] == read for each, read in flow.reads.items())
        # What is written later was there before.
        whole = whole and all(made_at[each] < flow.row for each in flow.reads)
        if not whole or any(times[each] != 1 or each in alive for each in flow.writes):
            return None
        if row.kind == COMMUNICATION:
            return communications[row.what] if flow.region and communications else None
        return kinds[row.what] if fusible(rows, kinds, flow) and not is_random(kinds[row.what]) else None

    left: list[Flow] = []
    twice, same, known = set[int](), dict[int, int](), dict[object, Flow]()
    for flow, graph in zip(flows, _graphs(flows), strict=True):
        reads = dict[int, int]()
        for storage, read in flow.reads.items():
            first_one = same.get(storage, storage)
            reads[first_one] = max(read, reads.get(first_one, 0))
        flow = flow._replace(reads=reads)
        done = what(flow)
        if done is not None:
            # In the order of the arguments: one less the other is not the other less the one.
            key = graph, rows[flow.row].stream, done, tuple(reads), tuple(flow.writes.values())
            first = known.setdefault(key, flow)
            if first is not flow:
                twice.add(flow.row)
                same |= dict(zip(flow.writes, first.writes, strict=True))
                continue
        left.append(flow)
    issued = {rows[at].what for at in twice if rows[at].kind == COMMUNICATION}
    twice.update(at for at, row in enumerate(rows) if row.kind == JOIN and row.what in issued)
    return left, twice, same


def _graphs(flows: Sequence[Flow]) -> list[int]:
    """Return the call of each row, and of what a checkpoint makes again the backward pass that it is compiled with."""
    found, behind = [], 0
    for flow in reversed(flows):
        behind = min(flow.region, 0) or behind
        found.append(behind if flow.again and flow.region and behind else flow.region)
    return found[::-1]


def is_random(kind: Kind) -> bool:
    """Return whether an operator gives something else each time."""
    words = ("rand", "dropout", "bernoulli", "normal_", "uniform")
    return "backward" not in kind.name and any(word in kind.name for word in words)


def with_sums(rows: Sequence[Row], kinds: Sequence[Kind], flows: Sequence[Flow]) -> list[Flow]:
    """Return the flows, with autograd's sums of gradients in the call that makes all of what they add."""
    found, made_in = [], dict[int, int]()
    for flow in flows:
        row = rows[flow.row]
        if not flow.region and row.kind == OPERATOR and kinds[row.what].name in SUMS:
            regions = {made_in.get(storage, 0) for storage in flow.reads}
            if len(regions) == 1 and (region := regions.pop()) < 0:
                flow = flow._replace(region=region)
        made_in.update(dict.fromkeys(flow.writes, flow.region))
        found.append(flow)
    return found


def fusible(rows: Sequence[Row], kinds: Sequence[Kind], flow: Flow) -> bool:
    """Return whether compiled code can make a row and its neighbours one kernel."""
    row = rows[flow.row]
    if row.kind != OPERATOR or not flow.region:
        return False
    return kinds[row.what].family in FUSED and not kinds[row.what].name.startswith(APART)


def late(
    rows: Sequence[Row], kinds: Sequence[Kind], by_row: Mapping[int, Flow], left_out: set[int]
) -> dict[int, int]:
    """Return rows that make much of little for one other row, and that row: there they are made, and never written.

    Like the product of the scales of rows and columns, which only the product with the result of a GEMM reads.
    """
    readers: dict[int, list[int]] = {}
    for flow in by_row.values():
        for storage in flow.reads:
            readers.setdefault(storage, []).append(flow.row)
    found = {}
    for flow in by_row.values():
        if not fusible(rows, kinds, flow) or len(flow.writes) != 1:
            continue
        [(made, size)] = flow.writes.items()
        after = readers.get(made, [])
        if len(after) != 1 or after[0] <= flow.row or 2 * sum(flow.reads.values()) > size:
            continue
        reader = by_row[after[0]]
        if reader.region != flow.region or not fusible(rows, kinds, reader):
            continue
        stream = rows[flow.row].stream
        between = [at for at in range(flow.row + 1, reader.row) if rows[at].stream == stream]
        between = [at for at in between if rows[at].kind != JOIN and at not in left_out]
        others = [by_row[at] for at in between if rows[at].kind in (OPERATOR, COMMUNICATION) and at in by_row]
        # An event, or another call, ends what can be one kernel; a change of what is read ends that, too.
        if (
            rows[reader.row].stream == stream
            and len(others) == len(between)
            and all(each.region == flow.region for each in others)
            and not any(flow.reads.keys() & each.writes.keys() for each in others)
        ):
            found[flow.row] = reader.row
    return found
