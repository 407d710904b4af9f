"""Constraints on points, and objectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from armillary.base.errors import InputError, nearest
from armillary.base.units import format_bytes, format_count
from armillary.explore.sweep.expression import Expression
from armillary.explore.sweep.facts import FACTS
from armillary.explore.sweep.measures import MEASURES, Measure

FITS = "memory fits"
BEFORE = ("memory", "headroom", "fits", "price")
"""Measures that are known before anything is simulated."""

OF_RUN = ("run_time", "run_cost", "run_energy", "npu_years")
"""Measures of the whole run, which need its tokens."""
OF_COSTS = (
    "price", "price_per_hour", "cost_per_token", "power", "energy", "energy_per_token", "run_cost", "run_energy",
)  # fmt: skip
"""Measures that need prices and energies."""
OF_MODEL = (
    "memory",
    "headroom",
    "tokens_per_second",
    "samples_per_second",
    *OF_RUN,
    "cost_per_token",
    "energy_per_token",
)
"""Measures that only generated workloads have."""


@dataclass(frozen=True)
class Constraint:
    """A condition that each point must meet.

    Attributes:
        text: As written.
        expression: What must be true.
    """

    text: str
    expression: Expression

    @property
    def names(self) -> frozenset[str]:
        """Names that the expression reads."""
        return self.expression.names

    def broken(self, names: Mapping[str, Any]) -> str:
        """Return why a point violates it; empty if the point satisfies it.

        Raises:
            InputError: it has no value.
        """
        if self.expression.value(names):
            return ""
        # The one constraint whose numbers say more as amounts than as names.
        if self.text == FITS:
            memory, headroom = names["memory"], names["headroom"]
            return (
                f"memory: needs {format_bytes(memory)} of {format_bytes(memory + headroom)}, "
                f"{format_bytes(-headroom)} too much"
            )
        known = ", ".join(f"{name} {_shown(name, names[name])}" for name in sorted(self.names))
        return f"not {self.text}: {known}"


def constraint(text: str) -> Constraint:
    """Return the constraint that a text writes; "memory fits" is ``headroom >= 0``.

    Raises:
        InputError: it is malformed.
    """
    plain = " ".join(text.split())
    try:
        return Constraint(plain, Expression("headroom >= 0" if plain == FITS else plain))
    except InputError as error:
        raise InputError(f"{error}{nearest(plain, [FITS])}") from None


@dataclass(frozen=True)
class Objective:
    """A measure to minimize or maximize."""

    name: str
    goal: Literal["minimize", "maximize"]

    @property
    def measure(self) -> Measure:
        """What it is about."""
        return MEASURES[self.name]

    @property
    def sign(self) -> int:
        """1 where less is better, -1 where more is."""
        return 1 if self.goal == "minimize" else -1


def objective(text: str) -> Objective:
    """Return the objective that a text writes: ``minimize step_time``, or the name alone for its better way.

    Raises:
        InputError: there is no such measure or goal.
    """
    words = text.split()
    goals = ("minimize", "maximize")
    if len(words) not in (1, 2):
        raise InputError(f"got '{text}', expected 'minimize' or 'maximize' and the name of a measure")
    if words[-1] not in MEASURES:
        raise InputError(
            f"no such measure '{words[-1]}'{nearest(words[-1], MEASURES) or '; there are ' + ', '.join(MEASURES)}"
        )
    found = MEASURES[words[-1]]
    # Index 1, maximize, where more is better.
    goal = words[0] if len(words) == 2 else goals[found.better == "more"]
    if goal not in goals:
        raise InputError(f"got '{goal}', expected minimize or maximize{nearest(goal, goals)}")
    return Objective(found.name, "minimize" if goal == "minimize" else "maximize")


def known_names(axes: frozenset[str]) -> frozenset[str]:
    """Return all names that a constraint may use; `axes` are the names of axes and of derived values."""
    return axes | FACTS.keys() | MEASURES.keys()


def _shown(name: str, value: Any) -> str:
    if name in MEASURES:
        return MEASURES[name].show(value)
    return format_count(value) if isinstance(value, int | float) else str(value)
