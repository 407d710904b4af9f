"""Verdicts that follow from numbers, and how they are worded."""

from __future__ import annotations

from collections.abc import Sequence

from armillary.study.reproduce.outcome import Verdict


def verdict(holds: bool, partly: bool = False) -> Verdict:
    """Return the first of "holds" and "partly" that is true, else "fails"."""
    return "holds" if holds else "partly" if partly else "fails"


def by_count(good: int, of: int) -> Verdict:
    """Return "holds" if all cases agree with the claim, "partly" if some do, else "fails"."""
    return verdict(good == of, good > 0)


def near(found: float, stated: float, within: float, partly: float) -> Verdict:
    """Return whether two numbers differ by at most `within`, or at least by at most `partly`."""
    return verdict(abs(found - stated) <= within, abs(found - stated) <= partly)


def joined(parts: Sequence[str]) -> str:
    """Return ``"a, b and c"``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def share(part: float, digits: int = 1) -> str:
    """Return a part of 1: ``"78.8 %"``."""
    return f"{round(100 * part, digits) + 0.0:.{digits}f} %"


def percent(ratio: float, digits: int = 1) -> str:
    """Return by how much a ratio differs from 1: ``"+3.2 %"``."""
    return f"{round(100 * (ratio - 1), digits) + 0.0:+.{digits}f} %"
