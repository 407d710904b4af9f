"""Hints: what people write, and what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError, nearest
from armillary.base.hints import SYNONYMS, one_line, whole_number
from armillary.base.units import parse_bandwidth, parse_bytes, parse_flops, parse_time
from armillary.compute.gpu.device import gpu_names
from armillary.platform.files.topology_schema import KINDS
from armillary.workload.models import load_model


@pytest.mark.parametrize("word", ["H100-SXM", "h100_sxm", "H100 SXM", "h100sx"])
def test_letters_and_hyphens_make_no_difference(word: str) -> None:
    assert nearest(word, gpu_names()) == " (did you mean 'h100-sxm'?)"


def test_several_that_begin_so_are_named() -> None:
    for word, both in (
        ("A100-SXM", "'a100-sxm-40' or 'a100-sxm-80'"),
        ("v100", "'v100-pcie' or 'v100-sxm'"),
    ):
        assert nearest(word, gpu_names()) == f" (did you mean {both}?)"


@given(st.lists(st.text("aB-_1", min_size=1, max_size=8), min_size=1, max_size=6, unique=True), st.data())
def test_a_choice_in_other_letters_is_found(choices: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(choices))
    plain = chosen.replace("-", "").replace("_", "").lower()
    if plain:
        named = nearest(chosen.swapcase(), choices).split("'")[1]
        assert named.replace("-", "").replace("_", "").lower() == plain


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=5))
def test_a_hint_names_choices_only(word: str, choices: list[str]) -> None:
    hint = nearest(word, choices)
    assert not hint or any(f"'{choice}'" in hint for choice in choices)


@pytest.mark.parametrize("word", ["torus", "Torus", "3d-torus", "ring", "mesh", "switch", "fully connected"])
def test_kinds_of_dimensions_are_no_optical_torus(word: str) -> None:
    hint = nearest(word, KINDS)
    assert hint.startswith(" (did you mean 'dimensions', with topology ")


def test_synonyms_are_written_as_they_are_looked_up() -> None:
    assert all(word == word.lower() and not set(word) & set("-_ ") for word in SYNONYMS)


@pytest.mark.parametrize(
    ("read", "text", "units"),
    [
        (parse_bytes, "1G", "'GB' or 'GiB'"),
        (parse_bytes, "1 g", "'GB' or 'GiB'"),
        (parse_bytes, "1 Gi", "'GiB'"),
        (parse_bytes, "1 kib", "'KiB'"),
        (parse_bandwidth, "400 GB", "'GB/s'"),
        (parse_bandwidth, "400 G", "'GB/s' or 'GiB/s'"),
        (parse_bandwidth, "400 gbps", "'GBps' or 'Gbps'"),
        (parse_time, "3 seconds", "'s'"),
        (parse_time, "3 m", "'ms' or 'min'"),
        (parse_flops, "3 T", "'TFLOP/s'"),
    ],
)
def test_units(read, text: str, units: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="unknown unit") as error:
        read(text)
    assert f"(did you mean {units}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [("4k", " (write 4000, or 4096)"), ("1.5K", " (write 1500, or 1536)"), ("4Ki", " (write 4096)"), ("4", ""),
     ("1e3", " (write 1000)"), ("1.5E+6", " (write 1500000)"), ("8,192", " (write 8192)"), ("2.0", " (write 2)"),
     ("k", ""), ("0.0001k", ""), ("4 x", ""), ("1.5", ""), ("1,5", "")],
)  # fmt: skip
def test_counts(text: str, hint: str) -> None:
    assert whole_number(text) == hint


def test_a_hugging_face_name_says_what_to_give() -> None:
    with pytest.raises(InputError, match=r"config\.json.*did you mean 'llama-3.1-8b'"):
        load_model("meta-llama/Llama-3.1-9B")
    with pytest.raises(InputError, match="no such file"):
        load_model("models/mine.yaml")


def test_a_message_stays_short_where_characters_are_spelled_out() -> None:
    shown = one_line("schema is '" + "\u202e" * 5000 + "', expected another")
    assert len(shown) < 1500 and shown.startswith("schema is '\\u202e") and shown.endswith("expected another")
