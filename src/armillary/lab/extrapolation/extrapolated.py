"""The result of an extrapolation: a trace, and the assumptions it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from armillary.lab.extrapolation.roles import Evidence
from armillary.trace import Trace


@dataclass(frozen=True)
class Assumption:
    """A rule that was applied.

    Attributes:
        rule: What was assumed.
        nodes: Nodes of all distinct graphs that it was applied to; 0: it is about ranks.
    """

    rule: str
    nodes: int


@dataclass(frozen=True)
class Unclassified:
    """Work that no rule knows, so that it stays as it was.

    Attributes:
        operations: Share of the operations of all ranks, for the axis with the largest share.
        bytes: Share of the bytes of kernels, likewise.
        names: Name of such nodes -> their number in all distinct graphs, most bytes first.
    """

    operations: float = 0.0
    bytes: float = 0.0
    names: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Extrapolated:
    """A trace of another size, and the assumptions it rests on.

    Attributes:
        trace: Symbolic (with a `Trace.grid`), so that its size does not depend on the number of ranks.
        axes: The axes of the trace before, and why they are what they are.
        changes: Axis -> (before, after); factors start at 1.
        assumptions: In the order of the changes.
        unclassified: How much work no rule knows.
    """

    trace: Trace
    axes: tuple[Evidence, ...]
    changes: Mapping[str, tuple[Fraction, Fraction]]
    assumptions: tuple[Assumption, ...]
    before: Trace
    unclassified: Unclassified = field(default_factory=Unclassified)

    def report(self) -> dict[str, Any]:
        """Return the report as values that JSON can hold."""
        return {
            "schema": "armillary-extrapolation",
            "version": 1,
            "axes": [{"axis": each.role, "ranks": each.size, "because": each.reason} for each in self.axes],
            "changes": {
                axis: {"from": _number(old), "to": _number(new)} for axis, (old, new) in self.changes.items()
            },
            "assumptions": [{"rule": each.rule, "nodes": each.nodes} for each in self.assumptions],
            "unclassified": {
                "operations": self.unclassified.operations,
                "bytes": self.unclassified.bytes,
                "nodes": dict(self.unclassified.names),
            },
            "ranks": {"from": self.before.n_ranks, "to": self.trace.n_ranks},
            "nodes": {"from": self.before.total_nodes, "to": self.trace.total_nodes},
        }


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
