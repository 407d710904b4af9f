"""The keys of a plan that apply to inference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from armillary.base.errors import InputError
from armillary.platform.fields import Part
from armillary.workload.plan.schema import Plan

OF_INFERENCE = {("numbers", key) for key in ("weights", "embeddings", "cache", "activations")}
"""Paths of the keys that apply to inference only."""
MEANT = {
    *((key,) for key in ("ranks", "batch", "microbatch", "attention", "causal", "serve")),
    *(("parallel", key) for key in ("tp", "pp", "dp", "ep", "etp", "order")),
    ("pipeline", "layers"),
    ("numbers", "compute"),
    *OF_INFERENCE,
}
"""Paths of all keys that apply to inference."""


def check_serving(plan: Plan) -> None:
    """Check that a plan of inference sets no key that is for training only.

    Raises:
        InputError: names the first such key.
    """
    for path, value, usual in _values(plan):
        # A default is no statement, so only other values are refused.
        if path not in MEANT and value != usual:
            expected = "it to be left out" if usual is None else _text(usual)
            raise InputError(f"{'.'.join(path)} {_text(value)}: not for inference, expected {expected}")


def _values(plan: Plan) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield path, value and default of every key."""
    for name, field in Plan.model_fields.items():
        value, usual = getattr(plan, name), field.default
        if isinstance(usual, Part):
            for key in type(usual).model_fields:
                yield (name, key), getattr(value, key), getattr(usual, key)
        else:
            yield (name,), value, usual


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
