"""The most probable programs that fit, against all combinations."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.lab.learned.agreement import check_agreement
from armillary.lab.learned.neural.agree import Candidate, finish, most_probable
from armillary.lab.learned.tokens import Tokens, tokens_of
from armillary.lab.learned.vocabulary import Vocabulary
from armillary.trace import GraphBuilder, NodeType

WAYS = (
    (NodeType.COMM_RECV_NODE, "comm_src", -1), (NodeType.COMM_SEND_NODE, "comm_dst", 1),
    (NodeType.COMM_RECV_NODE, "comm_src", 1), (NodeType.COMM_SEND_NODE, "comm_dst", -1),
)  # fmt: skip
VOCABULARY = Vocabulary()


def _stage(counts: tuple[int, int, int, int]) -> Tokens:
    """Return a stage with these many messages: received from before, sent on, received from behind, sent back."""
    builder = GraphBuilder()
    for (kind, end, steps), count in zip(WAYS, counts, strict=True):
        for _ in range(count):
            builder.add(
                "message",
                kind,
                [("comm_size", "int64", 8), ("comm_axis", "string", "pp"), (end, "int32", steps)],
            )
    return tokens_of(builder.graph(), VOCABULARY)


def _fit(chosen: tuple[Candidate, ...]) -> bool:
    try:
        check_agreement([tokens for _, tokens in chosen], VOCABULARY)
    except InputError:
        return False
    return True


COUNTS = st.integers(0, 1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_as_all_combinations(data: st.DataObject) -> None:
    many = data.draw(st.integers(2, 3))
    stages: list[list[Candidate]] = []
    for stage in range(many):
        own = []
        for at in range(data.draw(st.integers(1, 3))):
            before = data.draw(st.tuples(COUNTS, COUNTS)) if stage else (0, 0)
            after = data.draw(st.tuples(COUNTS, COUNTS)) if stage < many - 1 else (0, 0)
            own.append(
                (-float(data.draw(st.integers(0, 5))) - at / 8, _stage((before[0], *after, before[1])))
            )
        stages.append(own)
    fitting = [sum(score for score, _ in each) for each in product(*stages) if _fit(each)]
    found = most_probable(stages, VOCABULARY)
    assert (found is None) == (not fitting)
    if found is not None:
        scores = [
            next(score for score, tokens in own if tokens is one)
            for own, one in zip(stages, found, strict=True)
        ]
        assert sum(scores) == pytest.approx(max(fitting))


def test_stages_that_wait_for_each_other() -> None:
    """Each receives before it sends: as many messages, but nobody begins."""
    stages = []
    for steps in (1, -1):
        builder = GraphBuilder()
        for kind, end in ((NodeType.COMM_RECV_NODE, "comm_src"), (NodeType.COMM_SEND_NODE, "comm_dst")):
            attrs = [("comm_size", "int64", 8), ("comm_axis", "string", "pp"), (end, "int32", steps)]
            builder.add("message", kind, attrs)
        stages.append(tokens_of(builder.graph(), VOCABULARY))
    check_agreement(stages, VOCABULARY)
    assert not finish(stages, VOCABULARY)
    assert most_probable([[(0.0, each)] for each in stages], VOCABULARY) is None


def test_no_candidates() -> None:
    assert most_probable([[(0.0, _stage((0, 0, 0, 0)))], []], VOCABULARY) is None
