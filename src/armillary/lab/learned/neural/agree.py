"""The most probable programs of pipeline stages whose neighbours fit, found stage by stage (Viterbi, 1967)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from armillary.lab.learned.agreement import shared_calls
from armillary.lab.learned.tokens import Tokens
from armillary.lab.learned.vocabulary import Vocabulary
from armillary.trace import NodeType

Candidate = tuple[float, Tokens]
"""The logarithm of its probability, and the sequence."""
Message = tuple[bool, int, int, int]
"""Whether it is sent, the stages that it crosses (signed), tag and bytes."""
_ENDS = {NodeType.COMM_SEND_NODE: "comm_dst", NodeType.COMM_RECV_NODE: "comm_src"}


def most_probable(stages: Sequence[Sequence[Candidate]], vocabulary: Vocabulary) -> list[Tokens] | None:
    """Return one candidate of each stage such that all neighbours fit, of the highest total score; None: none fit.

    That neighbours fit does not imply that all stages together finish; see `finish`.
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
                # A candidate without a fitting chain before it has a score of -inf.
                if total > -1e300 and _fit(ends[stage - 1][other], ends[stage][at])
            ]
            row.append(max(before, default=(-float("inf"), -1)))
        best.append(row)
    at = max(range(len(best[-1])), key=lambda each: best[-1][each][0], default=-1)
    if at < 0 or best[-1][at][0] == -float("inf"):
        return None
    # Back along the links from the best end.
    found = []
    for stage in range(len(stages) - 1, -1, -1):
        found.append(stages[stage][at][1])
        at = best[stage][at][1]
    return found[::-1]


class _Ends:
    """The messages and shared collectives of a sequence."""

    def __init__(self, tokens: Tokens, vocabulary: Vocabulary) -> None:
        self.order = _messages(tokens, vocabulary)
        self.called = shared_calls(tokens, vocabulary)


def _fit(one: _Ends, after: _Ends) -> bool:
    return one.called == after.called and _finish([one.order, after.order])


def finish(stages: Sequence[Tokens], vocabulary: Vocabulary) -> bool:
    """Return whether all stages finish if each runs in its own order and waits for the messages that it receives."""
    return _finish([_messages(each, vocabulary) for each in stages])


def _messages(tokens: Tokens, vocabulary: Vocabulary) -> list[Message]:
    """Return the messages of a sequence along the stages, in order."""
    steps: dict[int, tuple[bool, int]] = {}
    for at in np.unique(tokens.symbols).tolist():
        symbol = vocabulary.symbols[at]
        if symbol.constant("comm_axis") == "pp" and symbol.kind in _ENDS:
            steps[at] = symbol.kind == NodeType.COMM_SEND_NODE, int(symbol.constant(_ENDS[symbol.kind], 0))
    which = np.flatnonzero(np.isin(tokens.symbols, list(steps)))
    columns = (tokens.symbols, tokens.column("comm_tag"), tokens.column("comm_size"))
    rows = zip(*(each[which].tolist() for each in columns), strict=True)
    return [(*steps[symbol], tag, size) for symbol, tag, size in rows]


def _finish(stages: Sequence[Sequence[Message]]) -> bool:
    """Run stages that only exchange messages; messages with stages that are absent are skipped."""
    sent: Counter[tuple[int, int, int, int]] = Counter()
    at, moved = [0] * len(stages), True
    # Rounds over the stages until none moves: a deadlock, or the end.
    while moved:
        moved = False
        for stage, own in enumerate(stages):
            while at[stage] < len(own):
                sends, steps, tag, size = own[at[stage]]
                other = stage + steps
                if not 0 <= other < len(stages):
                    pass
                elif sends:
                    sent[stage, other, tag, size] += 1
                elif sent[other, stage, tag, size]:
                    sent[other, stage, tag, size] -= 1
                else:
                    break
                at[stage] += 1
                moved = True
    # A message that nobody received is a misfit, too.
    return not any(sent.values()) and all(done == len(own) for done, own in zip(at, stages, strict=True))
