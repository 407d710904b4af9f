"""Join a host trace and a device trace: which CPU event of Kineto is which node of the execution trace.

Strategies, in this order, each for what the ones before left over:

=============  ======================================================================================
rf_id          the id of the RecordFunction, which both have since 2023
sequence       the names of the operators of a thread, in the order in which they started
external_id    Kineto's External id, which was the RecordFunction's in old versions
occurrence     the k-th node of a name is the k-th event of that name, where both have as many
=============  ======================================================================================

A strategy whose pairs mostly differ in name joined two different runs and is not used.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from armillary.base.errors import InputError
from armillary.convert.pytorch.device import CpuOp, DeviceTrace
from armillary.convert.pytorch.host import HostNode, HostTrace
from armillary.convert.pytorch.sequence import align

LEAST_RATE = 0.5
"""With a smaller share of linked nodes, the traces are of different runs."""
# Ids of another run agree in few names, by chance; those of one run agree in nearly all.
_AGREE = 0.9

Pairs = dict[int, int]


@dataclass
class Linked:
    """A host trace and a device trace of the same steps."""

    host: HostTrace
    device: DeviceTrace
    op_of: list[int]
    """For every host node the index of its event in ``device.ops``, or -1."""
    strategies: dict[str, int]
    """How many nodes each strategy linked."""
    reasons: list[str]
    """Why a strategy was not used, or did not link all."""
    _node_of: dict[int, HostNode] | None = field(default=None, repr=False, compare=False)

    @property
    def linkable(self) -> int:
        """Number of host nodes that ran something."""
        return sum(not node.is_structure for node in self.host.nodes)

    @property
    def linked(self) -> int:
        """Number of host nodes that have an event."""
        return sum(self.strategies.values())

    @property
    def rate(self) -> float:
        """Share of linkable nodes that have an event."""
        return self.linked / max(self.linkable, 1)

    def node_of(self, op: CpuOp) -> HostNode | None:
        """Return the host node of an event; None where it has none."""
        if self._node_of is None:
            ops = self.device.ops
            self._node_of = {
                id(ops[at]): node for node, at in zip(self.host.nodes, self.op_of, strict=True) if at >= 0
            }
        return self._node_of.get(id(op))

    def report(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        called = self.device.call_of()
        return {
            "nodes": len(self.host.nodes),
            "linkable": self.linkable,
            "linked": self.linked,
            "link_rate": round(self.rate, 6),
            "strategies": self.strategies,
            "device_ops": len(self.device.kernels),
            "device_ops_linked": sum(kernel.correlation in called for kernel in self.device.kernels),
            "schema": self.host.schema,
            "warnings": self.reasons,
        }


def link(host: HostTrace, device: DeviceTrace, least_rate: float = LEAST_RATE) -> Linked:
    """Join the two traces of one rank.

    Raises:
        InputError: less than `least_rate` of the nodes can be linked: the traces are of different runs.
    """
    todo = {at for at, node in enumerate(host.nodes) if not node.is_structure}
    free = set(range(len(device.ops)))
    result = Linked(host, device, [-1] * len(host.nodes), {}, [])
    for name, strategy in (
        # From exact to heuristic, as each strategy takes its pairs away from the later ones.
        ("rf_id", _by_rf_id),
        ("sequence", _by_sequence),
        ("external_id", _by_external_id),
        ("occurrence", _by_occurrence),
    ):
        if not todo or not free:
            break
        pairs = strategy(host, device, todo, free, result.reasons)
        if pairs:
            result.strategies[name] = len(pairs)
            todo -= pairs.keys()
            free -= set(pairs.values())
            for at, op in pairs.items():
                result.op_of[at] = op
            # Only once most are linked is their span that of the host trace; before, it might exclude true events.
            if result.linked >= LEAST_RATE * result.linkable:
                free = _among(free, result)
    # A rate below the least may still be right: threads that Kineto does not see have nodes but no events.
    if todo:
        names = Counter(host.nodes[at].name for at in todo).most_common(3)
        shown = ", ".join(f"{count} '{name}'" for name, count in names)
        result.reasons.append(f"{len(todo)} of {result.linkable} host nodes have no event: {shown}")
    if result.linkable and result.rate < least_rate and not _threads_agree(result):
        raise InputError(
            f"{host.source} and {device.source} are not of the same steps: {result.linked} of {result.linkable} "
            f"host nodes ({100 * result.rate:.1f} %) have an event among {len(device.ops)}, expected at least "
            f"{100 * least_rate:.0f} %; {'; '.join(result.reasons)}"
        )
    return result


def _threads_agree(linked: Linked) -> bool:
    """Whether ids link all threads that Kineto recorded; it does not record threads that a program starts itself."""
    nodes = linked.host.nodes
    seen = {nodes[at].tid for at, op in enumerate(linked.op_of) if op >= 0}
    there = sum(node.tid in seen and not node.is_structure for node in nodes)
    return "rf_id" in linked.strategies and linked.linked >= _AGREE * there


def _among(free: set[int], linked: Linked) -> set[int]:
    """Return the events within the time span of the linked ones; the others belong to other steps."""
    ops = linked.device.ops
    found = [ops[op] for op in linked.op_of if op >= 0]
    first, last = min(op.start for op in found), max(op.end for op in found)
    return {op for op in free if first <= ops[op].start <= last}


def same_name(first: str, second: str) -> bool:
    """Whether two names are equal, apart from the number of a ProfilerStep."""
    return first == second or (first.startswith("ProfilerStep") and second.startswith("ProfilerStep"))


def _by_rf_id(
    host: HostTrace, device: DeviceTrace, todo: set[int], free: set[int], reasons: list[str]
) -> Pairs:
    return _by_key(
        "rf_id",
        host,
        device,
        ((host.nodes[at].rf_id, at) for at in todo),
        ((device.ops[op].rf_id, op) for op in free),
        reasons,
    )


def _by_external_id(
    host: HostTrace, device: DeviceTrace, todo: set[int], free: set[int], reasons: list[str]
) -> Pairs:
    # Old Kineto wrote the RecordFunction's id as External id, so both are compared with the node's rf_id.
    keys = ((host.nodes[at].rf_id, at) for at in todo)
    return _by_key("External id", host, device, keys, ((device.ops[op].external, op) for op in free), reasons)


def _by_key(
    what: str,
    host: HostTrace,
    device: DeviceTrace,
    host_keys: Iterable[tuple[int, int]],
    device_keys: Iterable[tuple[int, int]],
    reasons: list[str],
) -> Pairs:
    table, keys = _unique(device_keys), _unique(host_keys)
    both = {at: table[key] for key, at in keys.items() if key in table}
    pairs = {at: op for at, op in both.items() if same_name(host.nodes[at].name, device.ops[op].name)}
    if not table:
        reasons.append(f"no {what} in the device trace")
    elif not both:
        reasons.append(f"no {what} in common")
    elif len(pairs) < _AGREE * len(both):
        reasons.append(f"{what} not used: {len(both) - len(pairs)} of {len(both)} pairs differ in name")
        return {}
    return pairs


def _unique(keys: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return value by key, for the keys above 0 that have one value."""
    found: dict[int, int] = {}
    twice: set[int] = set()
    for key, value in keys:
        if key > 0 and found.setdefault(key, value) != value:
            twice.add(key)
    return {key: value for key, value in found.items() if key not in twice}


def _by_sequence(
    host: HostTrace, device: DeviceTrace, todo: set[int], free: set[int], reasons: list[str]
) -> Pairs:
    ours: dict[int, list[int]] = defaultdict(list)
    theirs: dict[int, list[int]] = defaultdict(list)
    for at in sorted(todo):
        ours[host.nodes[at].tid].append(at)
    for op in sorted(free):
        theirs[device.ops[op].tid].append(op)
    ours_names = {tid: [_plain(host.nodes[at].name) for at in run] for tid, run in ours.items()}
    theirs_names = {tid: [_plain(device.ops[op].name) for op in run] for tid, run in theirs.items()}
    counts = {tid: Counter(names) for tid, names in theirs_names.items()}
    # Of pairs of threads that share as many names, take the first of both: threads are in order of appearance.
    common = sorted(
        (-(Counter(names) & counts[thread]).total(), at, to, tid, thread)
        for at, (tid, names) in enumerate(ours_names.items())
        for to, thread in enumerate(theirs)
    )
    pairs: Pairs = {}
    # Greedy matching of threads by the names they share: thread numbers differ between the two observers.
    used_host: set[int] = set()
    used_device: set[int] = set()
    for shared, _, _, tid, thread in common:
        if not shared or tid in used_host or thread in used_device:
            continue
        used_host.add(tid)
        used_device.add(thread)
        found = align(ours_names[tid], theirs_names[thread])
        if len(found) < LEAST_RATE * len(ours[tid]):
            reasons.append(
                f"thread {tid}: {len(found)} of {len(ours[tid])} names are in the order of the "
                f"{len(theirs[thread])} events of thread {thread}"
            )
            continue
        pairs |= {ours[tid][at]: theirs[thread][to] for at, to in found}
    return pairs


def _plain(name: str) -> str:
    return re.sub(r"^ProfilerStep.*", "ProfilerStep", name)


def _by_occurrence(
    host: HostTrace, device: DeviceTrace, todo: set[int], free: set[int], reasons: list[str]
) -> Pairs:
    ours: dict[str, list[int]] = defaultdict(list)
    theirs: dict[str, list[int]] = defaultdict(list)
    for at in sorted(todo):
        ours[host.nodes[at].name].append(at)
    for op in sorted(free):
        theirs[device.ops[op].name].append(op)
    return {
        at: op
        for name, nodes in ours.items()
        # With unequal counts the k-th need not be the k-th, and nothing else tells them apart.
        if len(nodes) == len(theirs.get(name, ()))
        for at, op in zip(nodes, theirs[name], strict=True)
    }
