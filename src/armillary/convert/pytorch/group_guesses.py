"""Guesses of process groups that the ranks together refute: another group is taken until all calls find their partners.

One rank's trace may leave open which of several groups of a size a call is for. Over all ranks that shows: members of a
group make the same calls in the same order, and a run in which every rank makes its calls one after the other must come
to its end.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from armillary.convert.pytorch.communication import RECV, SEND, Communication
from armillary.convert.pytorch.process_groups import ProcessGroups

_ROUNDS = 4
_MOST = 200_000
"""Calls above which guesses stay as they are: each alternative is rehearsed with all of them."""

Key = tuple[str, ...]
Cost = tuple[int, int]
"""Calls that lack a partner, and calls that a rehearsal does not reach."""


def refute_guesses(ranks: Mapping[int, ProcessGroups], calls: Mapping[int, Sequence[Communication]]) -> None:
    """Let the groups of each rank be those with which the calls of all `ranks` fit best.

    Calls from one place of the program are of one group, so they are decided together.
    """
    open_calls: dict[Key, list[tuple[int, Communication]]] = defaultdict(list)
    for rank, made in calls.items():
        for one in made:
            if len({ranks[rank].ranks[name] for name in ranks[rank].candidates(one)}) > 1:
                open_calls[_place(one)].append((rank, one))
    if not open_calls or len(ranks) < 2 or sum(map(len, calls.values())) > _MOST:
        return
    best = _cost(ranks, calls)
    for _ in range(_ROUNDS):
        before = best
        for key in sorted(open_calls, key=lambda key: -len(open_calls[key])):
            if best == (0, 0):
                return
            for choice in _choices(ranks, open_calls[key]):
                old = {rank: dict(ranks[rank].chosen) for rank, _ in open_calls[key]}
                for rank, one in open_calls[key]:
                    ranks[rank].choose(one, choice)
                cost = _cost(ranks, calls)
                if cost < best:
                    best = cost
                else:
                    for rank, chosen in old.items():
                        ranks[rank].chosen = chosen
        if best == before:
            return


def _place(one: Communication) -> Key:
    """Return what calls from one place of the program have in common on all ranks."""
    if one.kind in (SEND, RECV):
        return ("messages",)  # a send and its receive stand at different places
    around = (re.sub(r"\d+", "", name) for name in one.path[:3])
    return (one.kind, str(one.group_size), *around)


def _choices(ranks: Mapping[int, ProcessGroups], calls: Sequence[tuple[int, Communication]]) -> list[str]:
    """Return the descriptions of groups that all of `calls` could be for."""
    found: dict[str, None] = {}
    for rank, one in calls:
        found |= dict.fromkeys(ranks[rank].describe(name) for name in ranks[rank].candidates(one))
    return list(found)


def _cost(ranks: Mapping[int, ProcessGroups], calls: Mapping[int, Sequence[Communication]]) -> Cost:
    rows: dict[int, list[tuple[tuple[int, ...], str, int]]] = {}
    messages: Counter[tuple[int, int, int, int]] = Counter()
    lacking = 0
    for rank, made in calls.items():
        rows[rank] = []
        for one in made:
            group = ranks[rank].likeliest(one)
            if one.kind not in (SEND, RECV):
                rows[rank].append((group, one.kind, one.size if one.sized and not one.splits else -1))
            elif one.peer is not None:
                other = group[one.peer] if one.peer < len(group) else rank
                lacking += other == rank  # nobody writes to himself
                ends = (rank, other) if one.kind == SEND else (other, rank)
                messages[(*ends, one.size, one.tag)] += 1 if one.kind == SEND else -1
    given = set(calls)
    lacking += sum(abs(count) for ends, count in messages.items() if given.issuperset(ends[:2]))
    by_group: dict[tuple[int, ...], dict[int, list[tuple[str, int]]]] = defaultdict(dict)
    for rank, row in rows.items():
        for group, kind, size in row:
            by_group[group].setdefault(rank, []).append((kind, size))
    for group, of_rank in by_group.items():
        there = [of_rank.get(rank, []) for rank in group if rank in given]
        longest = max(map(len, there), default=0)
        for at in range(longest):
            lacking += len({calls_of[at] if at < len(calls_of) else None for calls_of in there}) > 1
    return lacking, _unreached({rank: [row[0] for row in made] for rank, made in rows.items()})


def _unreached(rows: Mapping[int, Sequence[tuple[int, ...]]]) -> int:
    """Return how many collectives are left over if each rank makes them one after the other."""
    at = dict.fromkeys(rows, 0)
    todo = list(rows)
    while todo:
        rank = todo.pop()
        while at[rank] < len(rows[rank]):
            group = rows[rank][at[rank]]
            here = [member for member in group if member in rows]
            if any(at[m] >= len(rows[m]) or rows[m][at[m]] != group for m in here):
                break
            for member in here:
                at[member] += 1
            todo += [member for member in here if member != rank]
            if rank not in here:
                at[rank] += 1
    return sum(len(row) - at[rank] for rank, row in rows.items())
