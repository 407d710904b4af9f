"""Which process group the threads of gloo work for: each group has its own, made in the order of the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EACH = 2
"""Threads that gloo starts for a group."""

Score = tuple[int, ...]


def groups_of_threads(scores: Mapping[int, Mapping[str, Score]], order: Sequence[str]) -> dict[int, str]:
    """Return the group of each thread, the likeliest for all together; empty where no assignment fits.

    Args:
        scores: for every thread the groups that its collectives allow, and how likely each is.
        order: the groups in the order in which they were made.
    """
    place = {name: at for at, name in enumerate(order)}
    best: dict[tuple[int, int], tuple[Score, tuple[str, ...]]] = {(-1, EACH): ((), ())}
    before = None
    for tid in sorted(scores):
        found: dict[tuple[int, int], tuple[Score, tuple[str, ...]]] = {}
        gap = 0 if before is None else tid - before
        before = tid
        for (last, used), (score, names) in best.items():
            for name, more in scores[tid].items():
                at = place.get(name, -1)
                if at < last or (at == last and used == EACH):
                    continue
                together = (gap == 1) == (at == last)  # threads of one group are started one after the other
                both = (int(together), *more)
                total = tuple(map(sum, zip(score, both, strict=True))) if score else both
                key = at, used + 1 if at == last else 1
                if key not in found or found[key][0] < total:
                    found[key] = total, (*names, name)
        best = found
    _, names = max(best.values(), default=((), ()))
    return dict(zip(sorted(scores), names, strict=True)) if names else {}
