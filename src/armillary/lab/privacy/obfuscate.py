"""Obfuscation that keeps simulated times: at the requested strength, or the strongest that the times allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.base.errors import ArmillaryError, InputError
from armillary.engine.common.timeline import Timeline
from armillary.lab.obfuscation.coarsen import Spans
from armillary.lab.obfuscation.keyed import Floats, generator
from armillary.lab.obfuscation.relabel import Draft, Legend, Members, relabel
from armillary.lab.obfuscation.restructure import restructure
from armillary.lab.obfuscation.sizes import perturb
from armillary.lab.privacy.balance import balance, simulate_on
from armillary.lab.privacy.machines import Machine
from armillary.lab.privacy.surrogate import surrogate
from armillary.trace.check_ranks import check_trace
from armillary.trace.trace import Trace

WINDOWS = 6
"""Windows added to a graph on average, at full strength."""


_LEAST = 1e-3
"""Share below which sizes are no longer perturbed."""


@dataclass(frozen=True)
class Strength:
    """What to hide, and how much of it.

    Attributes:
        sizes: Factor minus 1 by which single sizes, operations and times may be wrong; 0: they are right.
        structure: Whether nodes are joined, split and reordered.
        totals: Factor by which the total of each kind of work may be wrong, while the time stays; 1: not at all.
        surrogate: Whether another workload replaces the original; the other attributes do not matter then.
    """

    sizes: float = 0.0
    structure: bool = False
    totals: float = 1.0
    surrogate: bool = False

    def __post_init__(self) -> None:
        """Refuse values that are out of range.

        Raises:
            InputError: a number is out of range.
        """
        if not 0 <= self.sizes <= 1:
            raise InputError(f"sizes {100 * self.sizes:g} %: expected 0 % to 100 %")
        if not 1 <= self.totals <= 100:
            raise InputError(f"totals {self.totals:g}: expected a factor from 1 to 100")


LEVELS = {1: Strength(), 2: Strength(0.05), 3: Strength(0.05, True, 4.0), 4: Strength(surrogate=True)}


@dataclass(frozen=True, eq=False)
class Obfuscated:
    """An obfuscated trace.

    Attributes:
        trace: The trace.
        legend: The original names behind its names.
        asked: The requested strength.
        reached: The strength that was reached.
        windows: Windows added on average; None: graphs were not cut into windows.
        machines: Names of the machines.
        ticks: Time of the original on each, (machines,).
        errors: Share by which the obfuscated trace takes longer on each, (machines,).
    """

    trace: Trace
    legend: Legend
    asked: Strength
    reached: Strength
    windows: int | None
    machines: tuple[str, ...]
    ticks: Floats
    errors: Floats

    def about(self) -> dict[str, Any]:
        """Return what was reached, as plain JSON values; nothing in it is secret."""
        return {
            "asked": vars(self.asked),
            "reached": vars(self.reached),
            "windows": self.windows,
            "times": [
                {"machine": name, "original_ns": int(ticks), "error": round(float(error), 6)}
                for name, ticks, error in zip(self.machines, self.ticks, self.errors, strict=True)
            ],
        }


def obfuscate(
    trace: Trace,
    machines: Sequence[Machine],
    strength: Strength,
    *,
    tolerance: float = 0.05,
    key: str = "",
    groups: Members | None = None,
) -> Obfuscated:
    """Return a trace that hides as much as `strength` requests, or less if its times would not stay.

    A surrogate is never weakened: it is found or refused.

    Args:
        trace: The original.
        machines: Machines on which its time must stay.
        strength: What to hide.
        tolerance: Share by which the time may differ on any machine.
        key: Key of all random choices; whoever has it can undo some of them.
        groups: Groups of ranks that the trace does not define.

    Raises:
        InputError: the original cannot be simulated on a machine, `tolerance` is out of range, or no surrogate fits.
    """
    if not 0 < tolerance <= 1:
        raise InputError(f"tolerance {100 * tolerance:g} %: expected more than 0 % and no more than 100 %")
    draft, legend = relabel(trace, key, groups)
    lines = [simulate_on(draft, machine) for machine in machines]
    ticks = np.array([max(line.total_ticks, 1) for line in lines], np.float64)
    if strength.surrogate:
        # Nothing of the original but its rank count and times enters, so there is no name to list in the legend.
        other = surrogate(trace.n_ranks, machines, ticks, tolerance, key)
        return Obfuscated(
            other.draft.trace(), Legend(), strength, strength, None, _names(machines), ticks, np.expm1(other.errors)
        )  # fmt: skip
    for number, (reached, windows, made) in enumerate(_weaker(draft, lines, strength, key)):
        # The last candidate: other names alone. Its times are those of the original and need no simulation.
        if made is draft:
            return Obfuscated(
                draft.trace(),
                legend,
                strength,
                reached,
                None,
                _names(machines),
                ticks,
                np.zeros(len(machines)),
            )
        # Each candidate draws its own factors: those of one that failed would fail again.
        draw = generator(key, "totals", number)
        errors = None
        if reached.structure or reached.totals > 1:
            found = balance(made, machines, ticks, tolerance, reached.totals, draw)
            if found is not None:
                made, errors = found.draft, found.errors
                largest = max((max(f, 1 / f) for f in found.factors.values()), default=1.0)
                # The largest factor in use, which may be less than was allowed.
                reached = replace(reached, totals=round(float(largest), 3))
        else:
            errors = _times(made, machines, ticks)
        if errors is not None and (np.abs(np.expm1(errors)) <= tolerance).all() and _sound(made, draft):
            return Obfuscated(
                made.trace(), legend, strength, reached, windows, _names(machines), ticks, np.expm1(errors)
            )
    raise AssertionError("names alone always hold")


def _names(machines: Sequence[Machine]) -> tuple[str, ...]:
    return tuple(machine.name for machine in machines)


def _weaker(
    draft: Draft, lines: Sequence[Timeline], asked: Strength, key: str
) -> Iterator[tuple[Strength, int | None, Draft]]:
    """Yield (strength, windows, trace before its totals are set), from the requested strength to ever weaker ones."""
    if asked.structure:
        spans = spans_of(draft, lines[0])
        # More windows are shorter windows, in which less can move: the time comes closer to the original's.
        for share in (1, 3, 9):
            made, cut = restructure(draft, spans, key, WINDOWS * share, "windows")
            yield asked, WINDOWS * share if cut else None, perturb(made, asked.sizes, key)
        # Without windows, only kernels that wait for each other alone are joined.
        made, _ = restructure(draft, spans, key, 0, "runs")
        yield asked, None, perturb(made, asked.sizes, key)
    if asked.totals > 1:
        # A copy, since `obfuscate` takes the draft itself for the last candidate, and `perturb` may return
        # what it got.
        yield replace(asked, structure=False), None, perturb(replace(draft), asked.sizes, key)
    sizes = asked.sizes
    while sizes > _LEAST:
        yield Strength(sizes), None, perturb(draft, sizes, key)
        sizes /= 2
    yield Strength(), None, draft


def _times(draft: Draft, machines: Sequence[Machine], ticks: Floats) -> Floats | None:
    try:
        return np.log([max(simulate_on(draft, machine).total_ticks, 1) for machine in machines]) - np.log(
            ticks
        )
    except ArmillaryError:
        return None


def _sound(made: Draft, draft: Draft) -> bool:
    """Return whether the ranks still agree: no findings, or no more than the original has."""
    found = _errors(made)
    return not found or found <= _errors(draft)


def _errors(draft: Draft) -> int:
    return sum(finding.severity == "error" for finding in check_trace(draft.trace()).all)


def spans_of(draft: Draft, line: Timeline) -> dict[int, Spans]:
    """Return start and end of the nodes of one graph of each structure, by structure."""
    found = {}
    for kind in sorted(set(draft.alike)):
        graph = draft.alike.index(kind)
        rank = int(np.flatnonzero(draft.rank_graph == graph)[0])
        start, end = line.spans(int(line.rank_class[rank]))
        count = draft.rows[graph].n
        found[kind] = Spans(np.asarray(start[:count], np.int64), np.asarray(end[:count], np.int64))
    return found
