"""The surroundings of a piece in a program: the roles before and after it."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS: tuple[tuple[str, ...], ...] = (
    (),
    ("before",),
    ("after",),
    ("before", "after"),
    ("next", "next2"),
    ("next", "next2", "next3"),
    ("past", "next", "next2", "next3"),
    ("before2", "before", "after", "after2"),
    ("before2", "before", "past", "next", "next2", "next3"),
    ("before", "past", "next", "next2", "next3", "nth", "left", "turn"),
)
"""Sets of keys that may decide on the numbers of a piece, from the smallest to the largest."""
KEYS = ("before", "before2", "after", "after2", "past", "next", "next2", "next3", "nth", "left", "turn")
"""`before`, `before2`, `after`, `after2` are the roles of the neighbours, `past`, `next`, `next2`, `next3` those of the
nearest that are not loose; `nth` and `left` count the pieces of the same role right before and after, `turn` those
before in the same block of a microbatch, 2 at most."""


def surroundings(
    roles: Sequence[str], loose: Sequence[bool], microbatches: Sequence[int]
) -> list[tuple[str, ...]]:
    """Return the values of `KEYS` for every piece; "" where there is none."""
    n = len(roles)
    turns: dict[str, int] = {}
    firm = [at for at in range(n) if not loose[at]]
    # Two blanks on each side, so that neighbours of the first and last pieces need no branch: piece `at` is at + 2.
    padded = ["", "", *roles, "", ""]
    names = [roles[at] for at in firm] + ["", "", "", ""]
    found: list[tuple[str, ...]] = []
    ahead = 0
    for at in range(n):
        # From here on firm[ahead] is the next firm piece after this one.
        while ahead < len(firm) and firm[ahead] <= at:
            ahead += 1
        if at and microbatches[at] != microbatches[at - 1]:
            turns = {}
        turn = turns.get(roles[at], 0)
        turns[roles[at]] = min(2, turn + 1)
        # A firm piece is itself the last one up to here, so its `past` is the one before.
        own = ahead > 0 and firm[ahead - 1] == at
        past = ahead - 1 - own
        found.append(
            (
                padded[at + 1], padded[at], padded[at + 3], padded[at + 4],
                roles[firm[past]] if past >= 0 else "", names[ahead], names[ahead + 1], names[ahead + 2],
                _alike(roles, at, -1), _alike(roles, at, 1), str(turn),
            )
        )  # fmt: skip
    return found


def _alike(roles: Sequence[str], at: int, step: int) -> str:
    """Return the number of consecutive neighbours in a direction with the same role, at most 2, as text."""
    count = 0
    while (
        count < 2
        and 0 <= at + step * (count + 1) < len(roles)
        and roles[at + step * (count + 1)] == roles[at]
    ):
        count += 1
    return str(count)


def at_level(around: tuple[str, ...], level: int) -> tuple[str, ...]:
    """Return the part of a piece's surroundings that a level of `LEVELS` uses."""
    return tuple(around[KEYS.index(key)] for key in LEVELS[level])
