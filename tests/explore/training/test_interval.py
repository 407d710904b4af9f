"""Intervals of steps: wider where less was measured."""

from __future__ import annotations

from math import log, sqrt

import pytest

import armillary
from armillary import Trace
from armillary.compute.machine import machine_of
from armillary.explore.training.interval import LINKS
from armillary.platform import load_platform
from armillary.platform.files.preset import preset_names
from armillary.trace import GraphBuilder

NODE = {"name": "nvlink", "topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}
FABRIC = {"name": "fabric", "topology": "Switch", "size": 8, "bandwidth": "50 GB/s", "latency": "5 us"}


def wide(prediction: armillary.Prediction) -> float:
    low, high = prediction.interval_s
    return high / low


def test_the_error_of_links_is_what_fits_say_of_them() -> None:
    """Collectives of the presets with a measured fit, by it and by their links."""
    found = []
    for name in preset_names():
        if not name.startswith(("dgx-", "gb200-nvl72")) or name in ("dgx-superpod-h100", "dgx-b300"):
            continue
        for count in (1, 8):
            machine = machine_of(f"{count}x{name}" if count > 1 else name)
            with_fit = load_platform({"platform": machine.keys})
            without = load_platform({"platform": {**machine.keys, "collectives": {}}})
            for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
                for size in (1 << 26, 1 << 30):
                    builder = GraphBuilder()
                    getattr(builder, kind)("call", size)
                    trace = Trace.replicate(builder.graph(), machine.npus)
                    fit, links = (armillary.simulate(trace, each).total_ticks for each in (with_fit, without))
                    found.append(log(fit / links))
    assert sqrt(sum(each * each for each in found) / len(found)) == pytest.approx(LINKS, rel=0.05)


def test_collectives_that_nobody_measured_widen_the_interval() -> None:
    known = armillary.train("llama-3-8b", "8xdgx-h100", batch=128, sequence=4096)
    own = {"platform": {"preset": "dgx-h100", "network": [NODE, FABRIC]}}
    drawn = armillary.train("llama-3-8b", own, batch=128, sequence=4096)
    assert wide(drawn) > wide(known)
    assert any("follow the links of the data sheet" in text for text in drawn.assumptions)
    assert not any("follow the links" in text for text in known.assumptions)
