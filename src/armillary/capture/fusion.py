"""Kernels of compiled parts of a program: what `torch.compile` makes one kernel of, as Inductor would.

Operators that read and write memory only, one after the other in a call of a compiled module or function, become one
kernel, which reads what comes from outside and writes what is used outside. What only the gradients of such operators
need again is not kept but made again from the inputs of its kernel, as the partitioner of AOTAutograd does. What a
checkpoint makes again and nobody reads is not made; what nothing reads in the backward pass is not there until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from armillary.capture.kinds import Kind
from armillary.capture.log import OPERATOR, Row

FUSED = ("elementwise", "memory", "normalization", "reduction")
"""Families of operators that Inductor generates kernels for; it calls libraries for the others."""
NAMED = 3
"""Operators that the name of a kernel has."""
Sizes = dict[int, int]


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


@dataclass
class Group:
    """Rows that become one kernel.

    Attributes:
        region: See `Flow`.
        flows: Of its rows.
        inputs: What it reads that others made.
        made: What it makes.
        changed: What of others it writes.
    """

    region: int
    flows: list[Flow] = field(default_factory=list)
    inputs: Sizes = field(default_factory=dict)
    made: Sizes = field(default_factory=dict)
    changed: Sizes = field(default_factory=dict)

    def add(self, flow: Flow) -> None:
        """Add a row."""
        self.flows.append(flow)
        for storage, size in flow.reads.items():
            if storage not in self.made:
                self.inputs[storage] = max(size, self.inputs.get(storage, 0))
        for storage, size in flow.writes.items():
            to = self.changed if storage in flow.reads or storage in self.inputs else self.made
            to[storage] = max(size, to.get(storage, 0))
        # What it makes and then changes is its own.
        for storage in self.changed.keys() & self.made.keys():
            del self.changed[storage]


class Fused(NamedTuple):
    """A step after fusion.

    Attributes:
        rows: What is left.
        kinds: Those of before, and the new ones.
        gone: Storages that are never there.
        kept: Storage -> another one that it is kept as long as: it is made again from this one.
        early: Storage -> changes of memory after which it ends.
    """

    rows: list[Row]
    kinds: list[Kind]
    gone: set[int]
    kept: dict[int, int]
    early: dict[int, int]


def fuse(rows: Sequence[Row], kinds: Sequence[Kind], flows: Sequence[Flow], alive: set[int]) -> Fused:
    """Return a step with one kernel for each group of rows.

    Args:
        rows: Of the step.
        kinds: Of its operators.
        flows: Of its operators and communications, in order.
        alive: Storages that are there after the step.
    """
    unread, none = _unread(rows, flows, alive)
    flows = [flow for flow in flows if flow.row not in unread]
    groups = _groups(rows, kinds, flows)
    of_row = {flow.row: group for group in groups for flow in group.flows}
    readers: dict[int, list[Flow]] = {}
    for flow in flows:
        for storage in flow.reads:
            readers.setdefault(storage, []).append(flow)
    maker: dict[int, Group] = {}
    gone: set[int] = set()
    for group in groups:
        mine = {flow.row for flow in group.flows}
        for storage in group.made:
            outside = [flow for flow in readers.get(storage, ()) if flow.row not in mine]
            if storage in alive or any(
                flow.region != -group.region or flow.row not in of_row for flow in outside
            ):
                continue
            gone.add(storage)
            if outside:
                maker[storage] = group
    kept: dict[int, int] = {}
    new_kinds, numbers = list(kinds), {}
    replaced: dict[int, Row] = {}
    for group in groups:
        if len(group.flows) == 1 and not gone.intersection(group.inputs):
            continue
        inputs: Sizes = {}
        for storage, size in group.inputs.items():
            _again(storage, size, maker, inputs, kept)
        written = {storage: size for storage, size in group.made.items() if storage not in gone}
        parts = [kinds[rows[flow.row].what] for flow in group.flows]
        kind = _kernel(parts, sum(inputs.values()) + sum(written.values()) + sum(group.changed.values()))
        if kind not in numbers:
            numbers[kind] = len(new_kinds)
            new_kinds.append(kind)
        last = rows[group.flows[-1].row]
        replaced[group.flows[-1].row] = last._replace(what=numbers[kind], calls=1)
    dropped = {flow.row for group in groups for flow in group.flows if group.flows[-1].row in replaced}
    dropped |= unread
    left = [replaced.get(at, row) for at, row in enumerate(rows) if at not in dropped or at in replaced]
    return Fused(left, new_kinds, gone | none, kept, _early(flows, readers, alive, kept))


def _unread(rows: Sequence[Row], flows: Sequence[Flow], alive: set[int]) -> tuple[set[int], set[int]]:
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


def _early(
    flows: Sequence[Flow], readers: Mapping[int, Sequence[Flow]], alive: set[int], kept: Mapping[int, int]
) -> dict[int, int]:
    """Return what ends with its last reader, in the call that makes it: the program may hold it longer."""
    found = {}
    for flow in flows:
        for storage in flow.writes if flow.region > 0 and not flow.again else ():
            after = readers.get(storage, ())
            inside = after and all(each.region == flow.region and each.mark >= 0 for each in after)
            if inside and storage not in alive and storage not in kept:
                found[storage] = max(each.mark for each in after)
    return found


def _groups(rows: Sequence[Row], kinds: Sequence[Kind], flows: Sequence[Flow]) -> list[Group]:
    by_row = {flow.row: flow for flow in flows}
    found: list[Group] = []
    # The group that is open on a stream.
    now: dict[int, Group] = {}
    for at, row in enumerate(rows):
        flow = by_row.get(at)
        joins = row.kind == OPERATOR and flow is not None and flow.region and kinds[row.what].family in FUSED
        if not joins:
            # Whatever else there is on a stream, such as an event, ends what was open.
            now.pop(row.stream, None)
            continue
        assert flow is not None
        group = now.get(row.stream)
        if group is None or group.region != flow.region:
            group = now[row.stream] = Group(flow.region)
            found.append(group)
        group.add(flow)
    return found


def _again(storage: int, size: int, maker: Mapping[int, Group], inputs: Sizes, kept: dict[int, int]) -> None:
    """Add a storage to the inputs of a kernel, or what it is made of if it is not there."""
    group = maker.get(storage)
    if group is None:
        inputs[storage] = max(size, inputs.get(storage, 0))
        return
    for source, its in group.inputs.items():
        kept[source] = storage
        _again(source, its, maker, inputs, kept)


def _kernel(parts: Sequence[Kind], size: int) -> Kind:
    names = dict.fromkeys(part.name.rpartition("::")[2].strip("_") for part in parts)
    more = "_and_more" if len(names) > NAMED else ""
    name = f"compiled::{'_'.join(list(names)[:NAMED])}{more}"
    return Kind(name, (), (), sum(part.flops for part in parts), size, "elementwise", parts[0].precision)
