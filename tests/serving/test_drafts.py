"""Speculative decoding: what drafts give, and what they cost."""

from __future__ import annotations

import math

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.serving.drafts import MEASURED, UNIT, chances, gives
from armillary.serving.load import load_requests

LOAD = "constant:rate=0.5,requests=4,input=64,output=65"


@pytest.mark.parametrize("drafts", [1, 3, 8])
def test_chances_give_the_mean(drafts: int) -> None:
    for mean in (1.0, 1 + 0.3 * drafts, 1.0 + drafts):
        found = chances(drafts, mean)
        assert len(found) == drafts and list(found) == sorted(found, reverse=True)
        assert 1 + math.fsum(each / UNIT for each in found) == pytest.approx(mean, abs=1e-6)


def test_measured_means_are_possible() -> None:
    for name, known in MEASURED.items():
        for drafts, mean in enumerate(known, 1):
            assert gives(name, drafts, None) == mean <= drafts + 1


@pytest.mark.parametrize(
    ("drafts", "accepted", "text"),
    [
        (9, 2.0, "drafts 9: expected a whole number from 0 to 8"),
        (0, 2.0, "accepted 2: expected it with drafts from 1 only"),
        (2, 3.5, "accepted 3.5: expected tokens of a step from 1 to 3"),
        (2, None, "was not measured for llama-3.1-8b, expected accepted, from 1 to 3"),
    ],
)
def test_what_drafts_cannot_give_is_refused(drafts: int, accepted: float | None, text: str) -> None:
    with pytest.raises(InputError, match=text):
        gives("llama-3.1-8b", drafts, accepted)


def test_drafts_take_fewer_and_longer_steps() -> None:
    requests = load_requests(LOAD)
    plain, all_of, none = (
        armillary.serve("llama-3.1-8b", "1xh100", requests, **options)
        for options in ({}, {"drafts": 3, "accepted": 4.0}, {"drafts": 3, "accepted": 1.0})
    )
    steps = [sum(len(each.steps) for each in found.outcome.replicas) for found in (plain, all_of, none)]
    # A prompt and 64 further tokens, four a step.
    assert steps == [4 * 65, 4 * 17, 4 * 65]
    # Few tokens more read the same weights: a step takes hardly longer, but for three layers of 32 and three heads.
    once, slow = plain.tpot_s.mean, none.tpot_s.mean
    assert 1.05 * once < slow < 1.4 * once
    assert all_of.tpot_s.mean == pytest.approx(slow / 4, rel=0.02)
    assert plain.interval_s("tpot") and not all_of.interval_s("tpot")
    assert any("no run with drafts was measured" in each for each in all_of.service.assumptions)
