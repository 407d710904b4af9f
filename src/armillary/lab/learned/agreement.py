"""Checks that the classes of ranks of a made trace fit: messages match, and all members call the same collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.learned.tokens import Tokens
from armillary.lab.learned.vocabulary import Symbol, Vocabulary
from armillary.trace import NodeType

Way = tuple[str, int]
"""Axis along which messages go, and the number of steps."""
_HINT = "the model cannot make this trace, expected a condition nearer to its corpus"


def check_agreement(sequences: Sequence[Tokens], vocabulary: Vocabulary) -> None:
    """Check the classes of a trace, one for each pipeline stage.

    Raises:
        InputError: two do not fit; the model cannot make this trace.
    """
    sent = [_messages(each, vocabulary, NodeType.COMM_SEND_NODE, "comm_dst") for each in sequences]
    received = [_messages(each, vocabulary, NodeType.COMM_RECV_NODE, "comm_src") for each in sequences]
    for stage in range(len(sequences)):
        for axis, steps in sent[stage]:
            # A class stands for a whole stage: along other axes than pp its ranks exchange messages with each other.
            other = (stage + steps) % len(sequences) if axis == "pp" else stage
            if sent[stage][axis, steps] != received[other].get((axis, -steps)):
                raise InputError(
                    f"stage {stage} would send along {axis} {steps:+d} what is not received: {_HINT}"
                )
        for axis, steps in received[stage]:
            other = (stage + steps) % len(sequences) if axis == "pp" else stage
            # Sizes were compared above; what is left are receives from a stage that sends nothing that way.
            if (axis, -steps) not in sent[other]:
                raise InputError(
                    f"stage {stage} would receive along {axis} {steps:+d} what is not sent: {_HINT}"
                )
    called = [shared_calls(each, vocabulary) for each in sequences]
    for name in sorted({name for each in called for name in each}):
        # A group over all stages has a member in each, and its members must call the same collectives in the
        # same order.
        if any(each.get(name) != called[0].get(name) for each in called):
            raise InputError(f"stages would call different collectives of group '{name}': {_HINT}")


def check_microbatches(
    roles: Sequence[str], loose: Sequence[bool], batches: Sequence[int], many: int
) -> None:
    """Check that a stage does the same work in all microbatches: equally many pieces of each role, loose ones aside.

    Args:
        roles: Roles of the pieces of a rank.
        loose: Whether each piece is loose: a message or a gather that not every microbatch has.
        batches: Microbatch of each piece; -1: none.
        many: Expected number of microbatches.

    Raises:
        InputError: a microbatch is missing, or has other pieces than the first.
    """
    found: dict[int, Counter[str]] = {}
    for role, free, batch in zip(roles, loose, batches, strict=True):
        if batch >= 0 and not free:
            found.setdefault(batch, Counter())[role] += 1
    if not found:
        return
    if set(found) != set(range(many)):
        raise InputError(f"a stage would have {len(found)} microbatches of {many}: {_HINT}")
    for batch, counts in found.items():
        for role in sorted({*counts, *found[0]}):
            if counts[role] != found[0][role]:
                raise InputError(
                    f"microbatch {batch} would have {counts[role]} times '{role}', microbatch 0 {found[0][role]} "
                    f"times: {_HINT}"
                )


def _messages(tokens: Tokens, vocabulary: Vocabulary, kind: int, end: str) -> dict[Way, Counter[int]]:
    """Return the number of messages of each size, by axis and steps."""
    found: dict[Way, Counter[int]] = {}
    sizes = tokens.column("comm_size")
    for at, symbol in _used(tokens, vocabulary):
        if symbol.kind == kind:
            way = str(symbol.constant("comm_axis", "")), int(symbol.constant(end, 0))
            found.setdefault(way, Counter()).update(sizes[tokens.symbols == at].tolist())
    return found


def shared_calls(tokens: Tokens, vocabulary: Vocabulary) -> dict[str, list[tuple[str, int]]]:
    """Return the collectives of groups that span the stages, in call order, by group."""
    groups = {
        at: symbol
        for at, symbol in _used(tokens, vocabulary)
        if symbol.group and "pp" in symbol.group.split("+")
    }
    found: dict[str, list[tuple[str, int]]] = {}
    sizes = tokens.column("comm_size")
    for at in np.flatnonzero(np.isin(tokens.symbols, list(groups))).tolist():
        symbol = groups[int(tokens.symbols[at])]
        found.setdefault(str(symbol.group), []).append((symbol.role, int(sizes[at])))
    return found


def _used(tokens: Tokens, vocabulary: Vocabulary) -> list[tuple[int, Symbol]]:
    used = np.flatnonzero(np.bincount(tokens.symbols, minlength=len(vocabulary)))
    return [(at, vocabulary.symbols[at]) for at in used.tolist()]
