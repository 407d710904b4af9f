"""The result of a run: columns per simulated class of ranks, expanded to ranks on demand."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.json_text import parse_json
from armillary.base.reading import MOST_FILE, check_size
from armillary.platform.kernels import PRECISIONS

if TYPE_CHECKING:
    from armillary.engine.transport.use import NetworkUse

KINDS = ("none", "compute", "cpu", "collective", "send", "recv", "memory")
"""Meaning of `GraphTable.kind`, by index."""

OPERATIONS = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "custom", "broadcast", "reduce", "gather", "scatter",
    "barrier",
)  # fmt: skip
"""Meaning of `Timeline.phase_operation`, by index."""

FORMAT = "armillary-timeline-1"
_NOT_COLUMNS = ("graphs", "info", "network")


def _absent(kind: type[np.generic]) -> NDArray[Any]:
    """Return the empty array that marks a column as not given."""
    return np.empty(0, kind)


def _fill(owner: object, name: str, default: NDArray[Any]) -> None:
    """Give a column of a frozen owner its default, if it was not given."""
    if len(getattr(owner, name)) == 0:
        object.__setattr__(owner, name, default)


@dataclass(frozen=True)
class GraphTable:
    """The columns that reports need of one distinct rank graph of n nodes, in graph order."""

    name: NDArray[np.str_]
    node_id: NDArray[np.uint64]
    kind: NDArray[np.int8]
    """Index into `KINDS`."""
    label: NDArray[np.str_]
    """Collective type with its group ("all-reduce", "all-gather@3"), or an empty string."""
    size: NDArray[np.int64]
    """Bytes of a communication or memory node, else 0."""
    flops: NDArray[np.int64]
    parent_ptr: NDArray[np.int64]
    """CSR (n + 1) into `parent`: the nodes (positions) each node waits for."""
    parent: NDArray[np.int32]
    stream: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Stream of a node, -1 where the trace names none or the engine does not know it."""
    peer: NDArray[np.int32] = field(default_factory=lambda: _absent(np.int32))
    """Rank at the other end of a send or receive, as seen by the representative of a class that ran this
    graph; -1 for other nodes, and where it is not known or differs between the classes of this graph."""

    precision: NDArray[np.int8] = field(default_factory=lambda: _absent(np.int8))
    """Index into `PRECISIONS` of what a compute node names; -1: nothing, or another."""
    moved: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Bytes of local memory that a compute node reads and writes, as the roofline model counts them; else 0."""

    def __post_init__(self) -> None:
        """Fill the columns that were not given."""
        _fill(self, "precision", np.full(len(self.kind), -1, np.int8))
        _fill(self, "moved", np.zeros(len(self.kind), np.int64))
        _fill(self, "stream", np.full(len(self.kind), -1, np.int64))
        _fill(self, "peer", np.full(len(self.kind), -1, np.int32))

    @classmethod
    def lazily(cls, later: Mapping[str, Callable[[], NDArray[Any]]], **columns: NDArray[Any]) -> GraphTable:
        """Return a table of all columns, of which those of `later` are made on first use: texts take time."""
        # Without `__init__`, which would want every column; `__getattr__` makes the missing ones.
        made = object.__new__(cls)
        made.__dict__.update(columns, _later=dict(later))
        return made

    def __getattr__(self, name: str) -> Any:
        """Make a column that was left for later."""
        # Called only for names that are not there yet; `__dict__`, because `self._later` would recurse.
        make = self.__dict__.get("_later", {}).get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__[name] = make()
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return all columns, made: the functions that make them are not part of a copy."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, repr=False)
class Timeline:
    """Ticks of every node and every collective phase, per class of ranks that behave alike.

    A class c stands for all ranks with ``rank_class == c`` and ran the graph ``graphs[class_graph[c]]``.
    Node spans are concatenated by class (`node_ptr`), in graph order; -1 where a node never ran.
    Phase columns have one row per (class, collective node, chunk, phase).
    """

    rank_class: NDArray[np.int32]
    representative: NDArray[np.int64]
    """The rank that was simulated for each class."""
    class_graph: NDArray[np.int32]
    finish: NDArray[np.int64]
    """Finish tick of each class."""
    graphs: Sequence[GraphTable]
    node_ptr: NDArray[np.int64]
    node_start: NDArray[np.int64]
    node_end: NDArray[np.int64]
    phase_class: NDArray[np.int32]
    phase_node: NDArray[np.int32]
    phase_chunk: NDArray[np.int32]
    phase_index: NDArray[np.int16]
    phase_dim: NDArray[np.int16]
    """Network dimension of the phase, -1 for a ring over a sub-group or over all NPUs."""
    phase_operation: NDArray[np.int8]
    phase_start: NDArray[np.int64]
    """When the phase was entered (astra-sim), or when its first byte moved (physical)."""
    phase_end: NDArray[np.int64]
    phase_bytes: NDArray[np.int64]
    """Bytes each NPU sends in the phase."""
    info: dict[str, Any] = field(default_factory=dict)
    """profile, network_model, tick_ns (length of one tick in ns), npus, dimensions (list of
    {name, topology, size, bandwidth_bytes_per_ns, latency_ns}), warnings (list of str), folded (bool).

    Where the engine knows them: ports (per dimension, {out_bytes_per_ns, into_bytes_per_ns} of one NPU),
    peak_flops_per_ns (of one NPU), peaks_flops_per_ns (the same by precision), memory_bytes_per_ns, scheduling
    (str). Where the roofline model timed compute nodes: roofline ({compute_efficiency, memory_efficiency,
    kernel_overhead_ns}); where another compute model did, or overrides hold, compute_model
    ({name, file, overrides}). What the trace says of itself (`Trace.about`)."""
    finish_place: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Place of each class among those that finished, 0 for one without nodes; empty where the order of ranks that
    finish at one tick is not known."""
    node_least: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Like `node_start`: the fewest ticks a node can take on an otherwise idle machine (a compute node its
    own time, communication its latency and bytes ÷ bandwidth alone); 0 where it is not known."""
    node_late: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Like `node_start`, of collectives the place among all nodes of the call with which the last member began, which
    is that of the node itself where it was among the last; -1 for other nodes, and where the engine does not say."""
    phase_port_bytes: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Bytes through the busier direction of the port of a rank of this class; by default `phase_bytes`."""
    node_call: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Like `node_start`: the row of the `call_…` columns that a collective is, -1 for others and where it is not
    known."""
    call_group: NDArray[np.int64] = field(default_factory=lambda: _absent(np.int64))
    """Number of the group of each kind of collective; all members run all collectives of a group."""
    call_bytes: NDArray[np.float64] = field(default_factory=lambda: _absent(np.float64))
    """(kinds, cuts, 2) bytes that must leave an NPU of the group and come into it, whatever the algorithm, on average
    over these NPUs, by ports of the dimensions of a cut."""
    call_each: NDArray[np.float64] = field(default_factory=lambda: _absent(np.float64))
    """(kinds, cuts, 2) the same of every NPU, at least."""
    call_ns: NDArray[np.float64] = field(default_factory=lambda: _absent(np.float64))
    """(kinds, cuts, 4) ns that they need the ports and links that join the group: all together out of NPUs and into
    them, and those of the NPU that is joined worst."""
    cut_dims: NDArray[np.bool_] = field(default_factory=lambda: _absent(np.bool_))
    """(cuts, dimensions) whether a cut goes through a dimension."""
    cut_latency: NDArray[np.float64] = field(default_factory=lambda: _absent(np.float64))
    """(cuts) ns from one side to the other, at least."""
    network: NetworkUse | None = None
    """What the links did, where the network model has links."""

    def __post_init__(self) -> None:
        """Fill the columns that were not given."""
        _fill(self, "node_least", np.zeros(len(self.node_start), np.int64))
        _fill(self, "node_late", np.full(len(self.node_start), -1, np.int64))
        _fill(self, "node_call", np.full(len(self.node_start), -1, np.int64))
        cuts = len(self.cut_latency)
        for name, width in (("call_bytes", 2), ("call_each", 2), ("call_ns", 4)):
            _fill(self, name, np.zeros((len(self.call_group), cuts, width)))
        _fill(self, "phase_port_bytes", self.phase_bytes)

    @classmethod
    def lazily(
        cls,
        later: Mapping[str, Callable[[], dict[str, NDArray[Any]]]],
        traffic: Callable[[], NDArray[np.int64]] | None,
        **columns: Any,
    ) -> Timeline:
        """Return a timeline whose most expensive columns are made on first use.

        `later` maps the beginning of their names to a function that makes these columns. `traffic` is a faster
        implementation of the method of that name.
        """
        # Without `__init__`, which would want every column; `__getattr__` makes the missing ones.
        made = object.__new__(cls)
        made.__dict__.update({"network": None, "info": {}}, **columns, _later=later, _make_traffic=traffic)
        return made

    def __getattr__(self, name: str) -> Any:
        """Make the columns that were left for later."""
        # Called only for names that are not there yet; `__dict__`, because `self._later` would recurse.
        later = self.__dict__.get("_later", {})
        make = next((later[prefix] for prefix in later if name.startswith(prefix)), None)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__.update(make(), _later={key: each for key, each in later.items() if each is not make})
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return all columns, made: the functions that make them are not part of a copy."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def cuts(self) -> list[tuple[list[int], float]]:
        """The dimensions of each cut, and its latency in ns."""
        dims = [np.flatnonzero(row).tolist() for row in self.cut_dims]
        return list(zip(dims, self.cut_latency.tolist(), strict=True))

    def __repr__(self) -> str:
        known = self.info
        return (
            f"Timeline of {self.total_ticks:,} ticks of {known.get('tick_ns', 1)} ns\n"
            f"profile {known.get('profile', 'unknown')}, network model {known.get('network_model', 'unknown')}\n"
            f"ranks: {self.n_ranks:,}, classes: {len(self.finish):,}, nodes: {len(self.node_start):,}"
        )

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.rank_class)

    @property
    def finish_ticks(self) -> NDArray[np.int64]:
        """Finish tick of every rank, int64 (n_ranks,)."""
        return self.finish[self.rank_class]

    @property
    def finish_order(self) -> NDArray[np.int64]:
        """The ranks in the order in which they finish, int64 (n_ranks,); within a tick by rank, unless it is known."""
        place = self.finish_place if len(self.finish_place) else np.zeros_like(self.finish)
        return np.lexsort((np.arange(self.n_ranks), place[self.rank_class], self.finish_ticks))

    @property
    def total_ticks(self) -> int:
        """The tick at which the last rank finishes."""
        return int(self.finish.max(initial=0))

    def table(self, cls: int) -> GraphTable:
        """Return the graph that class `cls` ran."""
        return self.graphs[int(self.class_graph[cls])]

    def spans(self, cls: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return start and end ticks of the nodes of class `cls`, in graph order (-1: never ran)."""
        part = slice(int(self.node_ptr[cls]), int(self.node_ptr[cls + 1]))
        return self.node_start[part], self.node_end[part]

    def peak_of_precisions(self) -> dict[str, float]:
        """Return precision -> FLOPs per ns that an NPU can do in it, "" for nodes that name none; 0: not known."""
        known: dict[str, float] = self.info.get("peaks_flops_per_ns", {})
        usual = float(self.info.get("peak_flops_per_ns") or 0)
        return {**{name: known.get(name, usual) for name in PRECISIONS}, "": usual}

    def peaks(self, cls: int) -> NDArray[np.float64]:
        """Return the FLOPs per ns that an NPU can do in the precision of each node; 0 where it is not known."""
        return np.array([*self.peak_of_precisions().values()])[self.table(cls).precision]

    def traffic(self) -> NDArray[np.int64]:
        """Return bytes of collectives, int64 (classes, dimensions + 1, 2): sent by a rank, and through its port.

        The last row is that of phases in no dimension (-1).
        """
        if make := self.__dict__.get("_make_traffic"):
            found: NDArray[np.int64] = make()
            return found
        sizes = np.stack([self.phase_bytes, self.phase_port_bytes], axis=1)
        dimensions = len(self.info.get("dimensions", []))
        return sum_by_dimension(self.phase_class, self.phase_dim, sizes, len(self.finish), dimensions)

    def phases(self, cls: int) -> NDArray[np.int64]:
        """Return the rows of the phase columns that belong to class `cls`."""
        return np.flatnonzero(self.phase_class == cls)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline to one file (a zip of NumPy arrays), completely or not at all.

        Raises:
            InputError: the file cannot be written.
        """
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_COLUMNS}
        for i, graph in enumerate(self.graphs):
            arrays |= {f"graph{i}.{f.name}": getattr(graph, f.name) for f in fields(graph)}
        head = {"format": FORMAT, "graphs": len(self.graphs), "info": self.info}
        if self.network:
            head["network"] = self.network.head()
            arrays |= {f"network.{name}": values for name, values in self.network.arrays().items()}
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Timeline:
        """Read a timeline that `save` wrote.

        Raises:
            InputError: the file is missing or is not such a timeline.
        """
        # Late: a run that saves nothing reads no archive.
        from armillary.base.packing import check_members

        try:
            check_size(path, MOST_FILE)
            if not zipfile.is_zipfile(path):
                raise InputError(
                    f"{path}: is not a saved timeline, expected a file that 'armillary run STUDY --save FILE' wrote"
                )
            # Timelines come from other people, and a pickle could run code.
            with np.load(path, allow_pickle=False) as data:
                check_members(data.zip, path)
                head = parse_json(bytes(data["head"]), path)
                if head.get("format") != FORMAT:
                    raise InputError(f"{path}: format {head.get('format')!r}, expected {FORMAT!r}")
                graphs = tuple(
                    GraphTable(**_columns(GraphTable, data, f"graph{i}.")) for i in range(head["graphs"])
                )
                columns = _columns(cls, data, "")
                network = _network(head["network"], data) if head.get("network") else None
                return cls(graphs=graphs, info=head["info"], network=network, **columns)
        except (InputError, MemoryError):
            raise
        # Whatever a damaged file makes zipfile, NumPy or what is made of it raise means the same to a user.
        except Exception as error:
            raise InputError(f"{path}: cannot be read as a saved timeline ({error})") from error


def sum_by_dimension(
    owner: NDArray[Any], dim: NDArray[Any], sizes: NDArray[np.int64], owners: int, dimensions: int
) -> NDArray[np.int64]:
    """Return sums of the columns of `sizes`, int64 (owners, dimensions + 1, columns); dimension -1 is the last."""
    total = np.zeros((owners, dimensions + 1, sizes.shape[1]), np.int64)
    np.add.at(total, (owner, dim), sizes)
    return total


def _network(head: dict[str, Any], data: Any) -> NetworkUse:
    from armillary.engine.transport.use import NetworkUse

    return NetworkUse.read(
        head, {name.removeprefix("network."): data[name] for name in data if name.startswith("network.")}
    )


def _columns(owner: type[GraphTable] | type[Timeline], data: Any, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the columns of `owner` in a file; one with a default may be absent, as in files of before.

    Raises:
        KeyError: another is absent.
    """
    return {
        f.name: data[prefix + f.name]
        for f in fields(owner)
        if f.name not in _NOT_COLUMNS and (f.default_factory is MISSING or prefix + f.name in data)
    }
