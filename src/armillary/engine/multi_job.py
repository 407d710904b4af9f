"""Several jobs on one machine: how long each takes next to the others, and how long alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.counts import MOST_PAIRS, check_count
from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.engine import simulate
from armillary.engine.common.assumptions import memory_of
from armillary.engine.common.result import LazyTables
from armillary.engine.common.timeline import GraphTable, Timeline
from armillary.platform.files.native import platform_of
from armillary.platform.profiles import NOT_ASTRA_SIM
from armillary.platform.topology.graph import ranges
from armillary.trace import Graph, NodeType
from armillary.trace.compose import Composed, PlacedJob, compose

if TYPE_CHECKING:
    from armillary.base.document import Source
    from armillary.platform.model import Platform


@dataclass(frozen=True, eq=False)
class JobRun:
    """One job of a `JobsResult`; ticks of the machine, but for its own timelines."""

    name: str
    npus: tuple[int, ...]
    """Of every rank."""
    arrival: int
    start: int
    """When its first node ran."""
    end: int
    """When its last node ended."""
    shares: dict[str, int]
    """Other jobs present between its arrival and end -> how many of its NPUs, with their ports, they use."""
    timeline: Timeline
    """Its ranks alone, in ticks since its arrival."""
    alone: Timeline
    """The same with no other job on the machine."""

    @property
    def duration(self) -> int:
        """Ticks from arrival to end."""
        return self.end - self.arrival

    @property
    def slowdown(self) -> float:
        """`duration` relative to that of the job alone on the same NPUs; 1 for a job that takes no time."""
        return self.duration / self.alone.total_ticks if self.alone.total_ticks else 1.0


@dataclass(frozen=True, eq=False)
class JobsResult:
    """What `simulate_jobs` returns."""

    timeline: Timeline
    """The whole machine, its NPUs as ranks; names of nodes begin with that of their job."""
    jobs: tuple[JobRun, ...]
    """In the order given."""

    def __getitem__(self, name: str) -> JobRun:
        """Return a job by its name.

        Raises:
            InputError: there is no such job.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        known = [job.name for job in self.jobs]
        raise InputError(f"job '{name}': there is no such job; expected one of {known}{nearest(name, known)}")


def simulate_jobs(
    jobs: Sequence[PlacedJob],
    platform: Platform | Source,
    *,
    fold: bool = True,
    network_model: str | None = None,
) -> JobsResult:
    """Simulate several jobs on one machine (profile "physical"), together and each alone on the same NPUs.

    Jobs share what they both use: the ports of common NPUs, their compute units (one kernel at a time per
    stream, see `armillary.trace.compose.compose`), and a remote memory. In the analytical network ports belong to
    NPUs, so jobs on different NPUs do not meet there; where messages cross links they do.

    Args:
        jobs: Traces with the NPU of each rank and an arrival time.
        platform: The machine.
        fold: As in `simulate`.
        network_model: As in `simulate`.

    Raises:
        InputError: a job does not fit, or something in it cannot be simulated.
        StuckError: the simulation cannot finish.
    """
    platform = platform_of(platform)
    for job in jobs if isinstance(jobs, Iterable) else (jobs,):
        if not isinstance(job, PlacedJob):
            raise InputError(f"jobs: got {show(job)}, expected a list of armillary.PlacedJob")
    if platform.profile == "astra-sim":
        raise InputError(f"{platform.source or 'platform'}: several jobs: {NOT_ASTRA_SIM}")
    if platform.groups:
        raise InputError(
            f"{platform.source or 'platform'}: groups: several jobs cannot share them; expected groups in their traces"
        )

    if platform.terms.step:
        raise InputError(
            f"{platform.source or 'platform'}: terms.step: several jobs do not end their steps together; expected it "
            "for one workload only"
        )

    def run(composed: Composed) -> Timeline:
        machine = replace(platform, groups=composed.groups)
        found = simulate(composed.trace, machine, fold=fold, network_model=network_model)
        return with_group_names(found, composed)

    alone: dict[object, Timeline] = {}
    own: list[Timeline] = []
    for job in jobs:
        # Random durations are drawn by the place of a node, so there it matters whether one waits for the arrival.
        arrival = job.arrival_ns if platform.jitter else 0
        # Equal jobs on the same NPUs take the same time alone: simulated once.
        key = (id(job.trace), tuple(job.npus), arrival)
        if key not in alone:
            lone = compose([replace(job, arrival_ns=arrival)], platform.npus)
            alone[key] = Parts(run(lone), lone).job(0)
            alone[key].info.update(memory_of(job.trace, platform))
        own.append(alone[key])
    users = Counter(npu for job in jobs for npu in job.npus)
    # Where jobs share an NPU, the ready node that would start first alone runs first (`compose`).
    starts = {
        (j, rank): own[j].spans(int(own[j].rank_class[rank]))[0] + job.arrival_ns
        for j, job in enumerate(jobs)
        for rank, npu in enumerate(job.npus)
        if users[npu] > 1
    }
    composed = compose(jobs, platform.npus, starts)
    whole = run(composed)
    whole.info["warnings"] += composed.warnings
    of_jobs = Parts(whole, composed)
    parts = [of_jobs.job(j) for j in range(len(jobs))]
    for job, part in zip(jobs, parts, strict=True):
        part.info.update(memory_of(job.trace, platform))
    ends = [job.arrival_ns + part.total_ticks for job, part in zip(jobs, parts, strict=True)]
    runs = []
    for j, (job, part, shares) in enumerate(zip(jobs, parts, _shares(jobs, ends), strict=True)):
        start = int(np.min(part.node_start[part.node_start >= 0], initial=part.total_ticks)) + job.arrival_ns
        runs.append(JobRun(job.name, tuple(job.npus), job.arrival_ns, start, ends[j], shares, part, own[j]))
    return JobsResult(whole, tuple(runs))


def _shares(jobs: Sequence[PlacedJob], ends: Sequence[int]) -> list[dict[str, int]]:
    """Return, for each job, the jobs that share NPUs with it while it runs, and the number of these NPUs."""
    begin, end = np.array([job.arrival_ns for job in jobs], np.int64), np.array(ends, np.int64)
    of_npu: dict[int, list[int]] = {}
    for j, job in enumerate(jobs):
        for npu in job.npus:
            of_npu.setdefault(npu, []).append(j)
    there = {npu: np.array(found, np.int64) for npu, found in of_npu.items()}
    shares, pairs = [], 0
    for j, job in enumerate(jobs):
        found = [np.zeros(0, np.int64)]
        for npu in job.npus:
            others = there[npu]
            # Two half-open intervals overlap.
            found.append(others[(begin[others] < end[j]) & (begin[j] < end[others]) & (others != j)])
        which, count = np.unique(np.concatenate(found), return_counts=True)
        pairs += len(which)
        check_count(
            pairs, MOST_PAIRS, "jobs: pairs of them that are on an NPU at once", "fewer jobs at a time"
        )
        shares.append(
            {jobs[other].name: common for other, common in zip(which.tolist(), count.tolist(), strict=True)}
        )
    return shares


Ints = NDArray[np.int64]
_OF_MACHINE = ("call_group", "call_bytes", "call_each", "call_ns", "cut_dims", "cut_latency")


def with_group_names(timeline: Timeline, composed: Composed) -> Timeline:
    """Return the timeline of a machine whose groups have the names of their jobs."""
    names = {str(number): name for number, name in composed.group_names.items()}

    def renamed(number: int) -> GraphTable:
        table = timeline.graphs[number]
        texts, code = np.unique(table.label, return_inverse=True)
        parts = [text.partition("@") for text in texts.tolist()]
        new = [f"{head}{at}{names.get(group, group)}" for head, at, group in parts]
        return replace(table, label=np.array(new or [""], np.str_)[code])

    groups = {names.get(number, number): size for number, size in timeline.info["groups"].items()}
    tables = LazyTables([partial(renamed, number) for number in range(len(timeline.graphs))])
    return replace(timeline, graphs=tables, info={**timeline.info, "groups": groups})


class Parts:
    """The timelines of jobs within that of a machine; what all of them need is found once."""

    def __init__(self, machine: Timeline, composed: Composed) -> None:
        """Take the timeline of the machine, and what runs on it."""
        self._machine, self._composed = machine, composed
        self._by_id: dict[int, Ints] = {}
        # Of every node of the machine, where it is in the job at hand; one more, as index -1 stands for none.
        self._place = np.full(len(machine.node_late) + 1, -1, np.int64)
        node = machine.node_ptr[machine.phase_class] + machine.phase_node
        self._phases = np.argsort(node, kind="stable")
        self._first = np.searchsorted(node[self._phases], np.arange(len(machine.node_late) + 1))
        self._phase_at = node
        self._groups: dict[str, dict[str, int]] = {}
        sizes = machine.info["groups"]
        for job, names in composed.job_groups.items():
            # Groups of a job are named job.group in the machine; in its own timeline the prefix goes.
            own = {name: sizes[f"{job}.{name}"] for name in names if f"{job}.{name}" in sizes}
            self._groups[job] = {**own, **({"0": sizes[job]} if job in sizes else {})}

    def job(self, j: int) -> Timeline:
        """Return the timeline of job `j`: its own ranks, nodes, names and ids, in ticks since its arrival."""
        machine, composed = self._machine, self._composed
        job, places = composed.jobs[j], composed.places[j]
        classes: dict[object, int] = {}
        rank_class = np.zeros(len(places), np.int32)
        retained: list[tuple[int, int, Ints]] = []
        for rank, place in enumerate(places):
            cls = int(machine.rank_class[place.npu])
            if cls not in self._by_id:
                ids = composed.trace.graph(int(machine.representative[cls])).ids
                self._by_id[cls] = np.argsort(ids, kind="stable")
            # NPUs of a class run the same nodes in the order of their ids, not in that of their graphs.
            ids = composed.trace.graph(place.npu).ids[place.first : place.first + place.n_nodes]
            at = self._by_id[cls][ids.astype(np.int64)]
            key = (cls, at.tobytes())
            if key not in classes:
                classes[key] = len(retained)
                retained.append((rank, cls, at))
            rank_class[rank] = classes[key]
        base = [at + int(machine.node_ptr[cls]) for _, cls, at in retained]
        nodes = np.concatenate([np.zeros(0, np.int64), *base])
        start, end = (
            _since(ticks[nodes], job.arrival_ns) for ticks in (machine.node_start, machine.node_end)
        )
        ptr = np.cumsum([0, *(len(at) for _, _, at in retained)])
        makers = [partial(_table, machine, cls, at, job.trace.graph(rank)) for rank, cls, at in retained]
        self._place[nodes] = np.arange(len(nodes))
        found = Timeline(
            rank_class=rank_class,
            representative=np.array([rank for rank, _, _ in retained], np.int64),
            class_graph=np.arange(len(retained), dtype=np.int32),
            finish=np.array([end[a:b].max(initial=0) for a, b in pairwise(ptr.tolist())], np.int64),
            graphs=LazyTables(makers),
            node_ptr=ptr,
            node_start=start,
            node_end=end,
            node_least=machine.node_least[nodes],
            node_late=self._place[machine.node_late[nodes]],
            node_call=machine.node_call[nodes],
            **{name: getattr(machine, name) for name in _OF_MACHINE},
            **self._phases_of(base, ptr, job.arrival_ns),
            info={
                **machine.info,
                **job.trace.about,
                "npus": len(places),
                "groups": self._groups.get(job.name, {}),
            },
        )
        self._place[nodes] = -1
        return found

    def _phases_of(self, base: Sequence[Ints], ptr: Ints, arrival: int) -> dict[str, Any]:
        """Return the phase columns of the nodes of each class of a job."""
        machine = self._machine
        rows, classes, nodes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for number, at in enumerate(base):
            # In the order of the machine's rows.
            found = np.sort(self._phases[ranges(self._first[at], self._first[at + 1] - self._first[at])])
            rows.append(found)
            classes.append(np.full(len(found), number, np.int32))
            nodes.append((self._place[self._phase_at[found]] - ptr[number]).astype(np.int32))
        chosen = np.concatenate(rows)
        same = ("chunk", "index", "dim", "operation", "bytes", "port_bytes")
        columns = {f"phase_{name}": getattr(machine, f"phase_{name}")[chosen] for name in same}
        for name in ("phase_start", "phase_end"):
            columns[name] = _since(getattr(machine, name)[chosen], arrival)
        return columns | {"phase_class": np.concatenate(classes), "phase_node": np.concatenate(nodes)}


def _since(ticks: Ints, arrival: int) -> Ints:
    return np.where(ticks >= 0, ticks - arrival, -1)


def _table(machine: Timeline, cls: int, at: Ints, graph: Graph) -> GraphTable:
    """Return the table of a graph of a job whose nodes are those `at` of a class of the machine."""
    table = machine.table(cls)
    columns: dict[str, Any] = {
        field.name: getattr(table, field.name)[at]
        for field in fields(GraphTable)
        if field.name not in ("parent_ptr", "parent")
    }
    send = graph.types == NodeType.COMM_SEND_NODE
    message = send | (graph.types == NodeType.COMM_RECV_NODE)
    peer = np.where(send, graph.ints("comm_dst", -1), graph.ints("comm_src", -1))
    codes, names = graph.strings("pg_name")
    # "", "0", "00" … stand for all ranks and have no suffix.
    suffix = [f"@{int(name)}" if name.strip("0") else "" for name in names]
    operations = [text.partition("@")[::2] for text in columns["label"].tolist()]
    label = [
        head + (suffix[code] if group and code >= 0 else "")
        for (head, group), code in zip(operations, codes.tolist(), strict=True)
    ]
    ptr, parent = graph.parents()
    columns |= {
        "name": np.array(graph.names() or [""], np.str_)[: graph.n_nodes],
        "node_id": graph.ids,
        "label": np.array(label or [""], np.str_)[: graph.n_nodes],
        "stream": graph.ints("stream", -1),
        "peer": np.where(message, peer, -1).astype(np.int32),
    }
    return GraphTable(parent_ptr=ptr, parent=parent, **columns)
