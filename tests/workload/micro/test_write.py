"""Written sweeps: what is on the disk is what was simulated."""

from __future__ import annotations

import json

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.platform import read_platform
from armillary.trace import load_trace
from armillary.trace.check_ranks import check_trace
from armillary.workload.micro import COLLECTIVES, PATTERNS, sweep, write_cases

NETWORK = {
    "topology": ["Ring", "Switch"],
    "npus_count": [4, 2],
    "bandwidth": [50.0, 25.0],
    "latency": [500.0, 700.0],
}
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


@pytest.fixture
def platform():
    system = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 4,
        "collective-optimization": "localBWAware",
        "local-mem-bw": 1600,
        **{f"{kind}-implementation": ["ring", "direct"] for kind in KINDS},
    }
    return read_platform(system, NETWORK)


@pytest.mark.parametrize("profile", ["physical", "astra-sim"])
def test_written_traces_pass_check_and_take_the_same_ticks(tmp_path, platform, profile):
    tests = [*(KINDS if profile == "astra-sim" else COLLECTIVES), *PATTERNS]
    cases = sweep(tests, 8, [4096, 1 << 20], [2, 4, 8])
    manifest = write_cases(tmp_path / "new" / "sweep", cases)
    rows = json.loads(manifest.read_text())["cases"]
    assert [row["prefix"] for row in rows] == [case.name for case in cases]
    for case, row in zip(cases, rows, strict=True):
        trace = load_trace(manifest.parent / row["prefix"])
        assert check_trace(trace).all == [], row["prefix"]
        ticks = [
            armillary.simulate(each, platform, profile=profile).finish_ticks.tolist()
            for each in (trace, case.trace())
        ]
        assert ticks[0] == ticks[1] and max(ticks[0]) > 0, row["prefix"]


def test_groups_lie_beside_the_traces(tmp_path):
    cases = sweep(["all-reduce", "ring"], 6, [64], [2, 3, 6])
    folder = write_cases(tmp_path, cases).parent
    assert {path.name for path in folder.glob("*.json")} == {
        "manifest.json",
        "groups_2.json",
        "groups_3.json",
    }
    assert json.loads((folder / "groups_3.json").read_text()) == {"1": [0, 1, 2], "2": [3, 4, 5]}
    rows = json.loads((folder / "manifest.json").read_text())["cases"]
    assert [row.get("group_file") for row in rows] == [
        "groups_2.json",
        "groups_3.json",
        None,
        None,
        None,
        None,
    ]
    assert len(list(folder.glob("*.et"))) == 6 * 6


def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "old").write_text("")
    with pytest.raises(InputError, match="is not empty"):
        write_cases(tmp_path, [])
    with pytest.raises(InputError, match="is a file"):
        write_cases(tmp_path / "old", [])
    with pytest.raises(InputError, match=r"cannot be (made|written)"):
        write_cases(tmp_path / "old" / "new", [])
