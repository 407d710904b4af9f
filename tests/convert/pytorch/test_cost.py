"""The work of reading, linking and converting grows with the number of events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import armillary
from armillary.convert import Converted
from armillary.convert.pytorch.device import read_device
from armillary.convert.pytorch.host import read_host
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link import link
from armillary.platform.model import recorded_machine
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


@pytest.mark.parametrize("rf_ids", [True, False])
def test_twice_the_events_are_about_twice_the_work(
    tmp_path: Path, rf_ids: bool, lines: Callable[[Callable[[], object]], int]
) -> None:
    def work(events: int) -> int:
        rec = training(events)
        assert len(rec.events) + len(rec.ops) == pytest.approx(events, rel=0.15)
        files = written(rec, tmp_path, rf_ids=rf_ids)
        return lines(lambda: converted(*files))

    assert work(12_000) <= 2.5 * work(6000)


@pytest.mark.parametrize("rf_ids", [True, False])
def test_a_small_step_of_the_same_kind_runs(tmp_path: Path, rf_ids: bool) -> None:
    found = converted(*written(training(3000), tmp_path, rf_ids=rf_ids))
    armillary.simulate(found.trace, recorded_machine(1))


def written(rec: Recording, folder: Path, *, rf_ids: bool) -> tuple[Path, Path]:
    """Write both files; linked by names where there are no ids."""
    host, device = rec.write(folder)
    if not rf_ids:
        text = device.read_text().replace('"Record function id"', '"no id"')
        device.write_text(text)
    return host, device


def converted(host: Path, device: Path) -> Converted:
    linked = link(read_host(host), read_device(device))
    assert linked.rate >= 0.999
    return convert_job([linked])
