"""Turn the final state of a run into a `Timeline`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common import layout as lk
from armillary.engine.common.demands import Demands
from armillary.engine.common.items import View
from armillary.engine.common.lowered import NO_NETWORK, Run, Simulated
from armillary.engine.common.nodes import OPERATION
from armillary.engine.common.timeline import KINDS, GraphTable, Timeline, sum_by_dimension
from armillary.platform.kernels import PRECISIONS
from armillary.platform.model import Platform
from armillary.trace import Graph, NodeType
from armillary.trace.columns import COMMUNICATION, distinct_columns

Ints = NDArray[np.int64]
_KIND_OF = {
    lk.COLLECTIVE: "collective",
    lk.SEND: "send",
    lk.RECV: "recv",
    lk.MEMORY: "memory",
    lk.TRANSFER: "memory",
    lk.STORE: "memory",
    lk.SKIP: "none",
}


class LazyTables(Sequence[GraphTable]):
    """Graph tables that are made on first use: the names of many nodes take time."""

    def __init__(self, makers: Sequence[Callable[[], GraphTable]]) -> None:
        self._makers = makers
        self._made: dict[int, GraphTable] = {}

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, index: int) -> GraphTable: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[GraphTable]: ...

    def __getitem__(self, index: int | slice) -> GraphTable | Sequence[GraphTable]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index not in self._made:
            self._made[index] = self._makers[index]()
        return self._made[index]

    def __iter__(self) -> Iterator[GraphTable]:
        return (self[i] for i in range(len(self)))


def graph_table(view: View, group_names: Mapping[int, str], of_all: Sequence[str] = ()) -> GraphTable:
    """Return what reports need of the graph of a view, in graph order; see `Simulated` for names of groups.

    Runs of one trace on machines that differ in their network share it.
    """
    key = "table", tuple([group_names.get(call.comm) for call in view.calls]), tuple(of_all)
    if key not in view.kept:
        view.kept[key] = _graph_table(view, group_names, of_all)
    found: GraphTable = view.kept[key]
    return found


def _graph_table(view: View, group_names: Mapping[int, str], of_all: Sequence[str]) -> GraphTable:
    nodes = view.nodes
    graph, order = nodes.graph, nodes.order
    kind = np.zeros(graph.n_nodes, np.int8)
    # From codes of the kernel to indices of `KINDS`; 16 is above any code.
    kind_of = np.zeros(16, np.int8)
    for code, name in _KIND_OF.items():
        kind_of[code] = KINDS.index(name)
    issue_kind = kind_of[nodes.kind[: graph.n_nodes]]  # without the inner nodes of custom collectives
    # Kinds say how a node was simulated. FIXED may be a kernel, or replayed communication: its type tells.
    fixed = nodes.kind[: graph.n_nodes] == lk.FIXED
    cpu = graph.ints("is_cpu_op", 0)[order] != 0
    types = graph.types[order]
    by_type = {
        NodeType.COMP_NODE: "compute",
        NodeType.COMM_COLL_NODE: "collective",
        NodeType.COMM_SEND_NODE: "send",
        NodeType.COMM_RECV_NODE: "recv",
        NodeType.MEM_LOAD_NODE: "memory",
        NodeType.MEM_STORE_NODE: "memory",
        NodeType.STORAGE_NODE: "memory",
        NodeType.CHECKPOINT_NODE: "memory",
    }
    for node_type, name in by_type.items():
        issue_kind[fixed & (types == node_type)] = KINDS.index(name)
    accesses = np.isin(types, (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE))
    # In-switch accesses run as collectives, but reports show them as memory.
    issue_kind[accesses & (issue_kind == KINDS.index("collective"))] = KINDS.index("memory")
    issue_kind[fixed & cpu] = KINDS.index("cpu")
    kind[order] = issue_kind
    outer = nodes.items < graph.n_nodes
    positions = order[nodes.items[outer]]
    size = np.zeros(graph.n_nodes, np.int64)
    size[positions] = view.size[outer]
    replayed = np.zeros(graph.n_nodes, np.bool_)
    replayed[order] = fixed & ~cpu & np.isin(types, COMMUNICATION)
    if replayed.any():
        size[replayed] = graph.ints("comm_size", 0)[replayed]
    peer = np.full(graph.n_nodes, -1, np.int32)
    peer[positions] = view.peer[outer]
    ptr, parent = graph.parents()
    codes, precisions = graph.strings("precision")
    known = [PRECISIONS.index(text) if text in PRECISIONS else -1 for text in precisions]
    # The view keeps this table: a table that held the view would keep both until Python looks for cycles.
    apart = replace(view)
    return GraphTable.lazily(
        {"name": partial(_names, graph), "label": partial(_labels, apart, group_names, of_all, replayed)},
        node_id=graph.ids, kind=kind, size=size, flops=graph.ints("num_ops", 0),
        parent_ptr=ptr, parent=parent, stream=graph.ints("stream", -1), peer=peer,
        precision=np.array([*known, -1], np.int8)[codes],
        moved=np.where(graph.types == NodeType.COMP_NODE, graph.ints("tensor_size", 0), 0),
    )  # fmt: skip


def _names(graph: Graph) -> NDArray[np.str_]:
    name_code, names = graph.name_codes()
    return np.array(names or [""], dtype=np.str_)[name_code]


def _labels(
    view: View, group_names: Mapping[int, str], of_all: Sequence[str], replayed: NDArray[np.bool_]
) -> NDArray[np.str_]:
    """Return `GraphTable.label`; `replayed` nodes take their recorded time."""
    nodes = view.nodes
    graph = nodes.graph
    labels = [
        call.operation + (f"@{group_names.get(call.comm, call.comm)}" if call.comm else "")
        for call in view.calls
    ]
    label = np.full(graph.n_nodes, "", dtype=f"<U{max(map(len, labels), default=1)}")
    outer = nodes.items < graph.n_nodes
    label[nodes.order[nodes.items[outer]]] = np.array([*labels, ""], label.dtype)[view.call[outer]]
    if of_all:
        label = _named(graph, label, of_all)
    return np.where(replayed, _recorded_labels(graph), label) if replayed.any() else label


def _named(graph: Graph, label: NDArray[np.str_], of_all: Sequence[str]) -> NDArray[np.str_]:
    """Return labels with the names of groups of all ranks, as smaller groups of these names have them."""
    codes, names = graph.strings("pg_name")
    suffix = np.array([*(f"@{name}" if name in of_all else "" for name in names), ""], np.str_)[codes]
    plain = (label != "") & (np.char.find(label, "@") < 0)
    found: NDArray[np.str_] = np.where(plain, np.char.add(label, suffix), label)
    return found


def _recorded_labels(graph: Graph) -> NDArray[np.str_]:
    """Return the labels of collectives that take their recorded duration, in graph order."""
    known = {int(kind): name for kind, name in OPERATION.items()}
    groups, names = graph.strings("pg_name")
    found = [
        known.get(kind, "") + (f"@{names[group]}" if group >= 0 and names[group] not in ("", "0") else "")
        if type_ == NodeType.COMM_COLL_NODE
        else ""
        for kind, group, type_ in zip(
            graph.ints("comm_type", -1).tolist(), groups.tolist(), graph.types.tolist(), strict=True
        )
    ]
    return np.array(found or [""], np.str_)[: graph.n_nodes]


def timeline_of(lowered: Simulated, run: Run, platform: Platform, info: dict[str, Any]) -> Timeline:
    """Return the timeline of a finished run; `info` is added to `Timeline.info`."""
    layout = lowered.layout
    index: dict[int, int] = {}
    distinct: list[View] = []
    for view in lowered.views:
        # Classes that share a view share its table.
        if id(view) not in index:
            index[id(view)] = len(distinct)
            distinct.append(view)
    counts = [view.nodes.graph.n_nodes for view in lowered.views]
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    start, end = _spans(lowered, run, ptr)
    makers = [partial(graph_table, view, lowered.group_names, lowered.names_of_all) for view in distinct]
    needs = Demands(platform)
    calls = partial(_calls, lowered, needs)
    return Timeline.lazily(
        {
            # Made on demand: a run of many chunks has far more phases than nodes, and few reports need them.
            "phase_": partial(_phases, lowered, run), "call_": calls, "cut_": calls,
            "node_call": lambda: {"node_call": lowered.node_call(ptr)},
            "node_late": lambda: {"node_late": _late(lowered, run, ptr, start)},
            "node_least": lambda: {"node_least": lowered.least(needs, len(start))},
        },
        partial(_traffic, lowered, run, len(platform.dimensions)) if lowered.rows_follow_from_plans else None,
        rank_class=lowered.classes.astype(np.int32),
        representative=lowered.representatives,
        class_graph=np.array([index[id(view)] for view in lowered.views], np.int32),
        finish=run.table("FINISH").copy(),
        finish_place=lowered.finish_place(run),
        graphs=LazyTables(makers),
        node_ptr=ptr,
        node_start=start,
        node_end=end,
        network=lowered.network_use(run),
        info={
            "tick_ns": 1,
            "npus": platform.npus,
            "dimensions": [
                {
                    "name": d.name, "topology": d.topology, "size": d.size, "bandwidth_bytes_per_ns": d.bandwidth,
                    "latency_ns": d.latency,
                }
                for d in platform.dimensions
            ],
            "groups": lowered.groups,
            "warnings": [*platform.warnings, *lowered.warnings],
            "events": run.scalar(layout.V_EVENTS),
            **info,
        },
    )  # fmt: skip


def _spans(lowered: Simulated, run: Run, ptr: Ints) -> tuple[Ints, Ints]:
    """Return start and end of all nodes, in graph order by class; `ptr` says where those of each class begin."""
    layout, orders = lowered.layout, [view.nodes.order for view in lowered.views]
    begun, ended = run.table("NODE_START"), run.table("NODE_END")
    first = lowered.tables["RANKS"][layout.R_STATE :: layout.R_COLUMNS]
    # Mostly nodes are in order: then these are the columns of the state.
    ordered = all(
        np.array_equal(each, np.arange(len(each))) for each in {id(each): each for each in orders}.values()
    )
    if ordered and len(begun) == ptr[-1] and np.array_equal(first, ptr[:-1]):
        return begun, ended
    start, end = np.full((2, ptr[-1]), -1, np.int64)
    for c, order in enumerate(orders):
        part = slice(int(first[c]), int(first[c] + ptr[c + 1] - ptr[c]))
        at = slice(int(ptr[c]), int(ptr[c + 1]))
        start[at][order], end[at][order] = begun[part], ended[part]
    return start, end


def _calls(lowered: Simulated, needs: Demands) -> dict[str, NDArray[Any]]:
    """Return the columns of kinds of collectives, and of cuts."""
    return needs.columns(lowered.calls())


def _late(lowered: Simulated, run: Run, ptr: Ints, start: Ints) -> Ints:
    """Return `Timeline.node_late`: members of a collective are known by communicator and number of the call."""
    late = np.full(len(start), -1, np.int64)
    layout = lowered.layout
    which = np.flatnonzero(lowered.is_collective & (lowered.item_position >= 0))
    if not len(which):
        return late
    node = ptr[lowered.items[which, layout.I_RANK]] + lowered.item_position[which]
    comm = lowered.items[which, layout.I_COMM]
    # Those who meet nobody of another class wait for nobody.
    several = np.zeros(max(lowered.comm_ordinals, default=0) + 1, np.bool_)
    several[[number for number, members in lowered.comm_ordinals.items() if len(members) > 1]] = True
    others = several[comm]
    alone = node[~others]
    late[alone] = np.where(start[alone] >= 0, alone, -1)
    which, node = which[others], node[others]
    calls = np.stack([comm[others], run.table("ITEM_INSTANCE")[which]])
    begun = start[node] >= 0
    node, calls = node[begun], calls[:, begun]
    _, call = distinct_columns(calls)
    order = np.argsort(start[node], kind="stable")
    last = np.zeros(int(call.max(initial=-1)) + 1, np.int64)
    last[call[order]] = node[order]  # of equal calls the last assignment stays: that of the latest member
    found = last[call]
    late[node] = np.where(start[found] > start[node], found, node)
    return late


def _phases(lowered: Simulated, run: Run) -> dict[str, NDArray[Any]]:
    lk = lowered.layout
    collective = lowered.items[lowered.is_collective]
    item, of_item, place, chunk, step, first = _rows(lowered, run, np.flatnonzero(lowered.is_collective))
    table = _table(lowered)
    if (first < 0).any():
        # Chunks that there might have been.
        item, of_item, place, chunk, step, first = (
            a[first >= 0] for a in (item, of_item, place, chunk, step, first)
        )
    start, end = lowered.ticks_of_phases(run, item, chunk, place, first)
    found = {
        "phase_class": collective[of_item, lk.I_RANK].astype(np.int32),
        "phase_node": lowered.item_position[lowered.is_collective][of_item].astype(np.int32),
        "phase_chunk": chunk.astype(np.int32),
        "phase_index": step.astype(np.int16),
        "phase_dim": table[first, 0].astype(np.int16),
        "phase_operation": table[first, 1].astype(np.int8),
        "phase_bytes": table[first, 2],
        "phase_port_bytes": table[first, 3],
        "phase_start": start,
        "phase_end": end,
    }
    retained = found["phase_dim"] != NO_NETWORK
    return found if retained.all() else {name: column[retained] for name, column in found.items()}


def _traffic(lowered: Simulated, run: Run, dimensions: int) -> NDArray[np.int64]:
    """Return `Timeline.traffic` without a row for each phase: collectives of one plan send the same."""
    lk = lowered.layout
    at = np.flatnonzero(lowered.is_collective)
    one, kind = distinct_columns(np.stack([lowered.items[at, lk.I_PLAN], lowered.items[at, lk.I_CHUNKS]]))
    kinds, classes = len(one), len(lowered.representatives)
    _, of_kind, _, _, _, first = _rows(lowered, run, at[one])
    table = _table(lowered)[first]
    retained = table[:, 0] != NO_NETWORK
    each = sum_by_dimension(of_kind[retained], table[retained, 0], table[retained, 2:], kinds, dimensions)
    # (classes, kinds) times (kinds, dimensions, 2): no row per phase is ever made.
    calls = np.bincount(lowered.items[at, lk.I_RANK] * kinds + kind, minlength=classes * kinds)
    calls = calls.reshape(classes, kinds)
    found: NDArray[np.int64] = np.einsum("ck,kds->cds", calls, each)
    return found


def _table(lowered: Simulated) -> NDArray[np.int64]:
    return np.array(lowered.phase_rows(), np.int64).reshape(-1, 4)


def _rows(lowered: Simulated, run: Run, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return the phases of the collectives at places `at` of the items.

    Their items, which one of `at` that is, their place in the tables of rows, chunk, step, and row of `phase_rows`.
    """
    lk, plans = lowered.layout, lowered.plans
    collective = lowered.items[at]
    steps = np.array([len(plan.phases) for plan in plans], np.int64)
    plan = collective[:, lk.I_PLAN]
    rows = collective[:, lk.I_CHUNKS] * (steps[plan] if len(plans) else 0)
    of_item = np.repeat(np.arange(len(collective)), rows)
    # Number of the row within its item: chunk * steps + step.
    within = np.arange(len(of_item)) - np.repeat(np.cumsum(rows) - rows, rows)
    place = collective[of_item, lk.I_ROW] + within
    width = steps[plan[of_item]] if len(plans) else np.zeros(0, np.int64)
    chunk, step = (within // width, within % width) if len(within) else (within, within)
    item = at[of_item]
    first = lowered.rows_of_phases(run, item, chunk, place, step) if len(within) else within
    return item, of_item, place, chunk, step, first
