"""Times of many rows at once are those of one row at a time, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from armillary.collective.fitted.mechanism import Mechanism, spent, work
from armillary.collective.fitted.model import OPERATIONS
from armillary.collective.fitted.read import sheets
from armillary.evidence.calibrate.nccl_mechanism import constants_of, usual, with_constants
from armillary.evidence.calibrate.nccl_rows import Key, Row, Rows

SHEETS = sheets()
measured = st.tuples(
    st.sampled_from(sorted(OPERATIONS)),
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.sampled_from([1, 1, 2, 3, 16]),
    st.integers(1, 1 << 34),
).filter(lambda each: each[1] * each[2] > 1)


def one_by_one(mechanism: Mechanism, rows: list[Row]) -> list[float]:
    """Return what `spent` says."""
    return [
        min(sum(spent(mechanism, each, row.operation, row.members, row.nodes)) for each in row.runs)
        for row in rows
    ]


@given(
    st.sampled_from(sorted(SHEETS)),
    st.booleans(),
    st.lists(measured, max_size=12),
    st.dictionaries(st.sampled_from([2, 3, 4, 8]), st.floats(0.5, 8), min_size=1),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3),
    st.data(),
)
def test_many_rows_at_once(device, switch, places, shared, seeds, data):
    sheet = SHEETS[device]
    nvls = switch and sheet.reduces
    start = usual(sheet, nvls)
    if data.draw(st.booleans(), label="shares links"):
        kinds = data.draw(st.sets(st.sampled_from(["LL", "Simple", "message", "gather"])), label="kinds")
        start = replace(start, sharing=dict.fromkeys(kinds, shared))
    rows = [
        Row(operation, per_node * nodes, nodes, work(operation, per_node, nodes, size, sheet, nvls), 1.0)
        for operation, per_node, nodes, size in places
    ]
    known = constants_of(start)
    held = data.draw(st.sets(st.sampled_from(sorted(known))), label="do not vary")
    keys: list[Key] = [key for key in known if key not in held]
    moved = [np.random.default_rng(seed).uniform(0.3, 3.0, len(keys)) for seed in seeds]
    sets = np.array([[known[key] for key in keys] * each for each in moved]).reshape(len(seeds), len(keys))
    found = Rows(rows, start, keys).times(sets)
    for values, times in zip(sets, found, strict=True):
        mechanism = with_constants(start, dict(zip(keys, values.tolist(), strict=True)))
        assert times.tolist() == one_by_one(mechanism, rows)
