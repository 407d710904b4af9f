"""All ranks of a job, from joined traces to one Chakra trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.convert.converted import Converted, communication
from armillary.convert.groups import Groups
from armillary.convert.pytorch.chakra import Group, nodes_of_rank
from armillary.convert.pytorch.closing import close, statements
from armillary.convert.pytorch.communication import ASYNCHRONOUS, MOST_RANKS, RECV, SEND, Communication
from armillary.convert.pytorch.device_only import DEVICE_ONLY
from armillary.convert.pytorch.group_guesses import refute_guesses
from armillary.convert.pytorch.host_time import operators_held, was_cut
from armillary.convert.pytorch.launches import unrecorded
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.process_groups import ProcessGroups, says_world, world_size
from armillary.convert.pytorch.rank import Rank, build
from armillary.convert.pytorch.steps import Step
from armillary.trace import Graph, GraphBuilder, Trace, graph_of
from armillary.trace.trace import RANK, WORLD_SIZE

_ONE_CLOCK = 60_000_000_000
"""Ranks whose recordings start further apart than this (ns) do not share a clock."""


def convert_job(traces: Sequence[Linked]) -> Converted:
    """Return the Chakra trace of a job. If ranks are missing, its groups and messages still name ranks of the job."""
    numbered = _number(traces)
    ranks = list(numbered)
    world = world_size(traces, max(ranks) + 1)
    warnings: list[str] = []
    if world > len(ranks):
        shown = ", ".join(map(str, ranks[:8])) + ("…" if len(ranks) > 8 else "")
        how = "from one, `armillary trace extrapolate --from-one-rank` makes all"
        warnings.append(
            f"{len(ranks)} of {world} ranks are given (rank {shown}): a replay runs these alone, a machine needs all "
            f"({how})"
        )
    built = [build(linked, alone=len(numbered) == 1) for linked in numbered.values()]
    for linked, steps in zip(numbered.values(), built, strict=True):
        if not steps.steps:
            raise InputError(f"{linked.host.source}: no operators, expected at least one that ran")
    # With one clock, start times show how ranks lag each other; with several, each rank starts at 0.
    starts = [rank.first for rank in built]
    together = max(starts) - min(starts) < _ONE_CLOCK
    groups = Groups(world)
    unmet = sum(len(one.communications) for one in built)
    if world == 1 and unmet and not says_world(traces):
        warnings.append(
            f"rank {ranks[0]}: the trace does not say how many ranks there were, so its {unmet} communications have "
            "one member and move nothing on a machine (`armillary trace extrapolate --from-one-rank --axes dp=N` "
            "makes N ranks of it)"
        )
    known = {
        rank: _groups_of(linked, rank, world, steps)
        for rank, linked, steps in zip(ranks, numbered.values(), built, strict=True)
    }
    # All ranks must be built before: a guess is judged by the calls of every rank.
    refute_guesses(
        known,
        {
            rank: [
                step.source
                for step in steps.steps
                if step.kind == "comm" and isinstance(step.source, Communication)
            ]
            for rank, steps in zip(ranks, built, strict=True)
        },
    )
    members = []
    for rank, linked, steps in zip(ranks, numbered.values(), built, strict=True):
        # Groups get their numbers here, in order of ranks, before any node is made: every rank's metadata lists all.
        members.append(_Members(known[rank], ranks, groups, steps.communications))
        keep_group_order(steps.steps, members[-1])
        if linked.host.schema == DEVICE_ONLY and was_cut(linked.device):
            held, there = operators_held(linked.device)
            warnings.append(
                f"rank {rank}: the file was cut: it holds {held} of the {there} operators between its first and its "
                "last, by their numbers; what the others did, and what waited for it, is constant time"
            )
        warnings += [f"rank {rank}: {text}" for text in unrecorded(linked.device)]
        if unknown := _unsized(linked, steps):
            warnings.append(f"rank {rank}: {unknown}")
        if lost := members[-1].without_end(steps.communications):
            warnings.append(
                f"rank {rank}: {lost} messages have their other end on a rank that is not known or not given: "
                "only a replay of the recorded times can run them"
            )
        for name, count in known[rank].guessed.items():
            warnings.append(
                f"rank {rank}: {count} collectives do not say their process group; the likeliest of that size, "
                f"'{name}' ({known[rank].about.get(name) or 'no description'}), is assumed"
            )
    graphs: list[Graph] = []
    facts: list[dict[str, Any]] = []
    # Files are numbered from 0 without gaps; `ranks[at]` is the rank of the job.
    for at, (linked, steps) in enumerate(zip(numbered.values(), built, strict=True)):
        builder = GraphBuilder(rank=at)
        groups.metadata(builder)
        origin = min(starts) if together else steps.first
        nodes, dropped = nodes_of_rank(
            steps, linked, ranks[at], len(builder.nodes), origin, members[at], _work(linked)
        )
        graphs.append(
            graph_of([*builder.nodes, *nodes], f"rank {at}", metadata=_metadata(linked, ranks, at, world))
        )
        closing, wrong = close(steps, graphs[-1])
        facts.append(_facts(linked, steps, graphs[-1], ranks[at], dropped) | closing | members[at].told)
        warnings += [f"rank {ranks[at]}: {reason}" for reason in (*linked.reasons, *wrong)]
    return Converted(
        Trace.from_ranks(graphs),
        dict(groups.ranks),
        tuple(dict.fromkeys(warnings)),
        _summary(facts),
        tuple(statements(facts)),
    )


def _groups_of(linked: Linked, rank: int, world: int, steps: Rank) -> ProcessGroups:
    known = ProcessGroups(linked, rank, world)
    known.learn(steps.communications)
    known.learn_threads(
        (step.source, step.track)
        for step in steps.steps
        if isinstance(step.source, Communication)
        and step.name.startswith("gloo:")
        and step.source.kind not in (SEND, RECV)  # the caller's thread does messages
    )
    return known


def _unsized(linked: Linked, rank: Rank) -> str:
    """Return a warning about the communications of unknown size; "" without any."""
    names = Counter(
        linked.host.nodes[step.source.node].name if step.source.node >= 0 else step.name
        for step in rank.steps
        if step.kind == "comm" and isinstance(step.source, Communication) and not step.source.sized
    )
    if not names:
        return ""
    shown = ", ".join(f"{count} '{name[:60]}'" for name, count in names.most_common(3))
    more = f" and {len(names) - 3} other names" if len(names) > 3 else ""
    time = "their recorded time on every machine" if rank.timed else "no time"
    return (
        f"the trace does not say the bytes of {names.total()} communications ({shown}{more}); they take {time}, which "
        "no network changes"
    )


class _Members:
    """Communicators of the communications of one rank, numbered for all of them before any node is made."""

    def __init__(
        self, known: ProcessGroups, given: Sequence[int], groups: Groups, comms: Sequence[Communication]
    ) -> None:
        self.given = frozenset(given)
        self.found: dict[int, Group] = {}
        self.told = {"process_groups": {name: list(ranks) for name, ranks in known.ranks.items()}}
        """The groups that the rank knows: their ranks by PyTorch's names."""
        for comm in comms:
            ranks = known.of(comm)
            self.found[id(comm)] = Group(groups.number(ranks), ranks)

    def without_end(self, comms: Sequence[Communication]) -> int:
        """Return how many messages have an unknown other end."""
        messages = [comm for comm in comms if comm.kind in (SEND, RECV)]
        return sum(self(comm).rank(comm.peer) not in self.given for comm in messages)

    def __call__(self, comm: Communication) -> Group:
        return self.found[id(comm)]


def _number(traces: Sequence[Linked]) -> dict[int, Linked]:
    """Return the traces by rank, in order: by the rank in the device trace, or else by the number in the file name."""
    said = [_rank(linked.device.distributed.get("rank")) for linked in traces]
    if len(traces) == 1:
        said = [max(said[0], 0)]
    # With one rank missing or two alike, no recorded rank is trusted: names must order all.
    elif -1 in said or len(set(said)) < len(said):
        found = [re.search(r"(?:^|[a-z_.-])(\d+)\.json", Path(linked.host.source).name) for linked in traces]
        named = [_rank(int(match[1])) if match else -1 for match in found]
        # Only the order of the numbers counts, as files may count from 1; files without one come last.
        order = sorted(range(len(traces)), key=lambda at: (named[at] < 0, named[at], at))
        said = [order.index(at) for at in range(len(traces))]
    return dict(sorted(zip(said, traces, strict=True)))


def _rank(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < MOST_RANKS else -1


def _work(linked: Linked) -> list[tuple[int, int]]:
    from armillary.convert.pytorch.flops import exclusive, work

    nodes = linked.host.nodes
    index = {node.id: at for at, node in enumerate(nodes)}
    works = [work(node.name, node.op_schema, *node.arguments) for node in nodes]
    # A parent behind its child is damage. Without it the calls stay a tree, which `exclusive` needs.
    parents = [above if (above := index.get(node.parent, -1)) < at else -1 for at, node in enumerate(nodes)]
    return [(own.flops, own.bytes) for own in exclusive(works, parents, [node.name for node in nodes])]


def _metadata(linked: Linked, ranks: Sequence[int], at: int, world: int) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = [
        ("schema", "string", linked.host.schema),
        ("source", "string", Path(linked.host.source).name),
    ]
    return (
        found if len(ranks) == world else [*found, (RANK, "int64", ranks[at]), (WORLD_SIZE, "int64", world)]
    )


def _facts(linked: Linked, rank: Rank, graph: Graph, number: int, dropped: int) -> dict[str, Any]:
    return {
        "rank": number,
        "nodes": graph.n_nodes,
        "linkable": linked.linkable,
        "linked": linked.linked,
        "link_rate": round(linked.rate, 6),
        "comm": communication(graph),
        "span_ns": max(rank.end - rank.start, 1) if rank.timed else None,
        "dropped_dependencies": dropped,
    }


def _summary(facts: list[dict[str, Any]]) -> dict[str, Any]:
    linkable, linked = sum(one["linkable"] for one in facts), sum(one["linked"] for one in facts)
    # The worst rank, as one rank of constant time holds up all others.
    gaps = [one["gap_fraction"] for one in facts if one["gap_fraction"] is not None]
    return {
        "linked": linked,
        "link_rate": round(linked / max(linkable, 1), 6),
        "gap_fraction": max(gaps, default=None),
        "per_rank": facts,
    }


def keep_group_order(steps: Sequence[Step], group_of: Callable[[Communication], Group]) -> None:
    """Let each collective wait for whatever the one before it in its group waited for.

    A backend takes the collectives of a group from one queue, so none starts before the one ahead of it. It works on
    several at a time, however (gloo has two threads per group), so none waits for the end of the one ahead.
    """
    fronts: dict[int, dict[tuple[str, int], Step]] = {}
    for step in steps:
        comm = step.source
        if not isinstance(comm, Communication) or comm.kind in (SEND, RECV):
            continue
        if not step.name.startswith(ASYNCHRONOUS):
            continue  # a stream keeps the order
        # The waits of all collectives of the group so far, reduced to the last of each thread or stream.
        front = fronts.setdefault(group_of(comm).number, {})
        step.waits += [wait for wait in front.values() if wait not in step.waits and wait.end <= step.end]
        step.begin = min(step.end, max([step.begin, *(wait.end for wait in step.waits)]))
        for wait in step.waits:  # of one thread or stream the last is enough
            key = wait.kind if wait.kind == "comm" else "", wait.track
            if key not in front or front[key].end <= wait.end:
                front[key] = wait
