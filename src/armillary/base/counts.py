"""Limits on how many things a file or an option may request: repeated things are counted before they exist."""

from __future__ import annotations

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.units import format_count

MOST_JOBS = 10_000
"""Jobs of a study, repetitions included: each is placed and reported, which takes 2.5 ms."""
MOST_PAIRS = 4_000_000
"""Pairs of jobs that are on an NPU at once, each of which is named in the result: 0.5 GB."""
MOST_RECORDED = 2_000_000
"""Nodes that a converter makes one by one: 10 s of them, and 3 GB."""
MOST_ROWS = 2_000_000
"""Rows of a table in CSV: 10 s, at 4 to 6 us each."""
MOST_RANK_FILES = 50_000
"""Ranks of one file that is converted, each of which becomes a file: 20 to 30 s."""
MOST_HELD = 5_000_000
"""Layers that a step goes through, each after which what is held is computed: 30 s, and 0.8 GB."""
MOST_EVENTS = 10_000_000_000
"""Events of a network that moves messages or packets, by their estimate: 40 minutes."""
MOST_CHUNKS = 1_000_000
"""Chunks of a collective: each goes through all its phases."""
MOST_ENTRIES = 1_000
"""Entries each of vary, let, where and objectives of a sweep: all are looked at for every point."""
MOST_POINTS = 10_000_000
"""Points of a sweep, each of which is looked at: 1 to 3 hours of one core before the first is simulated."""
MOST_TRIALS = 100_000
"""Points that a search looks at one after the other."""
MOST_DRAWS = 100_000
"""Traces or training runs that are drawn."""


def check_rank_files(ranks: int, what: str) -> None:
    """Refuse to make more files, one for each rank, than one file may ask for.

    Raises:
        InputError: there would be more than `MOST_RANK_FILES`.
    """
    check_count(ranks, MOST_RANK_FILES, f"{what}: ranks, each of which becomes a file", "fewer ranks")


def check_count(count: float, most: float, what: str, change: str) -> None:
    """Refuse more than `most` of something.

    Args:
        count: How many there would be.
        most: How many there may be.
        what: What they are, with what asks for them: "--passes 100000000: nodes".
        change: What to do about it.

    Raises:
        InputError: there would be more.
    """
    allowed = limit(most)
    if count > allowed:
        # Numbers of files may be beyond a float.
        shown, raised = format_count(10**18), "ARMILLARY_LIMITS=inf lifts all limits"
        if count < 1e18:
            shown, raised = format_count(int(count)), how_to_raise(count / allowed)
        raise InputError(
            f"{what}: {'' if count < 1e18 else 'over '}{shown} of them, expected at most {format_count(int(allowed))}: "
            f"{change} ({raised})"
        )
