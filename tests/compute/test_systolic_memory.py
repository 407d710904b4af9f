"""Stalls of a systolic array with finite buffers: by hand, and against a reference that steps through every cycle."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.compute import systolic_memory
from armillary.compute.model import Work
from armillary.compute.systolic import Systolic, cycles
from armillary.compute.systolic_memory import Buffers, Dataflow, folds, moved, stalls
from armillary.platform import load_platform
from armillary.testing.compute import DEVICE
from armillary.trace.gemm import Gemm

FLOWS: tuple[Dataflow, ...] = ("output", "weight", "input")
LARGE = Buffers(1 << 40, 1 << 40, 1 << 40)


def stepped(gemm: Gemm, rows: int, columns: int, flow: Dataflow, buffers: Buffers, rate: float) -> int:
    """Go through every cycle of every fold, and ask of every word whether it is there: slow, and obvious."""
    through = folds(gemm, rows, columns, flow)
    sizes = [buffers.ifmap, buffers.filter, buffers.ofmap]
    if flow == "input":
        sizes[0], sizes[1] = sizes[1], sizes[0]
    half = [max(size // 2, 1) for size in sizes]
    fill = [ceil(each / rate) for each in half]
    seen, clock, stood = [0, 0, 0], 0, 0
    filled = [[0, fill[0]], [0, fill[1]]]  # when each half of an operand is there
    left: list[int] = []  # when each half of results has left
    for column in range(through.across.count):
        for row in range(through.down.count):
            bursts = through.bursts(column, row, (half[0], half[1], half[2]))
            for cycle in range(through.cycles):
                for which, burst in enumerate(bursts):
                    for word in range(burst.words):
                        if burst.begin + word * burst.length // burst.words != cycle:
                            continue
                        # An operand's next half is needed with its first word, one of results full with its last.
                        seen[which] += 1
                        at = seen[which] if which == 2 else seen[which] - 1
                        if at == 0 or at % half[which]:
                            continue
                        number = at // half[which]
                        if which < 2:
                            wait = max(filled[which][number] - clock, 0)
                            filled[which].append(clock + wait + fill[which])
                        else:
                            wait = max(left[number - 3] - clock, 0) if number > 2 else 0
                            left.append(max(left[-1] if left else 0, clock + wait) + fill[2])
                        clock, stood = clock + wait, stood + wait
                clock += 1
    return stood


SIZES = st.integers(1, 20)


@given(
    SIZES,
    SIZES,
    SIZES,
    st.integers(2, 5),
    st.integers(2, 5),
    st.sampled_from(FLOWS),
    st.builds(Buffers, *[st.integers(2, 200)] * 3),
    st.sampled_from([0.5, 1, 3, 8]),
)
def test_stalls_are_those_of_every_word(m, n, k, rows, columns, flow, buffers, rate) -> None:  # fmt: skip
    gemm = Gemm(m, n, k)
    found = stepped(gemm, rows, columns, flow, buffers, rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(systolic_memory, "PASSES", 1000)  # every pass by itself
        assert stalls(gemm, rows, columns, flow, buffers, rate) == found


@given(
    st.integers(20, 60),
    st.integers(100, 600),
    st.integers(20, 60),
    st.sampled_from(FLOWS),
    st.builds(Buffers, *[st.integers(64, 2000)] * 3),
    st.sampled_from([1, 4, 16]),
)
def test_passes_between_are_like_those_before(m, n, k, flow, buffers, rate) -> None:  # fmt: skip
    gemm = Gemm(m, n, k)
    short = stalls(gemm, 8, 8, flow, buffers, rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(systolic_memory, "PASSES", 1000)  # every pass by itself
        whole = stalls(gemm, 8, 8, flow, buffers, rate)
    total = whole + cycles(gemm, 8, 8, flow)
    assert abs(short - whole) <= 0.05 * total


def test_a_flow_is_near_to_halves() -> None:
    draw = Random(1)
    for _ in range(100):
        gemm, side, flow = (
            Gemm(*(draw.randint(20, 400) for _ in range(3))),
            draw.choice([8, 16, 32]),
            draw.choice(FLOWS),
        )
        buffers = Buffers(*(draw.choice([512, 2048, 8192]) for _ in range(3)))
        rate = draw.choice([0.5, 2, 8, 32])
        by_halves = stalls(gemm, side, side, flow, buffers, rate)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(systolic_memory, "MOST", -1)
            as_flow = stalls(gemm, side, side, flow, buffers, rate)
        assert abs(as_flow - by_halves) <= 0.2 * (by_halves + cycles(gemm, side, side, flow))


def test_a_huge_gemm_through_tiny_buffers_costs_nothing() -> None:
    gemm, tiny = Gemm(1 << 40, 1 << 20, 1 << 20), Buffers(2, 2, 2)
    assert stalls(gemm, 8, 8, "output", tiny, 1) > sum(moved(gemm, 8, 8, "output", tiny)) / 4


@pytest.mark.parametrize("flow", FLOWS)
def test_what_fits_is_fetched_once_and_does_not_stall(flow: Dataflow) -> None:
    gemm = Gemm(40, 24, 32)
    assert stalls(gemm, 8, 8, flow, LARGE, 1) == 0
    left, right, written = moved(gemm, 8, 8, flow, LARGE)
    assert (left, right) == (40 * 32, 32 * 24)
    # Partial sums of each of 4 folds along k leave a stationary operand's array.
    assert written == 40 * 24 * (1 if flow == "output" else {"weight": 4, "input": 4}[flow])


def test_what_does_not_fit_is_fetched_for_each_pass_or_fold() -> None:
    gemm, small = Gemm(40, 24, 32), Buffers(64, 64, 64)
    # Weights stay: the left operand streams in each of 3 passes. Outputs stay: the right one in each of 5 folds, too.
    assert moved(gemm, 8, 8, "weight", small) == (3 * 40 * 32, 32 * 24, 4 * 40 * 24)
    assert moved(gemm, 8, 8, "input", small) == (40 * 32, 5 * 32 * 24, 4 * 40 * 24)
    assert moved(gemm, 8, 8, "output", small) == (3 * 40 * 32, 5 * 32 * 24, 40 * 24)
    # A tile of the right operand, 8 columns of 32, in half of a buffer serves all folds of a pass.
    assert moved(gemm, 8, 8, "output", replace(small, filter=512))[1] == 32 * 24


def test_a_slow_memory_takes_the_time_of_its_words() -> None:
    gemm, small = Gemm(64, 64, 64), Buffers(1 << 20, 1 << 20, 1024)
    free = cycles(gemm, 8, 8, "weight")
    written = moved(gemm, 8, 8, "weight", small)[2]
    total = free + stalls(gemm, 8, 8, "weight", small, 1)
    assert 0.95 * written < total <= written


SCALE_SIM = [
    # m, n, k, rows, columns, dataflow, KiB of ifmap, filter, ofmap, words per cycle: total cycles of SCALE-sim 3.0.0
    ((64, 64, 64, 8, 8, "weight", 8, 8, 1, 10), 5503),
    ((64, 64, 64, 8, 8, "output", 8, 8, 1, 10), 4991),
    ((200, 16, 16, 8, 8, "weight", 16, 1, 2, 8), 887),
    ((100, 200, 8, 8, 8, "input", 16, 4, 4, 16), 2885),
    ((16, 200, 32, 16, 8, "input", 32, 32, 4, 16), 951),
    ((200, 16, 48, 16, 16, "weight", 4, 64, 4, 8), 1161),
    ((96, 64, 32, 32, 32, "weight", 2, 4, 16, 4), 1473),
    ((64, 64, 64, 8, 8, "weight", 1, 8, 8, 10), 5911),
]
"""Runs with a bandwidth given, in which SCALE-sim fetches at most 1.2 times what moves here."""


@pytest.mark.parametrize(("run", "total"), SCALE_SIM)
def test_cycles_are_near_those_of_scale_sim_where_it_fetches_the_same(run: tuple, total: int) -> None:
    m, n, k, rows, columns, flow, *sizes, rate = run
    gemm = Gemm(m, n, k)
    buffers = Buffers(*(1024 * size for size in sizes))
    found = cycles(gemm, rows, columns, flow) + stalls(gemm, rows, columns, flow, buffers, rate)
    assert found == pytest.approx(total, rel=0.09)


def work(gemm: Gemm) -> Work:
    """Return a kernel in bf16."""
    size = np.array([2 * gemm.elements])
    return Work(("k",), np.array([gemm.operations]), size, ("bf16",), ((gemm,),), np.zeros(1, np.int64))


def test_the_model_waits_for_what_its_buffers_fetch_again() -> None:
    array = {"rows": 16, "columns": 16, "dataflow": "output", "clock": 1e9}
    kernel, device = work(Gemm(512, 512, 512)), replace(DEVICE, memory=32e9)
    sizes = [None, *(dict.fromkeys(("ifmap", "filter", "ofmap"), size) for size in (1 << 26, 1 << 12))]
    times = [Systolic.create(array | {"buffers": each}, device, Path()).durations(kernel) for each in sizes]
    free, large, small = (each.ns[0] for each in times)
    assert free == large < small and times[2].bound == ("memory",)
    # Both operands come again for each of 32 tiles; 32 bytes per ns at a share that kernels reach.
    assert small >= 2 * (2 * 32 + 1) * 512 * 512 / (32 * device.kernels.memory)


def study(**buffers: object) -> dict[str, object]:
    """Return a machine with a systolic array."""
    return {
        "network": [{"topology": "Ring", "size": 2, "bandwidth": "10 GB/s", "latency": "1 us"}],
        "npu": {"peak": "1 TFLOP/s", "memory": {"bandwidth": "100 GB/s"}},
        "compute": {"model": "systolic", "rows": 16, "columns": 16, "clock": "1 GHz", **buffers},
    }


def test_buffers_in_a_file() -> None:
    sizes = {"ifmap": "64 KiB", "filter": "64 KiB", "ofmap": "32 KiB"}
    found = load_platform(study(buffers=sizes)).compute.options["buffers"]
    assert found == {"ifmap": 65536, "filter": 65536, "ofmap": 32768}
    with pytest.raises(InputError, match="ofmap"):
        load_platform(study(buffers={"ifmap": "64 KiB", "filter": "64 KiB"}))
    with pytest.raises(InputError, match="buffers: expected none with 'stall: false'"):
        load_platform(study(buffers=sizes, stall=False))


@pytest.mark.parametrize("value", [{"ifmap": 1}, {"ifmap": 0, "filter": 1, "ofmap": 1}, 7])
def test_buffers_in_python_are_three_sizes(value: object) -> None:
    platform = load_platform(study())
    options = platform.compute.options | {"buffers": value}
    with pytest.raises(InputError, match="buffers"):
        replace(platform.compute, options=options)
