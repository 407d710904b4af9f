"""Report of what an obfuscated trace still reveals: facts left in clear, and findings of the attack by rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.base.units import format_bytes
from armillary.lab.privacy.facts import facts_of, work_of
from armillary.lab.privacy.obfuscate import Obfuscated
from armillary.lab.privacy.public import named
from armillary.lab.privacy.rules import attack
from armillary.trace.columns import NodeType
from armillary.trace.trace import Trace

NEAREST = "public model"
"""Attribute of the attack by gradients: the public model with the nearest number of parameters, right or not."""
CLEAR = (
    "the number of ranks, and which of them share a graph",
    "sizes and members of communicators, and who sends to whom",
    "types of collectives, types of nodes, precisions, which kernels are the CPU's",
    "the simulated time, within the tolerance: it says how much work a step is",
    "totals, below level 3: that of the gradients is the number of parameters, which names a public model; level 3 "
    "scales totals by a factor of --totals at most, and the nearest public model is often still the right one",
)
"""Facts that a trace cannot hide and still be simulated."""
SURROGATE_CLEAR = (
    "the number of ranks",
    "the simulated time on each machine, within the tolerance: it says how much work a step is",
)
"""Facts about the original that a surrogate reveals."""


def remains(before: Trace, made: Obfuscated) -> dict[str, Any]:
    """Return the facts in clear and the findings of the attack by rules, before and after, as plain JSON values.

    Raises:
        InputError: a trace cannot be read.
    """
    tables = [in_clear(trace) for trace in (before, made.trace)]
    guesses = [{guess.attribute: guess for guess in attack(trace)} for trace in (before, made.trace)]
    return {
        "obfuscation": made.about(),
        "in_clear": [
            {"what": what, "before": tables[0][what], "after": tables[1][what]} for what in tables[0]
        ],
        "attack": [
            {
                "attribute": name,
                "before": guesses[0][name].value,
                "after": guesses[1][name].value,
                "why": guesses[1][name].why,
            }
            for name in guesses[0]
        ]
        + [
            {
                "attribute": NEAREST,
                "before": named(before),
                "after": named(made.trace),
                "why": "the total of the gradients that replicas reduce is its number of parameters",
            }
        ],
        "cannot_be_hidden": list(SURROGATE_CLEAR if made.reached.surrogate else CLEAR),
    }


def in_clear(trace: Trace) -> dict[str, str]:
    """Return amounts that anybody can count in a trace, with units."""
    facts = facts_of(trace)
    # Weights of the graphs: every amount below is an average over ranks, as ranks may run different graphs.
    share = facts.ranks / trace.n_ranks
    work = np.array([[int(column.sum()) for column in work_of(graph)] for graph in trace.graphs], np.float64)
    nodes = np.array([graph.n_nodes for graph in trace.graphs])
    sent = np.array(
        [graph.ints("comm_size")[graph.types == NodeType.COMM_SEND_NODE].sum() for graph in trace.graphs]
    )
    names = {name for graph in trace.graphs for name in graph.names()}
    circles = ", ".join(f"{c.size} at distance {c.stride}" for c in facts.circles if c.size > 1)
    return {
        "ranks": f"{trace.n_ranks:,}",
        "graphs": f"{len(trace.graphs):,}",
        "names": f"{len(names):,}",
        "nodes of a rank": f"{float(share @ nodes):,.0f}",
        "groups": circles or "none",
        "pipeline": f"{facts.stages} ranks",
        "operations of a rank": f"{float(share @ work[:, 0]):.3g}",
        "memory traffic of a rank": format_bytes(int(share @ work[:, 1])),
        "collectives of a rank": format_bytes(int(sum(circle.bytes for circle in facts.circles))),
        "messages of a rank": format_bytes(int(share @ sent)),
    }
