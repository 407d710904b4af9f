"""Align two sequences of operator names that are almost the same, in near-linear time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

# Runs of 12 names rarely recur within a step, so their places tell where a trace of one step lies. The caps
# bound the time on traces of millions of events, where common runs would vote everywhere.
_GRAM = 12
_SAMPLES = 64
_MOST_VOTES = 1_000_000
_MOST_EDITS = 600


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the pairs of positions at which the sequences are equal, ascending in both; a longest such list.

    If `second` is much longer (a device trace of many steps), only the stretch of it that is most like `first` is
    aligned. Sequences that differ by more than 600 edits give only the pairs before the first and after the last edit.
    Of equally long lists, the result is one whose pairs lie close together.
    The algorithm is that of Myers (Algorithmica 1986, greedy, section 3): O((N + M) D) for D edits.
    """
    found: list[tuple[int, int]] = []
    for start, after in _windows(first, second):
        part = second[start:after]
        pairs = [(at, to + start) for at, to in _together(_edit_path(first, part), first, part)]
        found = max(found, pairs, key=len)
        if len(found) == len(first) or len(found) < len(first) // 2:  # nothing to gain, or nothing alike
            break
    return found


def _together(
    pairs: list[tuple[int, int]], first: Sequence[Hashable], second: Sequence[Hashable]
) -> list[tuple[int, int]]:
    """Move pairs as far as possible towards the middle one, so that the ends do not stray into other steps."""
    middle = len(pairs) // 2
    for i in (*range(middle - 1, -1, -1), *range(middle + 1, len(pairs))):
        (at, to), toward = pairs[i], 1 if i < middle else -1
        # The equal name nearest to the neighbour that is placed already.
        between = range(pairs[i + toward][1] - toward, to, -toward)
        pairs[i] = at, next((other for other in between if second[other] == first[at]), to)
    return pairs


def _windows(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the stretches of `second` on whose diagonal most samples of `first` lie: exactly, and with slack."""
    n, m = len(first), len(second)
    # Nearly as long: align with all of it.
    if m <= n + n // 4 + _GRAM or n < _GRAM:
        return [(0, m)]
    places: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    for at in range(m - _GRAM + 1):
        places[tuple(second[at : at + _GRAM])].append(at)
    # A diagonal is an offset of `second` against `first`; every place of a sampled run votes for its own.
    samples = [
        [place - at for place in places.get(tuple(first[at : at + _GRAM]), ())]
        for at in range(0, n - _GRAM + 1, max(1, n // _SAMPLES))
    ]
    votes: Counter[int] = Counter()
    for diagonals in sorted(samples, key=len):  # the rarer, the more it tells
        if votes and votes.total() + len(diagonals) > _MOST_VOTES:
            break
        votes.update(diagonals)
    if not votes:
        return [(0, n)]
    best = max(votes.items(), key=lambda item: (item[1], -item[0]))[0]
    slack = min(n // 20, _MOST_EDITS // 4)
    return [(max(0, best - more), min(m, best + n + more)) for more in (0, slack)]


def _edit_path(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    n, m = len(first), len(second)
    # Common ends need no search; what is left between them is mostly empty.
    head = 0
    while head < min(n, m) and first[head] == second[head]:
        head += 1
    tail = 0
    while tail < min(n, m) - head and first[n - 1 - tail] == second[m - 1 - tail]:
        tail += 1
    ends = [(at, at) for at in range(head)] + [(n - tail + at, m - tail + at) for at in range(tail)]
    middle = _myers(first[head : n - tail], second[head : m - tail])
    return sorted(ends + [(at + head, to + head) for at, to in middle])


def _myers(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    n, m = len(first), len(second)
    if not n or not m:
        return []
    # The farthest x on each diagonal k = x - y with as many edits; k = 1 starts the greedy step at (0, 0).
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, _MOST_EDITS) + 1):
        history.append(
            # Only diagonals that `_back` may ask for are saved: memory grows with D², not with N D.
            dict(reach) if edits < 2 else {k: reach[k] for k in range(-edits, edits + 1) if k in reach}
        )
        for k in range(-edits, edits + 1, 2):
            # A step down inserts a name of `second`, one to the right drops a name of `first`; the farther
            # one is taken.
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            # Myers' snake: equal names cost no edit.
            while x < n and y < m and first[x] == second[y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= n and y >= m:
                return _back(history, n, m)
    return []


def _back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """Walk the edits back to the start and collect the diagonal moves."""
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach, k = history[edits], x - y
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        from_x = reach[before]
        from_y = from_x - before
        while x > from_x and y > from_y and (x, y) != (0, 0):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        if edits == 0:
            break
        x, y = from_x, from_y
    return pairs[::-1]
