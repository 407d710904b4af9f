"""Captured ranks as a Chakra trace of all ranks of the program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.errors import InputError
from armillary.capture.log import Communication, Log
from armillary.capture.mesh import Mesh, mesh_of, needs_mesh
from armillary.capture.nodes import HostTimes, Name, RankNodes, graphs_of
from armillary.capture.summary import RankClass, classes
from armillary.convert.groups import Groups
from armillary.trace import GraphBuilder, Node, Trace
from armillary.trace.grid import AXIS
from armillary.trace.node import Attribute


def trace_of(logs: Sequence[Log], *, host_ns: int = 0, host: HostTimes | None = None) -> Trace:
    """Return the trace of all ranks.

    A node waits for the one before it on its stream, for what its stream waits for (events, communications), and for
    what the host waited for before it was issued. Nodes carry operations, bytes, GEMMs and attention, by which the
    compute model of a machine times them.

    Args:
        logs: Of the ranks that were run.
        host_ns: What it takes the host to call an operator; 0: it is always ahead of the device.
        host: The same, with what else takes it time; instead of `host_ns`.

    Raises:
        InputError: what the other ranks do does not follow from these.
    """
    logs = sorted(logs, key=lambda each: each.rank)
    times = host or HostTimes(host_ns)
    mesh = mesh_of(logs)
    found = classes(logs, mesh)
    ranks = logs[0].ranks
    if mesh is not None and _follows(logs, mesh):
        _check_whole(found, ranks)
        rank_graph = np.zeros(ranks, np.int32)
        for at, each in enumerate(found):
            rank_graph[list(each.ranks)] = at
        nodes = [RankNodes(each.log, _by_rules(each.log, mesh)) for each in found]
        return Trace(
            graphs_of(nodes, times),
            rank_graph,
            mesh.grid(),
            _about(logs, found, [each.log for each in found]),
        )
    if len(logs) < ranks:
        raise needs_mesh(logs)
    groups = Groups(ranks)
    for log in logs:
        for members in log.groups:
            groups.number(members)
    nodes = [RankNodes(log, _by_number(log, groups)) for log in logs]
    return Trace(
        graphs_of(nodes, times, _definitions(groups)),
        np.arange(ranks, dtype=np.int32),
        None,
        _about(logs, found, logs),
    )


def _check_whole(found: Sequence[RankClass], ranks: int) -> None:
    known = sum(len(each.ranks) for each in found)
    if known < ranks:
        run = sorted(rank for each in found for rank in each.run)
        raise InputError(
            f"{found[0].log.script}: what {ranks - known} of {ranks} ranks do does not follow from ranks "
            f"{', '.join(map(str, run))}, which differ; expected --run auto, or --run all"
        )


def _about(logs: Sequence[Log], found: Sequence[RankClass], graphs: Sequence[Log]) -> dict[str, object]:
    return {
        "captured": {
            "script": logs[0].script, "ranks": logs[0].ranks, "run": [log.rank for log in logs],
            "classes": len(found), "torch": logs[0].torch, "step": logs[0].step, "fused": logs[0].compiled,
            "graphs": [log.rank for log in graphs],
        }
    }  # fmt: skip


def _follows(logs: Sequence[Log], mesh: Mesh) -> bool:
    """Whether the mesh has names for all groups and peers."""
    groups = all(mesh.group(ranks) for log in logs for ranks in log.groups)
    return groups and all(mesh.way(log.rank, peer) for log in logs for peer in log.peers())


def _by_rules(log: Log, mesh: Mesh) -> Name:
    # Once for each group: it may have 100,000 ranks.
    groups = [mesh.group(ranks) for ranks in log.groups]

    def name(each: Communication) -> list[Attribute] | None:
        if each.type in ("send", "recv"):
            way = mesh.way(log.rank, each.peer)
            assert way is not None  # `_follows` has seen it
            return [
                (AXIS, "string", way[0]),
                ("comm_dst" if each.type == "send" else "comm_src", "int32", way[1]),
            ]
        if len(log.groups[each.group]) == 1:
            return None
        return [("pg_name", "string", groups[each.group])]

    return name


def _by_number(log: Log, groups: Groups) -> Name:
    def name(each: Communication) -> list[Attribute] | None:
        if each.type in ("send", "recv"):
            ends = (log.rank, each.peer) if each.type == "send" else (each.peer, log.rank)
            return [("comm_src", "int32", ends[0]), ("comm_dst", "int32", ends[1])]
        if len(log.groups[each.group]) == 1:
            return None
        number = groups.number(log.groups[each.group])
        return [("pg_name", "string", str(number))] if number else []

    return name


def _definitions(groups: Groups) -> list[Node]:
    builder = GraphBuilder()
    groups.metadata(builder)
    return builder.nodes
