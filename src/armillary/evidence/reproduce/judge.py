"""What a verdict word means, for all studies, and how the numbers under it are worded.

A claim is judged by cases: our number, or our interval, beside the range that the claim allows. Nothing else
decides the word, so whoever reads numbers and `DEFINITION` finds the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isinf, isnan
from typing import Any, Literal

Verdict = Literal["holds", "partly", "does not hold", "open"]
TOLERANCE = 0.1
"""Relative tolerance of a stated number: twice the 5 % by which ISPASS 2023 finds its own simulator off V100 rings."""
POINTS = 0.05
"""Absolute tolerance of a stated share of a whole: a share and its rest (87.7 % used, 12.3 % idle) are judged alike."""
VERDICTS: dict[Verdict, str] = {
    "holds": "all cases agree",
    "partly": "some cases agree, or our interval reaches into the range",
    "does not hold": "no case agrees, and none reaches into the range",
    "open": "the source gives nothing to compare with",
}
STYLES: dict[Verdict, str] = {"holds": "green", "partly": "yellow", "does not hold": "red", "open": "dim"}
DEFINITION = (
    f"A case agrees if our number, or our whole interval over seeds, is in the range of the claim: a stated number "
    f"± {TOLERANCE:.0%}, a stated share of a whole ± {100 * POINTS:.0f} points, a bound or an order as it stands; "
    "another tolerance is written beside the number. "
).replace("10%", "10 %") + "; ".join(f"{word}: {meaning}" for word, meaning in VERDICTS.items())


def times(value: float) -> str:
    """Return a ratio: ``"2.51x"``."""
    return f"{value:.2f}x"


def share(part: float, digits: int = 1) -> str:
    """Return a part of 1: ``"78.8 %"``."""
    # + 0.0 turns -0.0 into 0.0, which would be written with a sign.
    return f"{round(100 * part, digits) + 0.0:.{digits}f} %"


def percent(ratio: float, digits: int = 1) -> str:
    """Return by how much a ratio differs from 1: ``"+3.2 %"``."""
    return f"{round(100 * (ratio - 1), digits) + 0.0:+.{digits}f} %"


@dataclass(frozen=True)
class Expected:
    """The range that a claim allows.

    Attributes:
        text: The claim's number, and the tolerance or relation: ``"4.60x ± 10 %"``, ``"above 1.00x"``.
        low: Least number that agrees.
        high: Largest.
        show: Writes a number of this kind.
        ends: Whether `low` and `high` agree themselves.
    """

    text: str
    low: float
    high: float
    show: Callable[[float], str]
    ends: bool = True

    def agrees(self, low: float, high: float) -> bool:
        """Return whether all of an interval is in the range; NaN never is."""
        if self.ends:
            # One chained comparison: NaN makes it false.
            return self.low <= low <= high <= self.high
        return self.low < low <= high < self.high

    def reached(self, low: float, high: float) -> bool:
        """Return whether an interval and the range have a number in common."""
        if self.ends:
            return low <= high and low <= self.high and high >= self.low
        return low <= high and low < self.high and high > self.low


def stated(number: float, show: Callable[[float], str] = times, within: float = TOLERANCE) -> Expected:
    """Return the range of a stated number, which may differ by the part `within` of it."""
    # abs: a stated number may be negative.
    around = within * abs(number)
    return Expected(f"{show(number)} ± {100 * within:g} %", number - around, number + around, show)


def stated_share(part: float, points: float = POINTS, digits: int = 1) -> Expected:
    """Return the range of a stated share of a whole, a part of 1."""
    return Expected(f"{share(part, digits)} ± {100 * points:g} points", part - points, part + points, share)


def at_most(number: float, show: Callable[[float], str] = times) -> Expected:
    """Return all numbers up to a bound."""
    return Expected(f"at most {show(number)}", -inf, number, show)


def at_least(number: float, show: Callable[[float], str] = times) -> Expected:
    """Return all numbers from a bound on."""
    return Expected(f"at least {show(number)}", number, inf, show)


def above(number: float, show: Callable[[float], str] = times) -> Expected:
    """Return all larger numbers; above 1, as a ratio of times, is the order "faster than"."""
    return Expected(f"above {show(number)}", number, inf, show, ends=False)


def below(number: float, show: Callable[[float], str] = times) -> Expected:
    """Return all smaller numbers."""
    return Expected(f"below {show(number)}", -inf, number, show, ends=False)


@dataclass(frozen=True)
class Case:
    """One of the numbers that a claim is judged by.

    Attributes:
        name: What it was found for; empty if it is the only one.
        ours: Our number; or (least, largest) of repeated runs with other seeds. A sweep over what we chose
            ourselves is no interval: a wider one would agree with more.
        expected: What the claim allows.
    """

    name: str
    ours: float | tuple[float, float]
    expected: Expected

    @property
    def interval(self) -> tuple[float, float]:
        """Our number as an interval."""
        return self.ours if isinstance(self.ours, tuple) else (self.ours, self.ours)

    @property
    def agrees(self) -> bool:
        """Whether all of ours is in the range."""
        return self.expected.agrees(*self.interval)

    @property
    def reaches(self) -> bool:
        """Whether some of ours is."""
        return self.expected.reached(*self.interval)

    def number(self) -> str:
        """Return ours as text: ``"4.33x"``, ``"1.02x to 1.10x"``; NaN is "none"."""
        # dict.fromkeys: equal ends are written once.
        texts = dict.fromkeys("none" if isnan(each) else self.expected.show(each) for each in self.interval)
        return " to ".join(texts)

    def row(self) -> dict[str, Any]:
        """Return it for JSON; null is no number in our interval, and no bound in the range."""
        # JSON has no infinity.
        low, high = (None if isinf(end) else end for end in (self.expected.low, self.expected.high))
        return {
            "name": self.name, "expected": self.expected.text, "ours": [_written(end) for end in self.interval],
            "range": [low, high], "ends": self.expected.ends, "agrees": self.agrees,
        }  # fmt: skip


def _written(number: float) -> float | str | None:
    return None if isnan(number) else str(number) if isinf(number) else float(number)


def judge(cases: Sequence[Case]) -> Verdict:
    """Return the verdict on a claim; this and `Expected` are the definition, `DEFINITION` says it in words."""
    if not cases:
        return "open"
    # Order matters: no case is "open", all is "holds", some is "partly".
    if all(case.agrees for case in cases):
        return "holds"
    return "partly" if any(case.reaches for case in cases) else "does not hold"


def numbers(cases: Sequence[Case]) -> str:
    """Return what the claim says, each range once."""
    return ", ".join(dict.fromkeys(case.expected.text for case in cases)) or "none"


def ours(cases: Sequence[Case], listed: int = 6) -> str:
    """Return what we found: by name, or of more than `listed` cases the ends and how many agree."""
    if not cases:
        return "none"
    if len(cases) <= listed:
        return ", ".join(f"{case.name} {case.number()}".strip() for case in cases)
    # Ends over all cases: the least low and the largest high.
    least, most = min(cases, key=lambda case: case.interval[0]), max(cases, key=lambda case: case.interval[1])
    ends = f"{least.expected.show(least.interval[0])} to {most.expected.show(most.interval[1])}"
    return f"{ends}; {sum(case.agrees for case in cases)} of {len(cases)} agree"


def joined(parts: Sequence[str]) -> str:
    """Return ``"a, b and c"``."""
    # The last part joins with "and"; filter drops an empty head.
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
