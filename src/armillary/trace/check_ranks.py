"""What is odd or wrong about a whole trace: its graphs, and what its ranks expect of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from armillary.errors import InputError
from armillary.trace.check import Diagnostic, check
from armillary.trace.check_collectives import check_collectives, uses_of
from armillary.trace.check_deadlock import check_deadlock
from armillary.trace.check_messages import check_messages
from armillary.trace.communication import read_communication
from armillary.trace.process_groups import read_groups
from armillary.trace.trace import Trace


@dataclass(frozen=True)
class Findings:
    """What was found about a trace."""

    graphs: list[list[Diagnostic]]
    """About each distinct graph."""
    ranks: list[Diagnostic]
    """About what the ranks expect of each other."""

    @property
    def all(self) -> list[Diagnostic]:
        """All of them."""
        return [*(finding for graph in self.graphs for finding in graph), *self.ranks]


def check_trace(trace: Trace, groups: Mapping[int, tuple[int, ...]] | None = None) -> Findings:
    """Check every distinct graph, and then the ranks against each other.

    Sends must meet receives; the members of a group must run the same collectives in the same order; and no
    ranks may wait for each other in a circle. Equal graphs are looked at once, whatever the number of ranks.

    Args:
        trace: all ranks.
        groups: ranks of groups that the trace itself does not define, by number.
    """
    return Findings([check(graph) for graph in trace.graphs], check_ranks(trace, groups))


def check_ranks(trace: Trace, groups: Mapping[int, tuple[int, ...]] | None = None) -> list[Diagnostic]:
    """Check the ranks of a trace against each other only; see `check_trace`."""
    known, findings = read_groups(trace, groups)
    try:
        communication = read_communication(trace, known)
    except InputError as error:
        return [
            *findings,
            Diagnostic("warning", None, f"the ranks are not compared with each other: {error}"),
        ]
    uses = uses_of(communication)
    found, agreed = check_collectives(trace, known, uses)
    findings += found
    findings += check_messages(trace, communication)
    findings += check_deadlock(communication, uses, agreed)
    return sorted(findings, key=lambda finding: finding.severity != "error")
