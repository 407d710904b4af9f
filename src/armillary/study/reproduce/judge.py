"""Verdicts that follow from numbers, and how they are worded."""

from __future__ import annotations

from collections.abc import Sequence

from armillary.study.reproduce.outcome import Verdict


def by_count(good: int, of: int) -> Verdict:
    """Return "holds" if all cases agree with the claim, "partly" if some do, else "fails"."""
    return "holds" if good == of else "partly" if good else "fails"


def joined(parts: Sequence[str]) -> str:
    """Return ``"a, b and c"``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def percent(ratio: float) -> str:
    """Return by how much a ratio differs from 1: ``"+3.2 %"``."""
    return f"{100 * (ratio - 1):+.1f} %"
