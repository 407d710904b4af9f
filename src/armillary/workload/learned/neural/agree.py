"""The most probable programs of pipeline stages of which neighbours fit, found stage by stage (Viterbi, 1967)."""

from __future__ import annotations

from collections.abc import Sequence

from armillary.trace import NodeType
from armillary.workload.learned.agreement import messages, shared_calls
from armillary.workload.learned.tokens import Tokens
from armillary.workload.learned.vocabulary import Vocabulary

Candidate = tuple[float, Tokens]
"""The logarithm of its probability, and the sequence."""


def most_probable(stages: Sequence[Sequence[Candidate]], vocabulary: Vocabulary) -> list[Tokens] | None:
    """Return one candidate of each stage such that all neighbours fit; None: there are none.

    Messages between stages that are no neighbours are left to `check_agreement`.
    """
    ends = [[_Ends(tokens, vocabulary) for _, tokens in each] for each in stages]
    # Of every candidate the best score of a chain that ends in it, and the candidate before.
    best: list[list[tuple[float, int]]] = [[(score, -1) for score, _ in stages[0]]]
    for stage in range(1, len(stages)):
        row = []
        for at, (score, _) in enumerate(stages[stage]):
            before = [
                (total + score, other)
                for other, (total, _) in enumerate(best[-1])
                if total > -1e300 and _fit(ends[stage - 1][other], ends[stage][at])
            ]
            row.append(max(before, default=(-float("inf"), -1)))
        best.append(row)
    at = max(range(len(best[-1])), key=lambda each: best[-1][each][0], default=-1)
    if at < 0 or best[-1][at][0] == -float("inf"):
        return None
    found = []
    for stage in range(len(stages) - 1, -1, -1):
        found.append(stages[stage][at][1])
        at = best[stage][at][1]
    return found[::-1]


class _Ends:
    """What a sequence exchanges with the stages around it."""

    def __init__(self, tokens: Tokens, vocabulary: Vocabulary) -> None:
        self.sent = messages(tokens, vocabulary, NodeType.COMM_SEND_NODE, "comm_dst")
        self.received = messages(tokens, vocabulary, NodeType.COMM_RECV_NODE, "comm_src")
        self.called = shared_calls(tokens, vocabulary)


def _fit(one: _Ends, after: _Ends) -> bool:
    ahead, back = ("pp", 1), ("pp", -1)
    return (
        one.sent.get(ahead) == after.received.get(back)
        and after.sent.get(back) == one.received.get(ahead)
        and one.called == after.called
    )
