"""The HGX H100 of ASTRA-sim's validation."""

import pytest

from armillary.evidence.validate import validate
from armillary.evidence.validate.accuracy import accuracy


def test_ring_is_that_of_the_data_sheet():
    (table,) = validate(["astra-sim-hgx-h100"])
    assert [row.label for row in table.rows] == ["128 MiB", "256 MiB", "512 MiB", "1 GiB", "2 GiB"]
    for row in table.rows[3:]:
        size = 2**30 if row.label == "1 GiB" else 2**31
        assert row.predicted == pytest.approx(2 * 7 / 8 * size / 450e9 * 1e6, rel=0.01)
    assert table.relation == "fitted", "the latency of the preset has seen these rows"
    assert accuracy(table.rows).bias < -0.15
    assert "shows 7.8 % here" in table.notes[2]
