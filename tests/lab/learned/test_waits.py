"""What tokens wait for: the list of references that occurred, by surroundings and conditions, each token for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.learned.contexts import KEYS, surroundings
from armillary.lab.learned.expressions import Explained
from armillary.lab.learned.packed import Packed
from armillary.lab.learned.reference_kernel import KERNEL, LAST, TAIL
from armillary.lab.learned.vocabulary import COLUMNS, Symbol, Vocabulary
from armillary.lab.learned.waits import learn_waits

FIRST, SECOND = ("gather", 7, 0), ("product", 4, 0)


KERNELS = Vocabulary([Symbol(4, "kernel", ())])
BEFORE = ((), (), ())
"""Kernels before the ones that are learned, so that references name something."""


def packed(*lists: Any) -> Packed:
    """A class of kernels of which the k-th has the k-th of these lists of references."""
    n = len(lists)
    zero = np.zeros(n, np.int32)
    rows = np.zeros((1, 1 + len(COLUMNS)), np.int64)
    return Packed(rows, zero, tuple(lists), np.arange(n, dtype=np.int32), np.zeros((2, n), np.int32))


def learned(conditions: Any, classes: Any, tokens: Any, first: int) -> Any:
    examples = [(at, ("",) * len(KEYS), tokens, first) for at in range(len(classes))]
    return learn_waits(
        examples, classes, conditions, Explained(conditions), KERNELS, np.random.default_rng(0)
    )


def test_tokens_are_learned_apart() -> None:
    """What the first waits for depends on tp, the second on ep: together they are right where both are new."""
    conditions = [{"tp": tp, "ep": ep, "microbatches": 2 + tp} for tp, ep in ((1, 1), (2, 1), (1, 2))]
    classes = [
        packed(
            *BEFORE,
            ((KERNEL, -1, 0),) if c["tp"] > 1 else (),
            ((LAST, 0, 2),) if c["ep"] > 1 else ((KERNEL, -1, 0),),
        )
        for c in conditions
    ]
    found = learned(conditions, classes, (FIRST, SECOND), len(BEFORE))
    new = {"tp": 2, "ep": 2}
    assert [found[each].lists[found[each].tree.choose(new)] for each in (FIRST, SECOND)] == [
        ((KERNEL, -1, 0),),
        ((LAST, 0, 2),),
    ]


def test_what_names_nothing_at_the_start_is_no_other_list() -> None:
    """The first of two kernels has none before it: one list is right for both, and its reference may name nothing."""
    conditions = [{"tp": 1}]
    classes = [packed((), ((KERNEL, -1, 0),))]
    examples = [(0, ("",) * len(KEYS), (FIRST,), first) for first in (0, 1)]
    found = learn_waits(
        examples, classes, conditions, Explained(conditions), KERNELS, np.random.default_rng(0)
    )[FIRST]
    chosen = found.tree.choose({"tp": 1})
    assert found.lists[chosen] == ((KERNEL, -1, 0),)
    assert (chosen, 0) in found.optional


def test_counts_follow_a_rule() -> None:
    conditions = [{"microbatches": many, "pp": 2} for many in (3, 5, 8, 13)]
    classes = [packed(((TAIL, 0, int(each["microbatches"])),)) for each in conditions]
    found = learned(conditions, classes, (FIRST,), 0)[FIRST]
    assert found.lists == [((TAIL, 0, 0),)]
    assert found.tails[0, 0].value({"microbatches": 21}) == 21


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 2)), max_size=12))
def test_turns(pieces: list[tuple[str, bool, int]]) -> None:
    """Against a search back to where the microbatch changes."""
    roles, loose, batches = ([each[at] for each in pieces] for at in range(3))
    found = surroundings(roles, loose, batches)  # type: ignore[arg-type]
    for at, each in enumerate(found):
        start = at
        while start and batches[start - 1] == batches[at]:
            start -= 1
        assert each[KEYS.index("turn")] == str(min(2, roles[start:at].count(roles[at])))
