"""Programs as tokens: reading them gives the blocks again, and whatever the grammar allows can be read."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.learned.neural.grammar import BLOCK, END, STEP, Grammar, read, write
from armillary.lab.learned.pieces import Piece
from armillary.lab.learned.skeletons import blocks_of, find_skeletons

ROLES = ("embed", "layer", "head", "send")
PROGRAMS = st.lists(
    st.lists(st.lists(st.sampled_from(ROLES), min_size=1, max_size=6), min_size=1, max_size=8),
    min_size=1, max_size=3,
)  # fmt: skip


def _pieces(blocks: list[list[str]]) -> list[Piece]:
    """Return blocks as pieces, each of a microbatch of its own."""
    return [Piece(role, 0, (), at, 0, False) for at, roles in enumerate(blocks) for role in roles]


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_reading_gives_the_blocks_again(programs: list[list[list[str]]]) -> None:
    pieces = [_pieces(each) for each in programs]
    skeletons, found = find_skeletons(pieces)
    written = [write(each, skeletons) for each in found]
    grammar = Grammar(ROLES)
    for tokens in written:
        grammar.learn(tokens)
    for tokens, own in zip(written, pieces, strict=True):
        assert read(tokens) == [list(roles) for _, roles in blocks_of(own)]
        names = [name for name, _ in tokens]
        for at, name in enumerate(names):
            assert name in grammar.allowed(names[:at])
        assert grammar.allowed(names) == []
    again = Grammar.from_json(grammar.to_json(), ROLES)  # type: ignore[arg-type]
    assert again == grammar


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.booleans())
def test_whatever_is_allowed_ends_and_can_be_read(seed: int, seen: bool) -> None:
    rng = np.random.default_rng(seed)
    grammar = Grammar(ROLES, blocks=3, longest=12)
    if seen:
        grammar.learn([(BLOCK, -1), ("layer", 2), (STEP, -1), ("<0>", 3), (END, -1)])
    names: list[str] = []
    while allowed := grammar.allowed(names):
        names.append(str(rng.choice(allowed)))
        assert len(names) <= 2 * grammar.longest + 16
    blocks = read([(name, int(rng.integers(0, 3))) for name in names])
    assert all(role in ROLES for block in blocks for role in block)
