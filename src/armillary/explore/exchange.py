"""How long schedules of an exchange of tokens take on a machine, beside what none of them beats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.base.csv_text import CsvRows
from armillary.base.document import read_text
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.collective.exchange import MOST_TOKENS, SCHEDULES, Routing, Step, least_time
from armillary.engine import simulate
from armillary.platform.model import Platform, ports
from armillary.trace import GraphBuilder, Trace

MOST_CHOICES = 1024


@dataclass(frozen=True)
class Exchanged:
    """One schedule: its time in ns, and the most that a rank sends to other nodes, bytes."""

    name: str
    time: float
    busiest: int


@dataclass(frozen=True)
class Exchange:
    """What all schedules take, and the bound: ns, and what binds."""

    schedules: tuple[Exchanged, ...]
    bound: float
    binds: str
    node: int


def exchange(
    platform: Platform, routing: Routing, token: int, chunks: int = 8, network_model: str | None = None
) -> Exchange:
    """Simulate all schedules of an exchange.

    Args:
        platform: The machine; its innermost dimension, or its hosts, are nodes.
        routing: What goes where.
        token: Bytes of a token.
        chunks: Parts in which steps follow each other: a part is passed on while the next one comes.
        network_model: None: `flow`.

    Raises:
        InputError: the machine has other ranks than the routing.
    """
    if platform.npus != routing.ranks:
        raise InputError(f"routing of {routing.ranks} ranks on a machine of {platform.npus} NPUs")
    node, inside, outside = _rates(platform)
    bound, binds = least_time(routing, node, inside, outside, token)
    found = []
    for name, schedule in SCHEDULES.items():
        steps = schedule(routing, node)
        time = simulate(
            trace_of(steps, token, chunks), platform, network_model=network_model or "flow"
        ).total_ticks
        nodes = np.arange(routing.ranks) // node
        far = sum(step * (nodes[:, None] != nodes) for step in steps)
        found.append(Exchanged(name, float(time), int(np.sum(far, axis=1).max()) * token))
    return Exchange(tuple(found), bound, binds, node)


def trace_of(steps: list[Step], token: int, chunks: int) -> Trace:
    """Return sends and receives: a chunk of a step leaves a rank when that chunk of the step before is all there."""
    ranks = len(steps[0])
    builders = [GraphBuilder(rank=rank) for rank in range(ranks)]
    for chunk in range(chunks):
        came: list[list[int]] = [[] for _ in range(ranks)]
        for number, step in enumerate(steps):
            now: list[list[int]] = [[] for _ in range(ranks)]
            for source, target in zip(*(at.tolist() for at in np.nonzero(step)), strict=True):
                # Tokens do not divide evenly either: the first chunks have one more.
                size = int((step[source, target] + chunks - 1 - chunk) // chunks) * token
                if size:
                    tag = chunk * len(steps) + number
                    builders[source].send(target, size, tag, after=came[source])
                    now[target].append(builders[target].recv(source, size, tag))
            came = [[*old, *new] for old, new in zip(came, now, strict=True)]
    return Trace.from_ranks([builder.graph() for builder in builders])


def read_routing(path: str | Path, ranks: int, experts: int) -> Routing:
    """Return the routing of a CSV file: ``rank``, ``experts`` (numbers with blanks between), and if need be ``count``.

    Raises:
        InputError: The file is missing, or a row is wrong.
    """
    rows = CsvRows(path, read_text(Path(path), "routing of tokens").splitlines())
    header = next(rows, [])
    if not {"rank", "experts"} <= set(header):
        raise InputError(
            f"{path}: got columns {', '.join(header) or 'none'}, expected rank, experts and, if need be, count"
        )
    source, chosen, count = [], [], []
    for row in rows.named(header):
        values = [row["rank"], row.get("count") or "1", *row["experts"].split()]
        if (
            not all(value.isascii() and value.isdecimal() and len(value) < 10 for value in values)
            or len(values) < 3
        ):
            raise InputError(
                f"{path}:{rows.line}: got rank {show(row['rank'])}, experts {show(row['experts'])} and count "
                f"{show(values[1])}, expected whole numbers below a billion, e.g. 0, 3 17 44 and 1"
            )
        rank, times, *own = map(int, values)
        if rank >= ranks or max(own) >= experts or len(own) > MOST_CHOICES:
            raise InputError(
                f"{path}:{rows.line}: got rank {rank} and expert {max(own)}, expected ranks below {ranks} and experts "
                f"below {experts}"
            )
        source.append(rank)
        chosen.append(own)
        count.append(times)
    if not source or len(source) > MOST_TOKENS:
        raise InputError(f"{path}: has {len(source)} tokens, expected 1 to {MOST_TOKENS:,}")
    table = np.full((len(source), max(map(len, chosen))), -1, np.int64)
    for at, own in enumerate(chosen):
        table[at, : len(own)] = own
    return Routing(ranks, experts, np.array(source, np.int64), table, np.array(count, np.int64))


def _rates(platform: Platform) -> tuple[int, float, float]:
    """Return the ranks of a node, and bytes per ns of a rank within it and out of it."""
    graph = platform.topology.topology if platform.topology else None
    if graph is not None and 1 < graph.host < graph.npus:
        # A host's own switches have the number of the host as part; leaves and spines have none.
        own = (graph.tail < graph.npus) & (graph.block[graph.head] == graph.block[graph.tail])
        far = (graph.tail < graph.npus) & ~own
        inside, outside = (float(graph.bandwidth[links].sum()) / graph.npus for links in (own, far))
        return graph.host, inside, outside
    if len(platform.dimensions) < 2:
        raise InputError(
            f"{platform.source or 'platform'}: one level, expected nodes that a network joins, e.g. 4xdgx-h100"
        )
    inner, *outer = ports(platform)
    return platform.dimensions[0].size, inner.out, sum(port.out for port in outer)
