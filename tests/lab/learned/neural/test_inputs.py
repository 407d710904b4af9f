"""Conditions that are varied stay conditions: stages, layers and microbatches belong together as before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.learned.conditions import Value, of_class
from armillary.lab.learned.neural.inputs import features, varied, width


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 20), st.data())
def test_what_belongs_together_stays(pp: int, layers: int, microbatches: int, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, pp - 1))
    given: dict[str, Value] = {
        "pp": pp, "layers": layers * pp, "microbatches": microbatches, "hidden": 64, "schedule": "gpipe",
    }  # fmt: skip
    condition = of_class(given, stage)
    found = varied(condition, np.random.default_rng(data.draw(st.integers(0, 99))))
    n = {key: int(value) for key, value in found.items() if not isinstance(value, str)}
    assert n["pp"] == n["stage"] + n["stages_left"] + 1
    assert n["layers"] == n["stage_layers"] * n["pp"]
    assert n["spare"] == max(0, n["microbatches"] - n["pp"] + n["stage"])
    assert found["schedule"] == "gpipe"
    for key in ("stage", "stages_left"):
        assert min(n[key], 2) == min(int(condition[key]), 2)
    few = microbatches < pp + 2
    assert (n["microbatches"] < n["pp"] + 2) == few
    if few:
        assert (n["pp"], n["microbatches"]) == (pp, microbatches)
    assert features([found, condition]).shape == (2, width())
