"""Each way of joining a host and a device trace, alone and after the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.convert.pytorch.link import link
from tests.convert.pytorch.recording import SCHEMAS, Recording


def step(rec: Recording, start: int, *, layers: int = 6, tid: int = 1, **more: Any) -> None:
    """Add a training step of nested operators; each layer's names differ a little."""
    at = start
    for layer in range(layers):
        rec.op("aten::linear", at, at + 100, tid=tid, **more)
        rec.op(f"aten::mm_{layer % 5}", at + 10, at + 60, tid=tid, **more)
        rec.op("aten::add", at + 70, at + 90, tid=tid, **more)
        at += 150


def pairs(rec: Recording, **device: Any) -> list[tuple[str, int]]:
    """Return (name, start) of the event of every node that has one."""
    linked = rec.linked(**device)
    first = min(op.start for op in linked.device.ops)
    found = zip(linked.host.nodes, linked.op_of, strict=True)
    return [(node.name, linked.device.ops[op].start - first) for node, op in found if op >= 0]


def truth(rec: Recording) -> list[tuple[str, int]]:
    """Return (name, start) of what stands in both traces."""
    both = [op for op in rec.ops if op.on_host and op.on_device]
    first = min(op.start for op in rec.ops if op.on_device)
    return [(op.name, op.start - first) for op in sorted(both, key=lambda op: op.id)]


WAYS: dict[str, dict[str, Any]] = {
    "rf_id": {},
    "sequence": {"rf_ids": False},
    "external_id": {"rf_ids": False, "external": "rf"},
}


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("way", ["rf_id", "sequence"])
def test_all_nodes_of_every_schema(schema: str, way: str) -> None:
    rec = Recording(schema)
    step(rec, 0)
    step(rec, 30, tid=2)
    linked = rec.linked(**WAYS[way])
    assert linked.strategies == {way: 36}
    assert linked.rate == 1
    assert linked.linkable == 36, "three nodes stand for the process and its threads"
    assert pairs(rec, **WAYS[way]) == truth(rec)


def test_external_ids_where_names_are_in_another_order() -> None:
    rec = Recording("1.0.1")
    for at in range(40):
        rec.op(f"op{at}", 100 * at, 100 * at + 50, tid=1 + at % 2)
    host, document = rec.host_trace(), rec.device_trace(rf_ids=False, external="rf")
    for at, op in enumerate(document.ops):  # all on one thread, backwards
        op.tid, op.start, op.end = 5, 10_000 - at, 10_000 - at
    document.ops.reverse()
    linked = link(host, document)
    assert linked.strategies["external_id"] >= 38
    assert all(host.nodes[at].name == document.ops[op].name for at, op in enumerate(linked.op_of) if op >= 0)


def test_occurrence_joins_what_no_other_way_could() -> None:
    rec = Recording("1.0.1")
    for at in range(30):
        rec.op(f"op{at}", 100 * at, 100 * at + 50)
    host, device = rec.host_trace(), rec.device_trace(rf_ids=False)
    device.ops.reverse()
    for at, op in enumerate(device.ops):
        op.start = op.end = at
    linked = link(host, device)
    assert linked.strategies == {"occurrence": 30}
    assert linked.reasons[0] == "no rf_id in the device trace"
    assert linked.reasons[1].startswith("thread 1: 1 of 30 names are in the order of the 30 events")
    assert linked.reasons[2:] == ["no External id in common"]


def test_a_later_way_takes_what_an_earlier_one_left() -> None:
    rec = Recording()
    step(rec, 0, layers=20)
    host, device = rec.host_trace(), rec.device_trace()
    for op in device.ops[30:33]:
        op.rf_id = 0
    linked = link(host, device)
    assert linked.strategies == {"rf_id": 57, "sequence": 3}
    assert linked.op_of[2:] == list(range(60))
    assert linked.reasons == []


def test_ids_of_another_run_are_not_used_but_the_names_are() -> None:
    rec = Recording()
    step(rec, 0, layers=20)
    host, device = rec.host_trace(), rec.device_trace()
    for op in device.ops:
        op.rf_id += 1
    linked = link(host, device)
    assert linked.strategies == {"sequence": 60}
    assert linked.reasons[0].startswith("rf_id not used: ")
    assert linked.reasons[0].endswith("pairs differ in name")


def test_nodes_outside_the_device_trace_are_not_joined_to_other_steps() -> None:
    """The host trace began before the device trace; that went on for two more steps."""
    rec = Recording()
    step(rec, 0, layers=2, on_device=False)
    step(rec, 1000, layers=20)
    step(rec, 10_000, layers=2, on_host=False)
    linked = rec.linked()
    assert linked.strategies == {"rf_id": 60}
    assert pairs(rec) == truth(rec)
    assert linked.reasons == [
        "6 of 66 host nodes have no event: 2 'aten::linear', 2 'aten::add', 1 'aten::mm_0'"
    ]
    assert linked.rate == pytest.approx(60 / 66)


def test_one_step_of_many_without_ids() -> None:
    rec = Recording("1.0.1")
    for at in range(5):
        step(rec, 100_000 * at, layers=200, on_host=at == 3)
    rec.op("ProfilerStep#8", 299_000, 340_000, annotation=True)
    linked = rec.linked(rf_ids=False)
    assert linked.strategies == {"sequence": 601}
    assert pairs(rec, rf_ids=False) == truth(rec), "the annotation tells the steps apart"


def test_the_number_of_a_profiler_step_may_differ() -> None:
    rec = Recording()
    rec.op("ProfilerStep#2", 0, 5000, annotation=True)
    step(rec, 10)
    host = rec.host_trace()
    for way in ("rf_id", "sequence"):
        device = rec.device_trace(**WAYS[way])
        device.ops[0].name = "ProfilerStep#7"
        assert link(host, device).strategies == {way: 19}


def test_ids_given_twice_are_not_used() -> None:
    rec = Recording()
    step(rec, 0, layers=20)
    host, device = rec.host_trace(), rec.device_trace()
    device.ops[7].rf_id = device.ops[40].rf_id
    linked = link(host, device)
    assert linked.strategies == {"rf_id": 58, "sequence": 2}
    assert linked.op_of[2:] == list(range(60))


def test_traces_of_other_runs_are_refused_with_the_reasons() -> None:
    rec, other = Recording(), Recording()
    step(rec, 0)
    for at in range(30):
        other.op(f"other{at}", 100 * at, 100 * at + 50)
    with pytest.raises(InputError) as caught:
        link(rec.host_trace(), other.device_trace())
    message = str(caught.value)
    assert "host_0.json and " in message
    assert "are not of the same steps: 0 of 18 host nodes (0.0 %) have an event among 30" in message
    assert "expected at least 50 %; rf_id not used: 18 of 18 pairs differ in name" in message


def test_less_than_half_is_refused_and_half_is_not() -> None:
    rec = Recording()
    step(rec, 0, layers=5, on_device=False)
    step(rec, 10_000, layers=5)
    linked = rec.linked()
    assert linked.rate == 0.5
    rec.op("aten::more", 9_000, 9_001, on_device=False)
    with pytest.raises(InputError, match=r"15 of 31 host nodes \(48\.4 %\)"):
        rec.linked()
    assert link(rec.host_trace(), rec.device_trace(), least_rate=0.4).linked == 15


def test_nothing_at_all_links_to_nothing() -> None:
    linked = Recording().linked()
    assert (linked.linkable, linked.linked, linked.rate) == (0, 0, 0)


def test_the_report(tmp_path: Path) -> None:
    rec = Recording()
    step(rec, 0)
    rec.launch(20, 30, (100, 200))
    rec.launch(22, 30, (200, 300))
    rec.events.pop(-2)
    assert rec.linked().report() == {
        "nodes": 20,
        "linkable": 18,
        "linked": 18,
        "link_rate": 1.0,
        "strategies": {"rf_id": 18},
        "device_ops": 2,
        "device_ops_linked": 1,
        "schema": "1.1.1-chakra.0.0.4",
        "warnings": [],
    }


def test_threads_that_kineto_did_not_see_are_no_reason_to_refuse() -> None:
    rec = Recording()
    for at in range(10):
        rec.op(f"aten::op{at}", at * 1000, at * 1000 + 500)
    for at in range(90):
        rec.op(f"aten::own{at}", at * 100, at * 100 + 50, tid=7, on_device=False)
    linked = rec.linked()
    assert linked.rate == 0.1
    assert "90 of 100 host nodes have no event" in linked.reasons[-1]
