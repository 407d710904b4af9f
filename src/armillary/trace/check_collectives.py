"""Check that the members of every group run the same collectives in the same order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from armillary.trace.communication import (
    DIMS,
    I64,
    OPERATION,
    ROOT,
    SIZE,
    UNDEFINED,
    Communication,
    group_name,
    name_of,
)
from armillary.trace.graph import Graph
from armillary.trace.reach import ancestors
from armillary.trace.structure import Diagnostic, Severity, earliest
from armillary.trace.trace import WORLD, Groups, Trace

_SHOWN = 3
_TRIED = 16
"""Most collectives whose order is checked pair by pair."""
_COLUMNS = {OPERATION: "type", SIZE: "size", DIMS: "dimensions", ROOT: "root"}


@dataclass(frozen=True)
class Use:
    """The collectives of one graph in one group."""

    by: Communication
    at: I64
    """Their indices among the graph's collectives, in order of issue."""

    @property
    def job(self) -> I64:
        """Their operations, sizes, dimensions and roots; see `Collectives.job`."""
        return self.by.collectives.job[self.at]


def uses_of(communication: list[Communication]) -> dict[int, dict[int, Use]]:
    """Return the collectives by group number and then by graph."""
    uses: dict[int, dict[int, Use]] = defaultdict(dict)
    for graph, found in enumerate(communication):
        group = found.collectives.group
        order = np.argsort(group, kind="stable")
        numbers, first = np.unique(group[order], return_index=True)
        for number, at in (
            zip(numbers.tolist(), np.split(order, first[1:]), strict=True) if len(order) else ()
        ):
            uses[number][graph] = Use(found, at)
    return uses


def check_collectives(
    trace: Trace, groups: Groups, uses: dict[int, dict[int, Use]]
) -> tuple[list[Diagnostic], list[int]]:
    """Return the findings, and the numbers of the groups whose members agree."""
    findings = list(_undefined(uses, groups))
    problems: dict[tuple[Severity, str], list[str]] = defaultdict(list)
    agreed = []
    member = np.zeros(trace.n_ranks, dtype=np.bool_)
    code_of = np.full(len(trace.graphs), -1)
    # `member` and `code_of` are reused from group to group, and cleared after each: allocating
    # them anew would cost ranks × groups.
    for number in sorted(set(uses) - {UNDEFINED}):
        of_graph, members = uses[number], groups[number]
        if number != WORLD:
            member[members] = True
            for use in of_graph.values():
                outside = use.by.ranks[~member[use.by.ranks]]
                if len(outside):
                    problems["error", "where a rank that is no member takes part"].append(
                        f"{group_name(number)}: rank {outside[0]} runs {use.by.describe(int(use.at[0]))}, "
                        f"the members are {_some(members)}"
                    )
            member[members] = False
        codes: dict[bytes, int] = {}
        for graph, use in of_graph.items():
            code_of[graph] = codes.setdefault(use.job.tobytes(), len(codes))
        # Equal codes mean equal sequences of collectives; -1 is a member that runs none.
        found = code_of[trace.rank_graph[members]]
        if np.all(found == found[0]):
            agreed.append(number)
        else:
            severity, kind, text = _difference(trace, of_graph, members, found)
            problems[severity, kind].append(f"{group_name(number)}: {text}")
        code_of[list(of_graph)] = -1
    for (severity, kind), texts in problems.items():
        more = f"; … ({len(texts) - _SHOWN} more groups)" if len(texts) > _SHOWN else ""
        where = f"{len(texts)} group{'s' * (len(texts) > 1)}"
        findings.append(Diagnostic(severity, None, f"{where} {kind}: {'; '.join(texts[:_SHOWN])}{more}"))
    return findings, agreed


def _undefined(uses: dict[int, dict[int, Use]], groups: Groups) -> Iterator[Diagnostic]:
    missing: dict[str, str] = {}
    for use in uses.get(UNDEFINED, {}).values():
        graph = use.by.graph
        codes, names = graph.strings("pg_name")
        position = use.by.collectives.position[use.at]
        for code, first in zip(*np.unique(codes[position], return_index=True), strict=True):
            missing.setdefault(names[code], f"{graph.source}: {name_of(graph, int(position[first]))}")
    if missing:
        known = ", ".join(map(str, sorted(set(groups) - {WORLD})[:8])) or "none"
        shown = "; ".join(f"'{name}' ({where})" for name, where in list(missing.items())[:_SHOWN])
        more = f"; … ({len(missing) - _SHOWN} more)" if len(missing) > _SHOWN else ""
        yield Diagnostic(
            "error",
            None,
            f"{len(missing)} group{'s are' if len(missing) > 1 else ' is'} not defined, neither by a metadata "
            f"node nor by --comm-groups (defined: {known}): {shown}{more}",
        )


def _some(members: I64) -> str:
    return ", ".join(map(str, members[:8].tolist())) + (", …" if len(members) > 8 else "")


def _difference(
    trace: Trace, of_graph: dict[int, Use], members: I64, found: I64
) -> tuple[Severity, str, str]:
    """Return how one member differs from most of the others: severity, kind and text."""
    # What most members run is taken as intended, and one of the others is described.
    common = Counter(found.tolist()).most_common(1)[0][0]
    usual, odd = int(members[found == common][0]), int(members[found != common][0])
    first, second = sorted((usual, odd))
    uses = [of_graph.get(int(trace.rank_graph[rank])) for rank in (first, second)]
    counts = [len(use.at) if use else 0 for use in uses]
    if None in uses:
        none, other = (first, second) if uses[0] is None else (second, first)
        some = next(use for use in uses if use)
        text = f"rank {none} runs none, rank {other} {sum(counts)}, the first {some.by.describe(int(some.at[0]))}"
        return "error", "where a member lacks collectives", text
    one, two = (use for use in uses if use is not None)
    shorter = min(counts)
    different = np.flatnonzero(np.any(one.job[:shorter] != two.job[:shorter], axis=1))
    if not len(different):
        longer, rank = (one, first) if counts[0] > counts[1] else (two, second)
        text = (
            f"rank {first} runs {counts[0]}, rank {second} {counts[1]}; only rank {rank} runs number "
            f"{shorter + 1}, {longer.by.describe(int(longer.at[shorter]))}"
        )
        return "error", "where a member lacks collectives", text
    k = int(different[0])
    text = (
        f"number {k + 1} is {one.by.describe(int(one.at[k]))} on rank {first}, but "
        f"{two.by.describe(int(two.at[k]))} on rank {second}"
    )
    if counts[0] != counts[1]:
        text += f"; they run {counts[0]} and {counts[1]}"
        return "error", "where a member lacks collectives", text
    # The same collectives in another order: certain only if no timing can restore the order.
    if np.array_equal(_sorted(one.job), _sorted(two.job)):
        if sure_order(one) and sure_order(two):
            return "error", "whose members run collectives in another order", text
        return "warning", "whose members may run collectives in another order", text
    column = next(c for c in _COLUMNS if one.job[k, c] != two.job[k, c])
    return "error", f"whose members differ in the {_COLUMNS[column]} of a collective", text


def _sorted(job: I64) -> I64:
    return job[np.lexsort(job.T)]


def sure_order(use: Use) -> bool:
    """Return whether these collectives are issued in the same order whatever their durations."""
    graph = use.by.graph
    position = use.by.collectives.position[use.at]
    weight = np.zeros(graph.n_nodes, dtype=np.int64)
    weight[position] = 1
    # Each collective weighs 1: the longest path has as many only if it passes through all.
    if earliest(graph, weight)[2] == len(position):  # one path leads through them all
        return True
    return len(position) <= _TRIED and all(
        _sure(graph, before, after) for before, after in pairwise(position.tolist())
    )


def _sure(graph: Graph, before: int, after: int) -> bool:
    """Return whether a node is always issued before another.

    The other waits for it, or becomes ready no earlier and has the higher id.
    """
    mark = np.zeros(graph.n_nodes, dtype=np.bool_)
    mark[after] = True
    # Safe even without a path: if `before` is ready whenever `after` is and has the lower id,
    # it is issued first.
    waited = ancestors(graph, mark)
    ptr, parent = graph.parents()
    ready = bool(np.all(waited[parent[ptr[before] : ptr[before + 1]]]))
    return bool(waited[before]) or (ready and bool(graph.ids[before] < graph.ids[after]))
