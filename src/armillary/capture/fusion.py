"""Kernels of compiled parts of a program: what `torch.compile` makes one kernel of, as Inductor would.

Operators that read and write memory only, one after the other in a call of a compiled module or function, become one
kernel, which reads what comes from outside and writes what is used outside. So do operators that use what such a kernel
makes, with GEMMs or communications between them, if one of the two can move: the first until its results are read, the
second to where all that it reads is there. What a call makes twice of the same is made once. What only the gradients of
such operators need again is not kept but made again from the inputs of its kernel, as the partitioner of AOTAutograd
does, unless it is random or they have changed. What a checkpoint makes again and nobody reads is not made; what nothing
reads in the backward pass is not there until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from armillary.capture.flows import Flow, fusible, is_random, late, once, unread, with_sums
from armillary.capture.kinds import Kind
from armillary.capture.log import COMMUNICATION, JOIN, OPERATOR, Communication, Row

NAMED = 3
"""Operators that the name of a kernel has."""
Sizes = dict[int, int]


@dataclass
class Group:
    """Rows that become one kernel.

    Attributes:
        region: See `Flow`.
        flows: Of its rows.
        inputs: What it reads that others made.
        made: What it makes.
        changed: What of others it writes.
        at: The row at which it runs.
        fixed: Whether it cannot run later.
        read: What rows after it have read.
        written: What they have written.
    """

    region: int
    flows: list[Flow] = field(default_factory=list)
    inputs: Sizes = field(default_factory=dict)
    made: Sizes = field(default_factory=dict)
    changed: Sizes = field(default_factory=dict)
    at: int = -1
    fixed: bool = False
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    def add(self, flow: Flow) -> None:
        """Add a row at the end of the kernel."""
        self.take(flow)
        self.at = flow.row

    def take(self, flow: Flow) -> None:
        """Add a row to the kernel where it is."""
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

    def passed_by(self, flow: Flow) -> None:
        """Note a row that comes after the kernel and is not of it."""
        self.read.update(flow.reads)
        self.written.update(flow.writes)
        results = self.made.keys() | self.changed.keys()
        used = results & flow.reads.keys() or (results | self.inputs.keys()) & flow.writes.keys()
        self.fixed = self.fixed or bool(used)

    def gives(self, flow: Flow) -> bool:
        """Return whether a row is of the backward pass of the kernel, whose results can be made again there."""
        # What a checkpoint makes again is compiled with the backward pass that needs it.
        return flow.region == -self.region or (flow.region < 0 and self.flows[0].again)

    def sources(self, storage: int, gone: set[int]) -> Sizes:
        """Return what a result of the kernel is made of: of what it reads and what it writes, the nearest."""
        found: Sizes = {}
        todo, seen = [storage], {storage}
        while todo:
            made = todo.pop()
            for flow in self.flows:
                for source, size in flow.reads.items() if made in flow.writes else ():
                    if source in self.made and source in gone:
                        todo += {source} - seen
                        seen.add(source)
                    elif source != made:
                        found[source] = max(size, found.get(source, 0))
        return found

    def lost(self, storage: int, writers: Mapping[int, Sequence[int]], until: int, random: set[int]) -> bool:
        """Return whether a result cannot be made again: it is random, or made of what changes up to a row.

        Like the mask of a dropout, which is kept for the gradients.
        """
        todo, seen = [storage], {storage}
        while todo:
            made = todo.pop()
            for flow in self.flows:
                if made in flow.writes and flow.row in random:
                    return True
                for source in flow.reads if made in flow.writes else ():
                    if any(flow.row < at <= until for at in writers.get(source, ())):
                        return True
                    if source in self.made and source not in seen:
                        todo.append(source)
                        seen.add(source)
        return False

    def shares(self, flow: Flow) -> bool:
        """Return whether a row has a tensor in common with the kernel."""
        return bool((self.inputs.keys() | self.made.keys()) & flow.reads.keys())

    def reaches(self, flow: Flow) -> bool:
        """Return whether a row could have been run where the kernel is."""
        late = self.written & flow.reads.keys() or (self.read | self.written) & flow.writes.keys()
        return not late


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


def fuse(
    rows: Sequence[Row],
    kinds: Sequence[Kind],
    flows: Sequence[Flow],
    alive: set[int],
    communications: Sequence[Communication] = (),
) -> Fused:
    """Return a step with one kernel for each group of rows.

    Args:
        rows: Of the step.
        kinds: Of its operators.
        flows: Of its operators and communications, in order.
        alive: Storages that are there after the step.
        communications: Of the step; without them each is taken for one of its own.
    """
    flows = with_sums(rows, kinds, flows)
    left_out, none = unread(rows, flows, alive)
    flows = [flow for flow in flows if flow.row not in left_out]
    flows, twice, same = once(rows, kinds, flows, alive, communications)
    left_out |= twice
    none.update(same)
    groups = _groups(rows, kinds, flows, left_out)
    of_row = {flow.row: group for group in groups for flow in group.flows}
    readers: dict[int, list[Flow]] = {}
    writers: dict[int, list[int]] = {}
    for flow in flows:
        for storage in flow.reads:
            readers.setdefault(storage, []).append(flow)
        for storage in flow.writes:
            writers.setdefault(storage, []).append(flow.row)
    random = {at for at in of_row if is_random(kinds[rows[at].what])}
    maker: dict[int, Group] = {}
    gone: set[int] = set()
    # Group -> the last row at which something is made again of what it reads.
    until = {id(group): group.at for group in groups}
    for group in reversed(groups):
        mine = {flow.row for flow in group.flows}
        for storage in group.made:
            outside = [flow for flow in readers.get(storage, ()) if flow.row not in mine]
            by = writers[storage]
            # It was there before, or others change it.
            if not mine.issuperset(by) or any(flow.row < by[0] for flow in outside):
                continue
            if storage in alive or any(not group.gives(flow) or flow.row not in of_row for flow in outside):
                continue
            last = max((until[id(of_row[flow.row])] for flow in outside), default=group.at)
            if outside and group.lost(storage, writers, last, random):
                continue
            gone.add(storage)
            if outside:
                maker[storage] = group
                until[id(group)] = max(until[id(group)], last)
    # What stands for others is there as long as they would be.
    kept: dict[int, int] = {first: other for other, first in same.items()}
    new_kinds, numbers = list(kinds), {}
    replaced: dict[int, Row] = {}
    for group in groups:
        if len(group.flows) == 1 and not gone & (group.inputs.keys() | group.made.keys()):
            continue
        inputs: Sizes = {}
        for storage, size in group.inputs.items():
            _again(storage, size, maker, gone, inputs, kept)
        written = {storage: size for storage, size in group.made.items() if storage not in gone}
        if not written and not group.changed:
            # All of it is made in other kernels.
            left_out.update(flow.row for flow in group.flows)
            continue
        parts = [kinds[rows[flow.row].what] for flow in group.flows]
        kind = _kernel(parts, sum(inputs.values()) + sum(written.values()) + sum(group.changed.values()))
        if kind not in numbers:
            numbers[kind] = len(new_kinds)
            new_kinds.append(kind)
        replaced[group.at] = rows[group.at]._replace(what=numbers[kind], calls=1)
    dropped = {flow.row for group in groups for flow in group.flows if group.at in replaced}
    dropped |= left_out
    left = [replaced.get(at, row) for at, row in enumerate(rows) if at not in dropped or at in replaced]
    return Fused(left, new_kinds, gone | none, kept, _early(flows, readers, alive, kept))


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


def _groups(
    rows: Sequence[Row], kinds: Sequence[Kind], flows: Sequence[Flow], left_out: set[int]
) -> list[Group]:
    by_row = {flow.row: flow for flow in flows}
    moved_to = late(rows, kinds, by_row, left_out)
    waiting: dict[int, list[Flow]] = {}
    found: dict[int, Group] = {}
    # By stream: the group of the row before, and all groups of the call so far.
    now: dict[int, Group] = {}
    of_call: dict[int, list[Group]] = {}
    for at, row in enumerate(rows):
        flow = by_row.get(at)
        # Only what reads the results waits for a communication of compiled code.
        if row.kind == JOIN or at in left_out:
            continue
        if row.kind not in (OPERATOR, COMMUNICATION) or flow is None:
            # Whatever else there is on a stream, such as an event, ends what was open.
            now.pop(row.stream, None)
            of_call.pop(row.stream, None)
            continue
        groups = of_call.setdefault(row.stream, [])
        if groups and groups[0].region != flow.region:
            groups.clear()
            now.pop(row.stream, None)
        group, here = None, [flow]
        if at in moved_to:
            waiting.setdefault(moved_to[at], []).append(flow)
            continue
        if fusible(rows, kinds, flow):
            here = [*waiting.pop(at, ()), flow]
            for joining in tuple(here):
                # What is made late moves what makes it to here, if that can, but not back to that.
                before = now.get(row.stream) if joining is flow else None
                movable = groups if joining is flow else [other for other in groups if not other.fixed]
                group, moved = _joined(joining, before, movable)
                for other in moved:
                    groups.remove(other)
                    del found[id(other)]
                    # With what moved to here it has passed what is between.
                    here = [*here, *other.flows]
                    if now.get(row.stream) is other:
                        now[row.stream] = group
                if id(group) not in found:
                    groups.append(group)
                    found[id(group)] = group
        for each in groups:
            for passing in here if each is not group else ():
                each.passed_by(passing)
        if group is None or group.at != at:
            now.pop(row.stream, None)
        else:
            now[row.stream] = group
    return sorted(found.values(), key=lambda each: each.at)


def _joined(flow: Flow, before: Group | None, groups: Sequence[Group]) -> tuple[Group, list[Group]]:
    """Return the group that a row joins, which may be a new one, and the groups that are in that one now.

    Args:
        flow: Of the row.
        before: The group of the row before it, if it is of one.
        groups: Those of the call so far.
    """
    makers = [each for each in groups if each.made.keys() & flow.reads.keys()]
    if len(makers) == 1 and makers[0].fixed and makers[0].reaches(flow):
        makers[0].take(flow)
        return makers[0], []
    parts = [each for each in makers if not each.fixed and each is not before]
    if not parts and before is not None and before.shares(flow):
        before.add(flow)
        return before, []
    if before is not None and before.shares(flow):
        parts.append(before)
    # What moves to this row, in the order of the program.
    flows = [each for part in parts for each in part.flows]
    whole = Group(flow.region)
    for each in sorted((*flows, flow), key=lambda each: each.row):
        whole.add(each)
    return whole, parts


def _again(
    storage: int, size: int, maker: Mapping[int, Group], gone: set[int], inputs: Sizes, kept: dict[int, int]
) -> None:
    """Add a storage to the inputs of a kernel, or what it is made of if it is not there."""
    group = maker.get(storage)
    if group is None:
        inputs[storage] = max(size, inputs.get(storage, 0))
        return
    for source, its in group.sources(storage, gone).items():
        kept[source] = storage
        _again(source, its, maker, gone, inputs, kept)


def _kernel(parts: Sequence[Kind], size: int) -> Kind:
    names = dict.fromkeys(part.name.rpartition("::")[2].strip("_") for part in parts)
    more = "_and_more" if len(names) > NAMED else ""
    name = f"compiled::{'_'.join(list(names)[:NAMED])}{more}"
    return Kind(name, (), (), sum(part.flops for part in parts), size, "elementwise", parts[0].precision)
