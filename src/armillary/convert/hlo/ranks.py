"""Build the graphs of all ranks from steps; ranks of one structure differ only in group numbers and peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.convert.groups import Groups
from armillary.convert.hlo.steps import COMPUTE, RECV, SEND, Part, Program
from armillary.trace import Graph, GraphBuilder, Trace

Ints = NDArray[np.int64]

_NONE = -1
_MOST_ROLES = 1 << 26
_MOST_VALUES = 1 << 30


def trace_of(program: Program, groups: Groups) -> Trace:
    """Return the trace in which all ranks run the program.

    Args:
        program: the steps.
        groups: numbers the groups; its world is all ranks.

    Raises:
        InputError: a value does not fit its field.
    """
    # Three tables of 8 bytes a role: 1.5 GiB at the limit.
    if len(program.parts) * len(groups.world) > _MOST_ROLES:
        raise InputError(
            f"{len(program.parts)} sets of groups over {len(groups.world)} ranks do not fit into memory"
        )
    roles = _Roles(program.parts, groups)
    graphs: list[Graph] = []
    rank_graph = np.zeros(len(groups.world), np.int32)
    # Only one rank of each structure is built node by node; the others share its columns but for attribute values.
    structure, examples = _distinct(roles.structure())
    for number, example in enumerate(examples.tolist()):
        ranks = np.flatnonzero(structure == number)
        model = _Model(program, roles, groups, example)
        alike, first = _distinct(roles.values(ranks, named=bool(model.messages)))
        if len(model.columns.attr_value) * (len(graphs) + len(first)) > _MOST_VALUES:
            raise InputError(
                f"{len(graphs) + len(first)} ranks of different groups or peers, each with {len(program.steps)} nodes, "
                "do not fit into memory; expected fewer ranks"
            )
        rank_graph[ranks] = alike + len(graphs)
        graphs.extend(model.graph_of(rank) for rank in ranks[first].tolist())
    return Trace(tuple(graphs), rank_graph)


def _distinct(columns: Ints) -> tuple[Ints, Ints]:
    """Return for each column the index of its distinct column, and the place where each distinct one first stands."""
    _, first, which = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return which.ravel(), first


class _Roles:
    """Role of every rank in every part, shape (parts, ranks): group number, and target and source of its message."""

    def __init__(self, parts: Sequence[Part], groups: Groups) -> None:
        self.own: Ints = np.arange(len(groups.world))
        self.group, self.target, self.source = (
            np.full((len(parts), len(self.own)), _NONE, np.int64) for _ in range(3)
        )
        for at, part in enumerate(parts):
            for ranks in part.groups:
                self.group[at, list(ranks)] = groups.number(ranks)
            if part.pairs:
                sources, targets = np.array(part.pairs, np.int64).T
                self.target[at, sources] = targets
                self.source[at, targets] = sources

    def structure(self) -> Ints:
        """Return a column for each rank; equal ones have the same nodes and dependencies."""
        # A send to itself gives no node, so it counts as a difference of structure.
        has = [self.group != _NONE, self.target != _NONE, self.source != _NONE, self.target == self.own]
        # The last row is all zeros: np.unique needs one where the program has no parts.
        return np.vstack([*has, self.own[None] < 0]).astype(np.int64)

    def values(self, ranks: Ints, *, named: bool) -> Ints:
        """Return a column for each of `ranks`; equal ones have the same graph.

        Args:
            ranks: ranks of one structure.
            named: whether they name themselves as ends of messages.
        """
        rows = [self.group[:, ranks], self.target[:, ranks], self.source[:, ranks]]
        # A message holds its own rank as source or target, so ranks with messages are never alike.
        return np.vstack([*rows, self.own[None, ranks] * named])


class _Model:
    """The graph of one rank, from which the graphs of the other ranks of its structure are copied."""

    def __init__(self, program: Program, roles: _Roles, groups: Groups, rank: int) -> None:
        self.roles = roles
        self.grouped: list[int] = []
        """The part of each collective that names its group, in the order of the nodes."""
        self.messages: list[tuple[int, bool]] = []
        """The part of each message, and whether it is sent."""
        self.model = self._build(program, GraphBuilder(rank=rank), groups, rank)
        # The numbers of all ranks' groups as texts, appended once to the strings that all graphs share.
        numbers = np.unique(roles.group[self.grouped]).tolist()
        texts = [str(number).encode() for number in numbers]
        columns = self.model.columns
        self.string = {number: len(columns.string_ptr) - 1 + at for at, number in enumerate(numbers)}
        ends = np.cumsum([columns.string_ptr[-1], *map(len, texts)])[1:]
        self.columns = replace(
            columns,
            string_ptr=np.concatenate([columns.string_ptr, ends]).astype(np.int64),
            pool=np.concatenate([columns.pool, np.frombuffer(b"".join(texts), np.uint8)]),
        )

    def _build(self, program: Program, builder: GraphBuilder, groups: Groups, rank: int) -> Graph:
        groups.metadata(builder)
        roles = self.roles
        node: list[int] = []
        for step in program.steps:
            part, name, size = step.part, step.name, step.bytes
            after = [node[i] for i in step.after if node[i] != _NONE]
            ctrl = [node[i] for i in step.ctrl if node[i] != _NONE]
            group, target, source = (
                _NONE if step.kind == COMPUTE else int(role[part, rank])
                for role in (roles.group, roles.target, roles.source)
            )
            if step.kind == SEND and target in (_NONE, rank):
                node.append(_NONE)  # what waits for it also waits for what it waits for
                continue
            if step.kind == SEND:
                made = builder.send(target, size, step.tag, name=name, after=after, ctrl_after=ctrl)
                self.messages.append((part, True))
            elif step.kind == RECV and source not in (_NONE, rank):
                made = builder.recv(source, size, step.tag, name=name, after=after, ctrl_after=ctrl)
                self.messages.append((part, False))
            elif step.operation is not None and group != _NONE:
                # Group 0 is all ranks; a part has it for every rank or for none, so `grouped` is the same
                # within a structure.
                made = builder.collective(
                    name, step.operation, size, group=group or None, after=after, ctrl_after=ctrl
                )
                self.grouped += [part] if group else []
            else:
                # Received from itself, it is a copy: read and written.
                moved = size if step.kind == COMPUTE else step.alone * (1 + (source == rank))
                made = builder.compute(name, flops=step.ops, bytes=moved, after=after, ctrl_after=ctrl)
            node.append(made)
        return builder.graph()

    def graph_of(self, rank: int) -> Graph:
        """Return the graph of a rank."""
        columns = self.columns
        value = columns.attr_value.copy()

        def put(name: str, values: list[int]) -> None:
            if values:
                # The attributes of one name stand in the order of the nodes, as do `grouped` and `messages`.
                value[columns.attr_name == columns.name_code[name]] = values

        group, target, source = (
            role[:, rank].tolist() for role in (self.roles.group, self.roles.target, self.roles.source)
        )
        put("pg_name", [self.string[group[part]] for part in self.grouped])
        put("comm_src", [rank if sent else source[part] for part, sent in self.messages])
        put("comm_dst", [target[part] if sent else rank for part, sent in self.messages])
        return Graph(replace(columns, attr_value=value), 0, f"rank {rank}")
