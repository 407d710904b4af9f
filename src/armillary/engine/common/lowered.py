"""The base of lowered programs of both engines, their finished runs, and the tables while they grow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.tables import Layout
from armillary.engine.common import layout as lk
from armillary.engine.common.demands import Demands
from armillary.engine.common.items import View
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.common.nodes import Nodes

if TYPE_CHECKING:
    from armillary.engine.transport.use import NetworkUse


Ints = NDArray[np.int64]
FIRST_WORDS = 1 << 10
"""Integers of working memory at first, beside what the first events take."""
BUDGET = 2_000_000
"""Events between two returns to Python, which is when an interrupt is seen."""


@dataclass
class Run:
    """A finished run: the final state and where its tables are."""

    state: Any
    place: dict[str, slice]

    def table(self, name: str) -> Ints:
        """Return one table of the final state."""
        return np.asarray(self.state[self.place[name]], np.int64)

    def scalar(self, place: int) -> int:
        """Return one scalar of the final state."""
        return int(self.state[place])


NO_NETWORK = -2
"""Dimension of phases that are in no network, but in a memory: timelines leave them out."""


@dataclass(kw_only=True)
class Simulated(ABC):
    """A program that can be run and whose result a timeline can show."""

    tables: dict[str, Ints]
    """Tables of the program."""
    scalars: dict[int, int]
    sizes: dict[str, int]
    """Lengths of the tables of the state."""
    classes: Ints
    representatives: Ints
    views: list[View]
    """View of each class."""
    plans: Sequence[Any]
    """Plans of the collectives, by number; each has `phases` and `rows`."""
    items: Ints
    """Table ITEMS as a matrix."""
    comm_ordinals: dict[int, dict[int, int]]
    """Per quotient communicator: class -> its counter of collectives in ORDINALS, -1: it runs none."""
    groups: dict[str, int]
    """Size of every communicator that is used, by the number of the group, or by its name."""
    group_names: dict[int, str] = field(default_factory=dict)
    """Name of each group that has one: its axis set."""
    names_of_all: tuple[str, ...] = ()
    """Names that the trace uses for groups of all ranks, besides the empty name."""
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def is_collective(self) -> NDArray[np.bool_]:
        """Whether each item is a collective."""
        return join([view.call >= 0 for view in self.views], np.bool_)

    @cached_property
    def item_position(self) -> Ints:
        """Position in its graph of the node of each item, -1 for inner nodes of custom collectives."""
        return join([_positions(view) for view in self.views], np.int64)

    @property
    @abstractmethod
    def layout(self) -> ModuleType:
        """The module that names the tables and their columns."""

    @property
    def rows_follow_from_plans(self) -> bool:
        """Whether all collectives of a plan have the same phases."""
        return True

    holds = "chunks held in queues of {} on other ranks: each rank runs its chunks in another order"
    """Text of errors: what a rank waits for in a collective that all members have joined."""

    def finish_place(self, run: Run) -> Ints:
        """Return `Timeline.finish_place`; empty where the order within a tick is not known."""
        return np.zeros(0, np.int64)

    def finished(self, run: Run) -> bool:
        """Tell whether all ranks have run all nodes; if not, `diagnose` says why."""
        return run.scalar(self.layout.V_STATUS) == lk.OK and not run.table("LEFT").any()

    def explain(self, run: Any) -> str:
        """Return further lines of the error for a run that cannot finish, or an empty string."""
        return ""

    def rows_of_phases(self, run: Any, item: Ints, chunk: Ints, place: Ints, step: Ints) -> Ints:
        """Return the rows of `phase_rows` that steps of chunks of items are; `place` is theirs in ROW_START."""
        # Rows of plans one after the other; those of one plan by step, because all its chunks have the same
        # phases.
        rows = np.array([0, *(len(plan.rows()) for plan in self.plans)], np.int64)
        first: Ints = np.cumsum(rows)[self.items[item, self.layout.I_PLAN]] + step
        return first

    def ticks_of_phases(self, run: Any, item: Ints, chunk: Ints, place: Ints, row: Ints) -> tuple[Ints, Ints]:
        """Return start and end of chunks of items in a phase; `place` is theirs in ROW_START, `row` in `phase_rows`."""
        return run.table("ROW_START")[place], run.table("ROW_END")[place]

    def phase_rows(self) -> list[tuple[int, int, int, int]]:
        """Return (dimension, operation, bytes sent per NPU, bytes through its port) of the phases of all plans."""
        return [row for plan in self.plans for row in plan.rows()]

    def network_use(self, run: Any) -> NetworkUse | None:
        """Return the use of the links; None where messages cross no links."""
        return None

    def least(self, needs: Demands, nodes: int) -> Ints:
        """Return `Timeline.node_least` of so many nodes."""
        return np.zeros(nodes, np.int64)

    @abstractmethod
    def calls(self) -> list[tuple[int, CollectiveCall, Communicator]]:
        """Return of each plan the number of its quotient communicator, its call, and the members."""

    def node_call(self, first: Ints) -> Ints:
        """Return the plan of the collective that each node is, in graph order by class; -1: none.

        `first` is where the nodes of each class begin, and their number.
        """
        found = np.full(int(first[-1]), -1, np.int64)
        which = np.flatnonzero(self.is_collective & (self.item_position >= 0))
        rank, plan = self.items[which, self.layout.I_RANK], self.items[which, self.layout.I_PLAN]
        found[first[rank] + self.item_position[which]] = plan
        return found


def _positions(view: View) -> Ints:
    order, items = view.nodes.order, view.nodes.items
    # Inner nodes of custom collectives are numbered behind those of the graph.
    outer = items < len(order)
    return np.where(outer, order[np.where(outer, items, 0)], -1) if len(items) else items


def join(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """Return the parts one after the other; of none, an empty array of `dtype`."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def as_table(value: Any) -> Ints:
    """Return a list of numbers or of arrays, or a matrix, as a flat contiguous int64 table."""
    # A list of arrays grows without copies while ranks are added; it is joined once, here.
    if _is_parts(value):
        value = np.concatenate(value)
    return np.ascontiguousarray(np.asarray(value, np.int64).ravel())


def side_by_side(layout: Layout, parts: Mapping[str, Any], others: Mapping[str, int]) -> dict[str, Ints]:
    """Return tables as `Layout.reserve` does, some of them filled.

    Args:
        layout: Of the program.
        parts: Values of tables, as `as_table` takes them; matrices in lists, too.
        others: Lengths of tables that the caller fills.
    """
    pieces = {name: value if _is_parts(value) else [as_table(value)] for name, value in parts.items()}
    lengths = {name: sum(piece.size for piece in found) for name, found in pieces.items()}
    tables = layout.reserve({**lengths, **others})
    for name, found in pieces.items():
        at = 0
        for piece in found:
            tables[name][at : at + piece.size] = piece.ravel()
            at += piece.size
    return tables


def _is_parts(value: Any) -> bool:
    """Tell whether a table is given as a list of arrays."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], np.ndarray)


@dataclass
class Tables:
    """Growing columns and running totals of the per-rank part of a program."""

    ranks: list[int] = field(default_factory=list)
    items: list[Ints] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    comm_times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    n_items: int = 0
    states: int = 0
    streams: int = 0
    rows: int = 0
    bases: int = 0
    ordinals: int = 0
    instances: int = 0
    instance_items: int = 0
    arrived: int = 0
    pairs: int = 0
    paces: list[Ints] = field(default_factory=list)
    rows_at: dict[tuple[int, ...], int] = field(default_factory=dict)
    pace_at: dict[int, int] = field(default_factory=dict)
    lowered: list[Nodes] = field(default_factory=list)
    """Keeps alive what `rows_at` and `pace_at` know by identity."""
    shapes: list[Nodes] = field(default_factory=list)
    """Of these the ones with rows of their own."""
    n_nodes: int = 0
    n_paces: int = 0
    comm_ordinals: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    ordinal_at: dict[tuple[int, int], int] = field(default_factory=dict)
    channel_at: dict[Any, int] = field(default_factory=dict)

    def graph(self, nodes: Nodes) -> tuple[int, int]:
        """Add the rows and durations of a graph; returns the number of the first row, and of the first duration."""
        # By identity: ranks whose nodes share columns share their rows.
        columns = (nodes.kind, nodes.slot, nodes.item, nodes.indegree, nodes.child_ptr, nodes.children)
        shape, pace = tuple(map(id, columns)), id(nodes.ticks)
        if shape not in self.rows_at or pace not in self.pace_at:
            self.lowered.append(nodes)
        if pace not in self.pace_at:
            self.pace_at[pace] = self.n_paces
            self.paces.append(nodes.ticks)
            self.n_paces += len(nodes.ticks)
        if shape not in self.rows_at:
            self.rows_at[shape] = self.n_nodes
            self.shapes.append(nodes)
            self.n_nodes += len(nodes.kind)
        return self.rows_at[shape], self.pace_at[pace]

    def share_paces(self, paces: Ints) -> None:
        """Let nodes read their durations in the table PACES, so that these stay in memory once."""
        for nodes in self.lowered:
            first = self.pace_at[id(nodes.ticks)]
            nodes.ticks = paces[first : first + len(nodes.ticks)]

    def lengths_of_graphs(self) -> dict[str, int]:
        """Return the lengths of the tables of `rows_of_graphs`."""
        children = sum(len(nodes.children) for nodes in self.shapes)
        return {"NODES": self.n_nodes * lk.N_COLUMNS, "CHILDREN": children}

    def rows_of_graphs(self, tables: dict[str, Ints]) -> None:
        """Fill in the tables NODES and CHILDREN of all graphs that were added."""
        found = tables["NODES"].reshape(-1, lk.N_COLUMNS)
        at = children = 0
        for nodes in self.shapes:
            rows = found[at : at + len(nodes.kind)]
            rows[:, lk.N_KIND], rows[:, lk.N_SLOT] = nodes.kind, nodes.slot
            rows[:, lk.N_ITEM], rows[:, lk.N_INDEGREE] = nodes.item, nodes.indegree
            # CSR pointers of one graph, shifted to its place in the table of all.
            rows[:, lk.N_CHILD] = nodes.child_ptr[:-1] + children
            rows[:, lk.N_CHILDREN] = np.diff(nodes.child_ptr)
            at += len(rows)
            tables["CHILDREN"][children : children + len(nodes.children)] = nodes.children
            children += len(nodes.children)

    def ordinal(self, cls: int, comm: int) -> int:
        """Return the counter of the collectives of a class in a communicator."""
        if (cls, comm) not in self.ordinal_at:
            self.ordinal_at[(cls, comm)] = self.ordinals
            self.comm_ordinals[comm][cls] = self.ordinals
            self.ordinals += 1
        return self.ordinal_at[(cls, comm)]

    def channel(self, key: tuple[Any, ...], sends: int, receives: int) -> int:
        """Return the number of a quotient channel."""
        if key not in self.channel_at:
            self.channel_at[key] = len(self.channel_at)
            self.channels += [self.pairs, key[1], key[2]]
            # One row for each message, also where a send or a receive lacks its partner.
            self.pairs += max(sends, receives)
        return self.channel_at[key]
