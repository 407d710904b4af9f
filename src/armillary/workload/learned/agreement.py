"""Whether the classes of ranks of a made trace fit: who sends is received, and all members call a collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from armillary.errors import InputError
from armillary.trace import NodeType
from armillary.workload.learned.tokens import Tokens
from armillary.workload.learned.vocabulary import Vocabulary

Calls = Counter[tuple[str, int, int]]


def check_agreement(sequences: Sequence[Tokens], vocabulary: Vocabulary) -> None:
    """Check the classes of a trace, one for each pipeline stage.

    Raises:
        InputError: two do not fit; the model cannot make this trace.
    """
    sent, received, collective = zip(*(_calls(each, vocabulary) for each in sequences), strict=True)
    stages = len(sequences)
    for stage, (out, back) in enumerate(zip(sent, received, strict=True)):
        for (axis, steps), calls in _by_way(out).items():
            other = received[(stage + steps) % stages] if axis == "pp" else back
            want = _by_way(other).get((axis, -steps), Counter())
            if calls != want:
                raise InputError(
                    f"stage {stage} would send {sum(calls.values())} messages along {axis} {steps:+d} of which "
                    f"{sum((calls - want).values())} are not received as they are sent: "
                    "the model cannot make this trace, expected a condition nearer to its corpus"
                )
        if sum(out.values()) != sum(back.values()) and stages == 1:
            raise InputError(
                f"stage {stage} would receive messages that nobody sends: the model cannot make this trace"
            )
    for name in sorted({name for each in collective for name in each}):
        if "pp" in name.split("+") and any(each.get(name) != collective[0].get(name) for each in collective):
            raise InputError(
                f"the stages would call different collectives of group '{name}': the model cannot make this trace, "
                "expected a condition nearer to its corpus"
            )


def _by_way(calls: Calls) -> dict[tuple[str, int], Counter[int]]:
    found: dict[tuple[str, int], Counter[int]] = {}
    for (axis, steps, size), count in calls.items():
        found.setdefault((axis, steps), Counter())[size] += count
    return found


def _calls(tokens: Tokens, vocabulary: Vocabulary) -> tuple[Calls, Calls, dict[str, list[tuple[str, int]]]]:
    """Return sends and receives by axis, steps and bytes, and the collectives of every group in order."""
    sent: Calls = Counter()
    received: Calls = Counter()
    collective: dict[str, list[tuple[str, int]]] = {}
    kinds = vocabulary.kinds()[tokens.symbols]
    sizes = tokens.column("comm_size")
    for at in (kinds >= NodeType.COMM_SEND_NODE).nonzero()[0].tolist():
        symbol, size = vocabulary.symbols[int(tokens.symbols[at])], int(sizes[at])
        if symbol.kind == NodeType.COMM_COLL_NODE:
            collective.setdefault(symbol.group or "", []).append((symbol.role, size))
            continue
        axis = str(symbol.constant("comm_axis", ""))
        if symbol.kind == NodeType.COMM_SEND_NODE:
            sent[axis, int(symbol.constant("comm_dst", 0)), size] += 1
        else:
            received[axis, int(symbol.constant("comm_src", 0)), size] += 1
    return sent, received, collective
