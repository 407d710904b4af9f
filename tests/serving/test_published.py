"""Models that run in the precisions that they are published in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import armillary
from armillary.serving.spread import Wanted, as_published
from armillary.workload.models import Decoder, read_model

from .test_serve import LOAD, TINY

PUBLISHED = {"method": "fp8", "gemms": "fp8", "scales": "block"}


@pytest.mark.parametrize(
    ("published", "options", "precision", "scales"),
    [
        (PUBLISHED, {}, "fp8", "block"),
        (PUBLISHED, {"scales": "tensor"}, "fp8", "tensor"),
        (PUBLISHED, {"precision": "fp8"}, "fp8", "block"),
        (PUBLISHED, {"precision": "bf16"}, "bf16", None),
        ({"method": "bitsandbytes"}, {}, None, None),
        (None, {}, None, None),
    ],
)
def test_a_model_runs_as_it_is_published(
    published: dict[str, str] | None, options: dict[str, str], precision: str | None, scales: str | None
) -> None:
    model = read_model(TINY | ({"published": published} if published else {}))
    assert isinstance(model, Decoder)
    found, texts = as_published(model, Wanted(**options), ["bf16", "fp8"])
    assert (found.precision, found.scales) == (precision, scales)
    # What nobody chose is said.
    assert bool(texts) == (published is not None and "precision" not in options)


def test_published_precisions_are_those_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps(TINY | {"published": PUBLISHED}))
    (tmp_path / "plain.yaml").write_text(json.dumps(TINY))
    one = armillary.serve(tmp_path / "tiny.yaml", "1xh100", LOAD)
    other = armillary.serve(tmp_path / "plain.yaml", "1xh100", LOAD, precision="fp8", scales="block")
    assert one.ttft_s == other.ttft_s and one.tpot_s == other.tpot_s
    assert "tiny runs as it is published: GEMMs in fp8 with scales of blocks" in one.service.assumptions


def test_weights_of_a_precision_that_the_device_lacks_are_widened() -> None:
    model = read_model(TINY | {"published": PUBLISHED})
    assert isinstance(model, Decoder)
    found, texts = as_published(model, Wanted(), ["bf16", "fp32"])
    assert (found.precision, found.weight_precision, found.scales) == ("bf16", "fp8", None)
    assert texts == [
        "tiny runs as it is published: GEMMs in bf16, as the device has none in fp8, weights in fp8"
    ]
