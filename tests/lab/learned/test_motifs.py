"""Motifs: loops make the sequence again, and templates match what they made."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.learned.motifs import Loop, compress, expand, match, shared_templates, template_of

LOOPS = st.lists(
    st.builds(Loop, st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=3).map(tuple),
              st.integers(1, 4)),
    max_size=4,
)  # fmt: skip


@settings(max_examples=100)
@given(LOOPS)
def test_loops_make_the_sequence(loops: list[Loop[str]]) -> None:
    sequence = expand(loops)
    found = compress(sequence)
    assert expand(found) == sequence
    again = match(template_of(found), sequence)
    assert again is not None
    assert expand(again) == sequence


def test_a_pipeline_has_one_template() -> None:
    """1F1B and GPipe of any numbers of microbatches, from the rules of tasks: F x a, (B F) x b, B x c, G."""
    sequences = ["F" * (w + 1) + "BF" * (m - w - 1) + "B" * w + "G" for m in range(3, 9) for w in range(m)]
    assert len(shared_templates(sequences)) <= 3
    loops = match((("F",), ("B", "F"), ("B",), ("G",)), "FFBFBFBBG")
    assert loops is not None
    assert [loop.times * loop.runs[0][1] for loop in loops] == [2, 2, 2, 1]
    assert match((("F",), ("G",)), "FFB") is None
