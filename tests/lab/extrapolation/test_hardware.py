"""Recorded durations on other machines."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.lab.extrapolation import extrapolate, recognise
from armillary.platform import load_platform
from armillary.platform.model import Platform
from armillary.trace import GraphBuilder, Trace
from armillary.trace.graph import duration_ns


def machine(peak: str, memory: str | None) -> Platform:
    npu = {"peak": peak} | ({"memory": {"bandwidth": memory}} if memory else {})
    return load_platform(
        {"network": [{"topology": "Switch", "size": 2, "bandwidth": "1 GB/s", "latency": "1 us"}], "npu": npu}
    )


def trace() -> Trace:
    builder = GraphBuilder()
    builder.compute("dense", flops=10**12, bytes=10**6, duration_micros=1000)
    builder.compute("wide", flops=10**6, bytes=10**10, duration_micros=1000)
    builder.compute("unknown", duration_micros=1000)
    builder.compute("host", duration_micros=1000, flops=10**12, cpu=True)
    builder.compute("modelled", flops=10**12)
    builder.all_reduce("sum", 1 << 20, duration_micros=500)
    return recognise(Trace.replicate(builder.graph(), 2))[0]


def test_kernels_follow_what_bounds_them() -> None:
    old, new = machine("100 TFLOP/s", "1 TB/s"), machine("400 TFLOP/s", "2 TB/s")
    made = extrapolate(trace(), {}, hardware=(old, new))
    assert duration_ns(made.trace.graphs[0]).tolist() == [250_000, 500_000, 1_000_000, 1_000_000, 0, 0]
    rules = {each.rule: each.nodes for each in made.assumptions}
    assert rules["hardware: kernels bound by operations change with the peaks"] == 1
    assert rules["hardware: kernels without operations and bytes keep their durations"] == 1


def test_there_and_back_is_the_identity() -> None:
    old, new = machine("100 TFLOP/s", "1 TB/s"), machine("400 TFLOP/s", "2 TB/s")
    there = extrapolate(trace(), {}, hardware=(old, new)).trace
    back = extrapolate(there, {}, hardware=(new, old)).trace
    assert duration_ns(back.graphs[0]).tolist()[:5] == duration_ns(trace().graphs[0]).tolist()[:5]


def test_a_machine_must_say_what_it_can() -> None:
    with pytest.raises(InputError, match="the second machine has no"):
        extrapolate(trace(), {}, hardware=(machine("1 TFLOP/s", "1 GB/s"), machine("1 TFLOP/s", None)))
