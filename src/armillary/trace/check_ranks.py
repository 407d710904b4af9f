"""Checks of a whole trace: its graphs, and what its ranks expect of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from armillary.base.errors import InputError
from armillary.trace._check import check
from armillary.trace.check_collectives import check_collectives, uses_of
from armillary.trace.check_deadlock import check_deadlock
from armillary.trace.check_messages import check_messages
from armillary.trace.communication import read_communication
from armillary.trace.cut import cut
from armillary.trace.expand import expand
from armillary.trace.structure import Diagnostic
from armillary.trace.trace import Trace, missing_ranks, read_groups

FEW_NODES = 200_000
"""Nodes of all ranks together up to which the ranks of a grid are all expanded."""
MOST_NODES = 5_000_000
"""Nodes from which the ranks of a grid are not compared, even those of the smaller one."""


@dataclass(frozen=True)
class Findings:
    """What was found about a trace."""

    graphs: list[list[Diagnostic]]
    """About each distinct graph."""
    ranks: list[Diagnostic]
    """About the communication between ranks."""

    @property
    def all(self) -> list[Diagnostic]:
        """All of them."""
        return [*(finding for graph in self.graphs for finding in graph), *self.ranks]


def check_trace(trace: Trace, groups: Mapping[int, tuple[int, ...]] | None = None) -> Findings:
    """Check every distinct graph, and then the ranks against each other.

    Sends must meet receives; the members of a group must run the same collectives in the same order; and no
    ranks may wait for each other in a circle. Equal graphs are checked once, whatever the number of ranks.

    Args:
        trace: all ranks.
        groups: ranks of groups that the trace itself does not define, by number.
    """
    return Findings([check(graph) for graph in trace.graphs], check_ranks(trace, groups))


def check_ranks(trace: Trace, groups: Mapping[int, tuple[int, ...]] | None = None) -> list[Diagnostic]:
    """Check the ranks of a trace against each other only; see `check_trace`.

    Those of a trace with a grid are expanded, or where they are many a smaller grid that is wrong exactly where
    the whole one is.
    """
    if trace.grid is not None:
        return _check_grid(trace)
    if missing := missing_ranks(trace):  # the given ranks wait for absent ones
        return [Diagnostic("warning", None, f"{missing}: only a replay of its recorded times can run it")]
    known, findings = read_groups(trace, groups)
    try:
        communication = read_communication(trace, known)
    except InputError as error:
        return [
            *findings,
            Diagnostic("warning", None, f"the ranks are not compared with each other: {error}"),
        ]
    # From here on the groups are known and every graph has an order of issue.
    uses = uses_of(communication)
    found, agreed = check_collectives(trace, known, uses)
    findings += found
    findings += check_messages(trace, communication)
    # Only groups whose members agree: a disagreement already has its own finding.
    findings += check_deadlock(communication, uses, agreed)
    return sorted(findings, key=lambda finding: finding.severity != "error")


def _check_grid(trace: Trace) -> list[Diagnostic]:
    where = ""
    try:
        # The cut grid is wrong exactly where the whole one is; see `cut` for the argument.
        if trace.total_nodes > FEW_NODES:
            trace, changed = cut(trace)
            # The ranks that messages name below are those of the smaller grid.
            where = f"in a grid with ranks left out ({changed}): " if changed else ""
        if trace.total_nodes > MOST_NODES:
            text = f"the ranks are not compared with each other: they have {trace.total_nodes} nodes together"
            return [Diagnostic("warning", None, f"{text}, more than {MOST_NODES}")]
        listed = expand(trace)
    except InputError as error:
        return [Diagnostic("error", None, str(error))]
    return [replace(finding, message=where + finding.message) for finding in check_ranks(listed)]
