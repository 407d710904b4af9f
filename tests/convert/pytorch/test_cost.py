"""Reading, linking and converting cost in proportion to the number of events."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import armillary
from armillary.convert.pytorch.device import read_device
from armillary.convert.pytorch.host import read_host
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link import link
from armillary.platform.recorded import recorded_machine
from tests.convert.pytorch.recording import Recording, tensor

US = 1000
T = [tensor(at, 1000) for at in range(1, 50)]


def training(events: int) -> Recording:
    """Return a step of about so many events: operators on two threads, kernels on three streams, waits, gloo."""
    rec = Recording()
    layers = events // 12
    rec.op("ProfilerStep#1", 0, layers * 100 * US, annotation=True)
    for layer in range(layers - 1):
        start, tid = 100 * layer * US, 1 + (2 * layer > layers)
        rec.op(f"aten::linear_{layer % 7}", start + 1, start + 60 * US, tid=tid, inputs=(T[layer % 49],))
        rec.op(
            "aten::mm",
            start + 5 * US,
            start + 40 * US,
            tid=tid,
            inputs=(T[0], T[layer % 49]),
            outputs=(T[3],),
        )
        rec.op("aten::add_", start + 42 * US, start + 55 * US, tid=tid, inputs=(T[3], T[layer % 11]))
        for stream in (7, 20):
            kernel = (start + (20 + stream) * US, start + (60 + stream) * US)
            rec.launch(start + (stream + 5) * US, start + (stream + 7) * US, kernel, stream=stream, tid=tid)
        rec.stream_wait(20, 7, (start + 29 * US, start + 30 * US), (start + 31 * US, start + 32 * US))
        if layer % 10 == 0:
            inputs = ([T[layer % 49]], "<Object>", "<Object>", "<None>", False, -1)
            rec.op("c10d::allreduce_", start + 62 * US, start + 70 * US, tid=tid, inputs=inputs)
            rec.gloo("gloo:all_reduce", start + 62 * US + 1, start + 65 * US, start + 95 * US)
            rec.ops[-1].tid = tid
            rec.call("cudaStreamSynchronize", start + 88 * US, start + 90 * US, tid)
    return rec


def seconds(rec: Recording, folder: Path, *, rf_ids: bool) -> float:
    """Return the processor time from files to a trace; linked by names where there are no ids."""
    host, device = rec.write(folder)
    if not rf_ids:
        text = device.read_text().replace('"Record function id"', '"no id"')
        device.write_text(text)
    start = time.process_time()
    linked = link(read_host(host), read_device(device))
    assert linked.rate >= 0.999
    converted = convert_job([linked])
    took = time.process_time() - start
    armillary.simulate(converted.trace, recorded_machine(1))
    return took


@pytest.mark.slow
@pytest.mark.parametrize("rf_ids", [True, False])
def test_twice_the_events_cost_about_twice_as_much(tmp_path: Path, rf_ids: bool) -> None:
    small, large = training(100_000), training(200_000)
    assert len(small.events) + len(small.ops) == pytest.approx(100_000, rel=0.15)
    ratio = seconds(large, tmp_path, rf_ids=rf_ids) / seconds(small, tmp_path, rf_ids=rf_ids)
    assert ratio <= 3


def test_a_small_step_of_the_same_kind_links_both_ways(tmp_path: Path) -> None:
    for rf_ids in (True, False):
        seconds(training(3000), tmp_path, rf_ids=rf_ids)
