"""A graph put together from pieces of recorded ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from armillary.lab.extrapolation.recorded.stages import Kind, Piece, RecordedStage, host_thread
from armillary.lab.extrapolation.recorded.tensors import callers
from armillary.trace import Graph, NodeType
from armillary.trace.node import Attribute, Node, graph_of, nodes_of

RECEIVED: tuple[Kind, ...] = ("RF", "RB")
MARK = "armillary_layers_left_out"
"""In the metadata of a graph that is not all of what was recorded."""
STAMP = "start_ns"
"""When a node ran: no longer so."""


class Source:
    """A recorded stage, from which nodes are copied."""

    def __init__(self, stage: RecordedStage) -> None:
        graph = stage.nodes.graph
        self.stage = stage
        self.nodes = [
            replace(node, start_micros=0, attrs=_without_time(node.attrs)) for node in nodes_of(graph)
        ]
        self.names = graph.names()
        self.types = graph.types.tolist()
        self.host = host_thread(graph).tolist()
        self.thread = next(iter(graph.ints("tid", -1)[self.host].tolist()), -1)
        self.place = {int(ident): node for node, ident in enumerate(graph.ids.tolist())}
        self.message: dict[int, tuple[Kind, int]] = {}
        between = stage.nodes.along("pp")
        for piece in stage.pieces:
            for node in (node for unit in piece.units for node in unit.nodes):
                if between[node]:
                    self.message[node] = piece.kind, piece.microbatch
        ptr, parents = graph.parents()
        self.parents = [parents[ptr[node] : ptr[node + 1]].tolist() for node in range(graph.n_nodes)]
        # Whether the recording chains messages; only then are copies chained.
        self.serial = any(parent in self.message for node in self.message for parent in self.parents[node])
        self.above = callers(graph).tolist()
        self.calls = set(self.above)

    def group(self, node: int) -> tuple[int, str]:
        """Return the key of communication that runs in sequence: messages between stages, or one group's calls."""
        if self.message.get(node):
            return -1, ""
        names = [attribute[2] for attribute in self.nodes[node].attrs if attribute[0] == "pg_name"]
        return int(self.types[node]), str(names[0]) if names else ""


def _without_time(attrs: Iterable[Attribute]) -> list[Attribute]:
    return [attribute for attribute in attrs if attribute[0] != STAMP]


@dataclass
class Written:
    """The nodes written so far, and the host thread that they belong to.

    Calls of the host run one after the other, and so do messages; the host continues when it has received.
    """

    thread: int = -1
    nodes: list[Node] = field(default_factory=list)
    _host: int = -1
    _waits: list[int] = field(default_factory=list)
    _messages: dict[tuple[Kind, int], int] = field(default_factory=dict)
    _copies: dict[tuple[int, int], int] = field(default_factory=dict)
    _latest: dict[tuple[int, str], int] = field(default_factory=dict)
    _scopes: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        source: Source,
        piece: Piece,
        kind: Kind,
        microbatch: int,
        shift: int,
        left_out: Collection[int] = (),
    ) -> None:
        """Copy a piece.

        Args:
            source: The stage that it is of.
            piece: What is copied.
            kind: What it is now.
            microbatch: For which microbatch.
            shift: How many microbatches later than in the source those are whose messages it waits for.
            left_out: Numbers of its units that are not copied.
        """
        local: dict[int, int] = {}
        for number, unit in enumerate(piece.units):
            for node in () if number in left_out else unit.nodes:
                made = replace(source.nodes[node], id=len(self.nodes))
                # Two recordings number their threads differently, but a stage has one host.
                if source.host[node] and source.thread != self.thread >= 0:
                    made.attrs = [
                        (*each[:2], self.thread) if each[0] == "tid" else each for each in made.attrs
                    ]
                made.data_deps = self._before(source, node, local, shift)
                callers_of = (source.place.get(each, -1) for each in source.nodes[node].ctrl_deps)
                made.ctrl_deps = [
                    new for each in callers_of if (new := self._caller(source, each, local)) >= 0
                ]
                local[node] = made.id
                self.nodes.append(made)
                self._note(source, node, made.id, kind, microbatch)

    def _note(self, source: Source, node: int, made: int, kind: Kind, microbatch: int) -> None:
        """Remember what others wait for."""
        if source.host[node]:
            self._host = made
            self._waits = []
            # Scopes that enclose the whole step, to which callees of later pieces are attached.
            if not kind and node in source.calls:
                self._scopes[source.names[node]] = made
            return
        self._copies[id(source), node] = made
        if source.types[node] != NodeType.COMP_NODE:
            self._latest[source.group(node)] = made
        if node in source.message:
            self._messages[kind, microbatch] = made
            if kind in RECEIVED:
                self._waits.append(made)

    def _caller(self, source: Source, node: int, local: dict[int, int]) -> int:
        if node < 0:
            return -1
        return local.get(node, self._scopes.get(source.names[node], -1))

    def _before(self, source: Source, node: int, local: dict[int, int], shift: int) -> list[int]:
        """Return the ids of the new nodes that the copy of a node waits for."""
        host = source.host[node]
        # Receives that are done since the host's last call: the next call waits for them.
        found = dict.fromkeys(self._waits if host else ())
        if node in source.message and source.serial:
            found[self._latest.get(source.group(node), -1)] = None
        for parent in source.parents[node]:
            copy = self._copies.get((id(source), parent), -1)
            if parent in local:
                found[local[parent]] = None
            elif source.host[parent]:
                scope = self._caller(source, parent, {}) if parent == source.above[node] else -1
                found[scope if scope >= 0 else self._host] = None
            elif parent in source.message and host:
                kind, microbatch = source.message[parent]
                found[self._messages.get((kind, microbatch + shift), -1)] = None
            elif parent in source.message or copy < 0:
                found[self._latest.get(source.group(parent), -1)] = None
            else:
                found[copy] = None
        found.pop(-1, None)
        return list(found)

    def graph(self, like: Graph, source: str, *, restaged: bool) -> Graph:
        """Return the graph, with the metadata of another, and a mark where layers were left out."""
        metadata = [each for each in like.metadata_with_docs() if each[0] != MARK]
        mark: list[Attribute] = [(MARK, "bool", True)] if restaged else []
        return graph_of(self.nodes, source, like.version, [*metadata, *mark])


def is_restaged(graph: Graph) -> bool:
    """Say whether layers were left out of a recorded graph, so that its tensors cannot be followed."""
    return any(each[0] == MARK for each in graph.metadata_with_docs())
