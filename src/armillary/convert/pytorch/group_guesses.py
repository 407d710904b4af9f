"""Corrects guessed process groups by all ranks together: tries other groups until all calls find their partners.

One rank's trace may leave open which of several groups of equal size a call belongs to. All ranks together decide it:
members of a group make the same calls in the same order, and if every rank makes its calls one after another, the run
must complete.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from armillary.convert.pytorch.communication import RECV, SEND, Communication
from armillary.convert.pytorch.process_groups import ProcessGroups

# Coordinate descent: a place is decided with the others held, so a change may make another worth trying.
_ROUNDS = 4
_MOST = 200_000
"""With more calls, guesses stay as they are: every alternative costs a rehearsal of all calls."""

Key = tuple[str, ...]
Cost = tuple[int, int]
"""Calls without a partner, and calls that a rehearsal does not reach; compared in this order."""


def refute_guesses(ranks: Mapping[int, ProcessGroups], calls: Mapping[int, Sequence[Communication]]) -> None:
    """Choose for each rank the groups with which the calls of all `ranks` fit best.

    Calls from one place of the program belong to one group, so they are decided together.
    """
    open_calls: dict[Key, list[tuple[int, Communication]]] = defaultdict(list)
    for rank, made in calls.items():
        for one in made:
            # Two names of the same members are no question: the calls meet the same partners either way.
            if len({ranks[rank].ranks[name] for name in ranks[rank].candidates(one)}) > 1:
                open_calls[_place(one)].append((rank, one))
    if not open_calls or len(ranks) < 2 or sum(map(len, calls.values())) > _MOST:
        return
    best = _cost(ranks, calls)
    for _ in range(_ROUNDS):
        before = best
        # The places with most calls first: they decide most partners, and so fix the others.
        for key in sorted(open_calls, key=lambda key: -len(open_calls[key])):
            if best == (0, 0):
                return
            # A choice is a description rather than a name, as every rank counts its groups' names on its own.
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
    """Return a key that calls from one place of the program share on all ranks."""
    if one.kind in (SEND, RECV):
        return ("messages",)  # a send and its receive stand at different places
    # Numbers differ between ranks and steps (``ProfilerStep#3``, layer indices); three levels tell places apart.
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
                # Members of an all-to-all may send different sizes, and an unknown size contradicts none:
                # -1 for both.
                rows[rank].append((group, one.kind, one.size if one.sized and not one.splits else -1))
            elif one.peer is not None:
                other = group[one.peer] if one.peer < len(group) else rank
                lacking += other == rank  # nobody writes to himself
                ends = (rank, other) if one.kind == SEND else (other, rank)
                # Sends count up and receives down, so what does not cancel has no partner.
                messages[(*ends, one.size, one.tag)] += 1 if one.kind == SEND else -1
    # Messages to ranks without a trace have their partners there, presumably.
    given = set(calls)
    lacking += sum(abs(count) for ends, count in messages.items() if given.issuperset(ends[:2]))
    by_group: dict[tuple[int, ...], dict[int, list[tuple[str, int]]]] = defaultdict(dict)
    for rank, row in rows.items():
        for group, kind, size in row:
            by_group[group].setdefault(rank, []).append((kind, size))
    for group, of_rank in by_group.items():
        there = [of_rank.get(rank, []) for rank in group if rank in given]
        longest = max(map(len, there), default=0)
        # The k-th call of a group must be the same on all given members.
        for at in range(longest):
            lacking += len({calls_of[at] if at < len(calls_of) else None for calls_of in there}) > 1
    return lacking, _unreached({rank: [row[0] for row in made] for rank, made in rows.items()})


def _unreached(rows: Mapping[int, Sequence[tuple[int, ...]]]) -> int:
    """Return how many collectives never complete if each rank makes its own one after another."""
    at = dict.fromkeys(rows, 0)
    todo = list(rows)
    while todo:
        rank = todo.pop()
        while at[rank] < len(rows[rank]):
            group = rows[rank][at[rank]]
            # Ranks without a trace are taken to be ready. A collective completes once it is next on all the others.
            here = [member for member in group if member in rows]
            if any(at[m] >= len(rows[m]) or rows[m][at[m]] != group for m in here):
                break
            for member in here:
                at[member] += 1
            # Its completion may have made the next call of the other members possible.
            todo += [member for member in here if member != rank]
            # A wrong guess may name a group without this rank; go on past it.
            if rank not in here:
                at[rank] += 1
    return sum(len(row) - at[rank] for rank, row in rows.items())
