"""Rows of SimuMax: what their names say, and what is refused."""

from __future__ import annotations

import json

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate.run import plan
from armillary.evidence.validate.sniff import headers
from armillary.evidence.validate.training.formats import read_cases
from armillary.evidence.validate.training.memory import footprint_of, row_of
from armillary.evidence.validate.training.simumax import COLUMNS, cases, peaks
from armillary.workload.plan.schema import Plan

ROW = {
    "case": "llama3_70b_l12_tp4_pp1_dp2_mbc8_cef", "model": "llama3-70b", "parallel": "tp4pp1", "layer_num": 12,
    "mbc": 8, "real_ms": 765.6, "real_alloc_gib": 39.0, "real_reserved_gib": 40.0,
}  # fmt: skip
DEEPSEEK = {
    "model": "deepseekv2",
    "parallel": "tp1ep4pp2",
    "layer_num": 4,
    "case": "deepseekv2_tp1_ep4_pp2_dp4_l4_mbc8",
}


@pytest.fixture
def one(tmp_path):
    """Return the only case of a file with a row, changed in some keys."""

    def read(read=cases, **changes):
        path = tmp_path / "rows.json"
        path.write_text(json.dumps({"notes": [], "rows": [ROW | changes]}))
        (case,) = read(path)
        return case

    return read


def test_a_row_of_a_dense_model(one):
    case = one()
    assert case.npus == 8 and case.measured == 765.6 and case.seconds() == pytest.approx(0.7656)
    assert case.model.layers == 12 and case.model.vocabulary == 128512  # 128 x tp 4 rows
    found = Plan.model_validate({"ranks": case.npus, **case.plan})
    assert (found.batch, found.microbatch, found.sequence) == (16, 1, 4096)
    assert (found.parallel.tp, found.parallel.pp, found.data.sharding) == (4, 1, "zero-1")
    assert not found.data.overlap and found.causal and found.recompute == "none"


def test_a_row_of_experts(one):
    case = one(**DEEPSEEK)
    experts = case.model.experts
    assert (case.model.hidden, case.model.layers, experts.count, experts.top_k, experts.dense_first) == (
        5120,
        4,
        160,
        6,
        1,
    )
    assert experts.capacity_factor == 1.0 and experts.shared * experts.size == 3072
    assert case.plan["parallel"] == {"tp": 1, "cp": 1, "pp": 2, "ep": 4, "etp": 1, "backward": "in-order"}
    assert case.plan["batch"] == 32  # 4 replicas


def test_a_row_of_long_sequences(one):
    case = one(
        case="llama3_405b_l4_tp1_cp8_pp1_dp1_seq32768_mbc4_cef",
        model="llama3-405b",
        parallel="tp1cp8pp1",
        layer_num=4,
        mbc=4,
    )
    assert case.plan["sequence"] == 32768 and case.plan["parallel"]["context"] == "all-to-all"
    assert case.model.attention.kv_heads == 16
    assert footprint_of(case).peak > 100e9


def test_a_row_of_virtual_stages_and_one_of_other_words(one):
    assert one(parallel="tp1pp2", case="x_tp1_pp2_dp4_l12_mbc8", vp_size=2).plan["pipeline"]["virtual"] == 2
    found = one(case="x_tp4_pp1_mbs2_full_recompute_fp8").plan
    assert found["microbatch"] == 2 and found["batch"] == 32  # of 8 GPUs, as dp is not in the name
    assert found["recompute"] == "full" and found["numbers"]["compute"] == "fp8"


def test_memory_is_that_of_the_rank_with_most(one):
    ranks = {
        "0": {"max_allocated_mb": 10.0, "max_reserved_mb": 12.0},
        "1": {"max_allocated_mb": 11.0, "max_reserved_mb": 11.5},
    }
    assert one(lambda path: peaks(path, "allocated"), peak_memory_by_rank_mb=ranks).measured == 11 * 2**20
    assert one(lambda path: peaks(path, "reserved"), peak_memory_by_rank_mb=ranks).measured == 12 * 2**20
    assert one(lambda path: peaks(path, "allocated")).measured == 39 * 2**30


def test_refused_rows_say_why(one):
    assert one(model="gemma9").reason.startswith("no model 'gemma9', expected")
    assert one(status="oom").reason == "status 'oom', expected 'ok'"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"real_ms": "fast"}, "real_ms: got 'fast', expected a number above 0"),
        ({"real_ms": -1}, "real_ms: got -1, expected a number above 0"),
        ({"mbc": 2.5}, "mbc: got 2.5, expected a whole number"),
        ({"parallel": "tp0pp1"}, "tp: got 0, expected at least 1"),
    ],
)
def test_malformed_rows_are_one_error(one, changes, message):
    with pytest.raises(InputError, match=message):
        one(**changes)


def test_malformed_files_are_one_error(tmp_path):
    path = tmp_path / "rows.json"
    for text, message in (
        ("{", "is not JSON"),
        ('{"rows": []}', "list of rows"),
        ("[1]", "expected an object"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            list(cases(path))
    path.write_text(json.dumps([{name: value for name, value in ROW.items() if name != "mbc"}]))
    with pytest.raises(InputError, match="no 'mbc', expected case, model"):
        list(cases(path))


def test_the_file_is_known_by_the_keys_of_its_rows(tmp_path):
    path = tmp_path / "any.json"
    for rows in ([ROW], {"generated_at": "", "rows": [ROW]}):
        path.write_text(json.dumps(rows))
        assert any(set(COLUMNS) <= set(each) for each in headers(path))
        assert read_cases(path)[0].name == "SimuMax"
        jobs, _ = plan(data=[path])
        assert [job.suite.name for job in jobs] == ["simumax", "simumax-memory", "simumax-reserved"]


@pytest.mark.parametrize(
    "changes", [{"mbc": 2**63}, {"case": f"llama3_70b_l12_tp4_dp2_mbs{2**63}_seq{2**63}_mbc8"}]
)
def test_a_plan_beyond_all_limits_refuses_the_row(one, changes):
    row = row_of(one(**changes), lambda footprint: 1)
    assert "batch" in row.reason and "2147483647" in row.reason


def test_a_model_of_endless_layers_is_refused(one):
    with pytest.raises(InputError, match="layer_num: got 9223372036854775808"):
        one(layer_num=2**63)
