"""Local and hierarchical memory in profile `physical`: what accesses wait for, and the ports they share.

Every stage of a hierarchical memory is a port of an NPU, a node or the machine, one for loads and one for stores,
with the bandwidth of all its devices. A transfer is on all of them at once and has what the fullest gives it; what
it takes to fill the pipeline comes after, as a latency (`armillary.platform.memory`).

Ranks of one class transfer at the same time, so where they share a port one of them stands for several: its entry on
that port has a weight. Classes are refined until all nodes of a type hold the same number of ranks
of each class. Where groups of in-switch accesses lie in a way that classes cannot express, nothing folds.

The path through the host of a node to NICs that are not near is such a port, too, which all groups of the node share.
Where a group lies unevenly in its nodes every rank is its own class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common.items import FROM_MEMORY, View
from armillary.engine.common.network import node_size
from armillary.engine.common.nodes import refuse
from armillary.engine.physical import layout as lk
from armillary.platform.memory import speed
from armillary.platform.model import Platform
from armillary.trace import Graph, NodeType
from armillary.trace.graph import LIMIT

if TYPE_CHECKING:
    from armillary.platform.memory_model import MemoryModel

Ints = NDArray[np.int64]
ABSENT, LOCAL, REMOTE = range(3)
"""Values of ``tensor_loc``; what names none is remote, as in ASTRA-sim."""
LOAD_SLOT, STORE_SLOT, LOCAL_SLOT = range(3)
"""What an access occupies: loads and stores overlap in a hierarchical memory, others are one after the other."""
IN_SWITCH = "in_switch"
"""Attribute of an access of a group: loads bring the same data to all members, stores are added up in switches."""
REDUCE = FROM_MEMORY[NodeType.MEM_STORE_NODE]


def read_accesses(
    graph: Graph, order: Ints, platform: Platform, memory: NDArray[np.bool_], ticks: Ints
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Ints]:
    """Return which nodes access local memory, which are in-switch collectives, and the slots of all accesses.

    Args:
        graph: Of a rank.
        order: Its nodes in issue order.
        platform: The machine.
        memory: Which of them access a memory.
        ticks: Their durations; those of local accesses are filled in.

    Raises:
        InputError: a location or collective that cannot be, or no local memory.
    """
    where = graph.ints("tensor_loc", ABSENT)[order]
    expected = f"{LOCAL} (local), {REMOTE} (remote) or none"
    refuse(
        graph, order, memory & ((where < ABSENT) | (where > REMOTE)), "has an unknown tensor_loc", expected
    )
    local, store = memory & (where == LOCAL), graph.types[order] == NodeType.MEM_STORE_NODE
    together = memory & (graph.ints(IN_SWITCH, 0)[order] != 0)
    # Local memory belongs to one NPU, so there is no switch on the way that could add.
    refuse(graph, order, together & local, f"has {IN_SWITCH} in local memory", "remote memory")
    staged = platform.remote_memory.kind == "hierarchical"
    if not staged:
        problem = f"has {IN_SWITCH}, which memories of kind '{platform.remote_memory.kind}' do not do"
        refuse(graph, order, together, problem, "remote_memory of kind hierarchical")
    if local.any():
        ticks[local] = _local_ticks(graph, order, platform, local, store)
    slots = np.where(local, LOCAL_SLOT, np.where(store & staged, STORE_SLOT, LOAD_SLOT))
    return local, together, slots.astype(np.int64)


def _local_ticks(
    graph: Graph, order: Ints, platform: Platform, local: NDArray[np.bool_], store: NDArray[np.bool_]
) -> Ints:
    """Return latency + bytes ÷ bandwidth of the direction, or the time by another package's kind; ns, rounded up."""
    size, own = graph.ints("tensor_size", 0)[order], platform.npu.memory
    if own.kind:
        from armillary.platform.memory_model import access_ns, memory_model

        refuse(graph, order, local & (size < 0), "has a tensor_size out of range", "0 or more")
        with _placed(platform, "npu.memory"):
            took = access_ns(memory_model(own, platform.npus), own.kind, size[local], store[local])
        every = np.zeros(len(order), bool)
        every[np.flatnonzero(local)] = took >= LIMIT
        refuse(graph, order, every, "takes longer than can be counted", f"less than {LIMIT:.2g} ns")
        # At least 1 ns, as any node that takes time.
        whole: Ints = np.maximum(np.ceil(took), 1).astype(np.int64)
        return whole
    read, write = (own.rate(away) for away in (False, True))
    if not (read and write):
        at = int(order[np.flatnonzero(local)[0]])
        raise InputError(
            f"{graph.node(at)} accesses local memory; expected npu.memory.bandwidth, which times it"
        )
    took = own.latency + size / np.where(store, write, read)
    refuse(graph, order, local & ((size < 0) | (took >= LIMIT)), "has a tensor_size out of range", "less")
    result: Ints = np.maximum(np.ceil(took[local]), 1).astype(np.int64)
    return result


@contextmanager
def _placed(platform: Platform, key: str) -> Iterator[None]:
    """Name the file and the key in errors of another package's kind."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{platform.source or 'platform'}: {key}: {error}") from error


class RemoteAccesses:
    """What times accesses of remote memory without stages, and what serves them."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    @cached_property
    def _model(self) -> MemoryModel:
        from armillary.platform.memory_model import memory_model

        return memory_model(self._platform.remote_memory, self._platform.npus)

    @property
    def shared(self) -> bool:
        """Whether ranks wait for each other's accesses."""
        if self._platform.remote_memory.kind in ("none", "hierarchical"):
            return False
        with _placed(self._platform, "remote_memory"):
            return self._model.per != "npu"

    def fill(self, view: View, items: Ints, rank: int) -> None:
        """Fill in the accesses of a rank.

        Raises:
            InputError: there is no remote memory, or its kind returns an invalid time.
        """
        nodes, memory = view.nodes, self._platform.remote_memory
        which = np.flatnonzero(nodes.kind[nodes.items] == lk.MEMORY)
        if not which.size:
            return
        at = nodes.order[nodes.items[which]]
        if memory.kind == "none":
            raise InputError(
                f"{nodes.graph.node(int(at[0]))} accesses remote memory, but the machine has none; expected one"
            )
        from armillary.platform.memory_model import access_ns

        store = nodes.graph.types[at] == NodeType.MEM_STORE_NODE
        with _placed(self._platform, "remote_memory"):
            took = access_ns(self._model, memory.kind, view.size[which], store)
        if (took >= LIMIT).any():
            node = nodes.graph.node(int(at[np.argmax(took)]))
            raise InputError(f"{node} takes longer than can be counted; expected less than {LIMIT:.2g} ns")
        node_of_rank = rank // max(memory.npus_per_node, 1)
        items[which, lk.I_SERVER] = {"npu": -1, "machine": 0, "node": node_of_rank}[self._model.per]
        items[which, lk.I_SERVICE] = np.ceil(took).astype(np.int64) if took.dtype.kind == "f" else took


Groups = list[tuple[Ints, Ints]]
"""Groups that access a memory at once: their members, and the place of each in the communicators of its rank."""


class GroupPlaces:
    """How many groups of each kind there are in the machine, and in each node."""

    def __init__(self, classes: Ints, per_node: int, groups: Groups) -> None:
        self._classes = classes
        self._places: dict[bytes, Ints] = {}
        self.alike: dict[bytes, int] = {}
        """Groups of a kind."""
        nodes = -(-len(classes) // per_node) if per_node else 1
        for members, slots in groups:
            kind = self.kind(members, slots)
            self.alike[kind] = self.alike.get(kind, 0) + 1
            places = self._places.setdefault(kind, np.zeros(nodes, np.int64))
            places[np.unique(members // per_node) if per_node else [0]] += 1

    def kind(self, members: Ints, slots: Ints) -> bytes:
        """Return a key that groups have in common whose members are of the same classes."""
        # Class and slot as one number, sorted: which member is where in the group does not matter.
        found: bytes = np.sort(self._classes[members] * (1 << 32) + slots).tobytes()
        return found

    def in_node(self, kind: bytes, node: int) -> int:
        """Return how many groups of a kind have members in a node."""
        return int(self._places[kind][node])

    def even(self, types: Ints) -> bool:
        """Tell whether nodes of one type have members of as many groups of each kind."""
        first = np.unique(types, return_index=True)[1][types]
        return all((places == places[first]).all() for places in self._places.values())


class MemoryPorts:
    """The ports of a hierarchical memory, numbered from `first` on, as the classes of ranks see them."""

    def __init__(
        self, platform: Platform, classes: Ints, representatives: Ints, first: int, groups: Groups
    ) -> None:
        self._stages = platform.remote_memory.stages
        self._sizes = np.bincount(classes)
        per_node = max(platform.remote_memory.npus_per_node, 1)
        # Without stages nobody asks for them.
        types = node_types(classes if self._stages else classes[:0], per_node)
        of_representative = representatives // per_node if self._stages else types
        self._node, self._per_node, self._classes = types[of_representative], per_node, classes
        self._groups = GroupPlaces(classes, platform.remote_memory.npus_per_node, groups)
        self._in_node = [
            int((classes[rank // per_node * per_node :][:per_node] == cls).sum())
            for cls, rank in enumerate(representatives.tolist())
        ]
        # Classes, types of nodes and the machine stand for all NPUs, nodes and the machine.
        units = {"npu": len(representatives), "node": int(types.max(initial=0)) + 1, "machine": 1}
        counts = [units[stage.per] for stage in self._stages for _ in range(2)]
        self._first = first + np.cumsum([0, *counts], dtype=np.int64)
        self.count = sum(counts)

    def used(self, cls: int, store: bool) -> list[tuple[int, int]]:
        """Return (port, ranks that a rank of class `cls` stands for there) of every stage."""
        found = []
        for number, stage in enumerate(self._stages):
            unit, weight = {
                "npu": (cls, 1),
                "node": (int(self._node[cls]), self._in_node[cls]),
                "machine": (0, int(self._sizes[cls])),
            }[stage.per]
            found.append((int(self._first[2 * number + store]) + unit, weight))
        return found

    def together(self, members: Ints, slots: Ints, store: bool) -> list[tuple[int, int]]:
        """Return the same for a group that accesses it at once: what its members share is used once."""
        kind = self._groups.kind(members, slots)
        found: dict[int, int] = {}
        for rank in members.tolist():
            ports = self.used(int(self._classes[rank]), store)
            for stage, (port, _) in zip(self._stages, ports, strict=True):
                if stage.per == "npu":
                    found[port] = 1
                elif stage.per == "machine":
                    found[port] = self._groups.alike[kind]
                elif port not in found:
                    found[port] = self._groups.in_node(kind, rank // self._per_node)
        return sorted(found.items())

    def rates(self, units: Callable[[float], int]) -> Ints:
        """Return the rates of all ports; `units` makes bytes per ns what the program counts in."""
        each = [units(stage.count * speed(stage, store)) for stage in self._stages for store in (False, True)]
        return np.repeat(np.array(each, np.int64), np.diff(self._first))


def node_types(classes: Ints, per_node: int) -> Ints:
    """Return a number for every node, equal where as many ranks of the same classes are in it."""
    known: dict[tuple[int, ...], int] = {}
    nodes = range(0, len(classes), per_node)
    keys = (tuple(np.sort(classes[at : at + per_node]).tolist()) for at in nodes)
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def refined(special: Ints, partition: Callable[[Ints], Ints], shared: Sequence[tuple[int, Groups]]) -> Ints:
    """Return classes whose ranks share their nodes with as many ranks and groups of the same classes.

    Where groups lie in nodes in ways that classes do not tell, every rank is its own class.

    Args:
        special: A number per rank by which ranks differ to begin with.
        partition: Returns the classes for such numbers.
        shared: For each thing that NPUs of a node share: their number, and the groups that use it at once.
    """
    classes = partition(special)
    # Refinement to a fixed point: classes split by the type of their node, which may split the types.
    while shared:
        each = [node_types(classes, per_node) for per_node, _ in shared]
        ranks = np.arange(len(classes))
        places = [types[ranks // per_node] for types, (per_node, _) in zip(each, shared, strict=True)]
        columns = np.stack([classes, *places])
        finer = partition(np.unique(columns, axis=1, return_inverse=True)[1].ravel())
        if finer.max() == classes.max():
            for types, (per_node, groups) in zip(each, shared, strict=True):
                if not GroupPlaces(classes, per_node, groups).even(types):
                    return ranks
            break
        classes = finer
    return classes


def uneven(members: Ints, per_node: int) -> bool:
    """Tell whether a group has more members in one of its nodes than in another."""
    counts = np.unique(members // per_node, return_counts=True)[1]
    return bool(counts.min() < counts.max())


class HostPorts:
    """The host paths of nodes, numbered from `first` on; nodes of a type share one."""

    def __init__(self, platform: Platform, classes: Ints, first: int, groups: Groups) -> None:
        """Number the ports.

        Args:
            platform: The machine.
            classes: Of ranks.
            first: Number of the first port.
            groups: That cross hosts.
        """
        choice = platform.collectives.fit
        self.bandwidth = choice.host.bandwidth if choice and choice.host else 0.0
        self._first, self.count = first, 0
        if not groups:
            return
        self._per_node = node_size(platform)
        self._types = node_types(classes, self._per_node)
        self.count = int(self._types.max()) + 1
        self._groups = GroupPlaces(classes, self._per_node, groups)

    def used(self, members: Ints, slots: Ints) -> list[tuple[int, int, int]]:
        """Return (port, members in its node, groups that this one stands for there) of every type of node."""
        kind = self._groups.kind(members, slots)
        nodes, counts = np.unique(members // self._per_node, return_counts=True)
        found = {
            (self._first + int(self._types[node]), count, self._groups.in_node(kind, node))
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True)
            # A group with one member in a node has a NIC near it.
            if count > 1
        }
        return sorted(found)

    def rates(self, units: Callable[[float], int]) -> Ints:
        """Return the rates of all ports; `units` makes bytes per ns what the program counts in."""
        return np.full(self.count, units(self.bandwidth) if self.count else 0, np.int64)
