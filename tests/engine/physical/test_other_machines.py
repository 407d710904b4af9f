"""A trace that is lowered on one machine after another, against each lowered as if it were the only one."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import armillary
from armillary.engine.common.demands import Demands
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.physical import again as kept
from armillary.engine.physical import lower as lowering
from armillary.engine.physical.chunk_routes import chunk_routes_of, place_of
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import PhysicalProgram
from armillary.platform.collectives import FitChoice
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension
from armillary.trace import Trace
from armillary.workload.generate import generate, in_other_times
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

from .test_placed import MACHINE, MODEL, plans

CHANGES: list[tuple[tuple[Any, ...], Any]] = [
    (("network", 0, "bandwidth"), "30 GB/s"),
    (("network", 1, "bandwidth"), "400 GB/s"),
    (("network", 1, "latency"), "0 us"),
    (("network", 0, "topology"), "Ring"),
    (("npu", "peak"), "1 TFLOP/s"),
    (("npu", "speed"), {3: 0.5}),
    (("compute",), {"model": "roofline", "efficiency": "50 %"}),
    (("compute",), {"model": "gpu", "device": "h100-sxm"}),
    (("collectives",), {"chunks": 5}),
    (("scheduling",), "fifo"),
    (("stragglers",), {2: "7 us"}),
    (("terms",), {"launch": "4 us"}),
    (("terms",), {"launch": "9 us", "communication": "20 %", "straggler": "3 %"}),
]


def machine(changes: list[tuple[tuple[Any, ...], Any]]) -> Platform:
    """Return the machine with these changes."""
    made = deepcopy(MACHINE)
    for (*path, key), value in changes:
        at: Any = made
        for each in path:
            at = at[each]
        at[key] = value
    return armillary.load_platform(made)


def equal(one: Trace, other: Trace, platform: Platform) -> bool:
    """Tell whether both are lowered to the same program."""
    a, b = lower(one, platform), lower(other, platform)
    for name, table in a.tables.items():
        np.testing.assert_array_equal(table, b.tables[name], name)
    assert (a.scalars, a.sizes, a.warnings, a.groups) == (b.scalars, b.sizes, b.warnings, b.groups)
    np.testing.assert_array_equal(a.classes, b.classes)
    for mine, yours in zip(a.views, b.views, strict=True):
        for field in fields(mine.nodes):
            if field.name != "graph":
                np.testing.assert_array_equal(
                    getattr(mine.nodes, field.name), getattr(yours.nodes, field.name), field.name
                )
    return [plan.placed for plan in a.plans] == [plan.placed for plan in b.plans]


@settings(deadline=None, max_examples=25)
@given(plans(), st.lists(st.lists(st.sampled_from(CHANGES), max_size=2), min_size=2, max_size=3))
@example(Plan.model_validate({"ranks": 16, "batch": 64, "sequence": 32}), [[CHANGES[6]], [CHANGES[7]]])
def test_programs_are_those_of_traces_read_anew(plan: Any, machines: list[Any]) -> None:
    model = Decoder.model_validate(MODEL)
    trace = generate(model, plan)
    for changes in machines:
        assert equal(trace, replace(trace), machine(changes))


def test_tables_are_filled_in_where_only_times_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = generate(
        Decoder.model_validate(MODEL), Plan.model_validate({"ranks": 16, "batch": 64, "sequence": 32})
    )
    built = []

    class Counted(lowering.Build):
        def assemble(self, warnings: list[str]) -> PhysicalProgram:
            built.append(self)
            return super().assemble(warnings)

    monkeypatch.setattr(lowering, "Build", Counted)
    made = [lower(trace, machine(changes)) for changes in ([], [CHANGES[0]], [CHANGES[2]], [CHANGES[4]])]
    assert len(built) == 1
    # What was lowered before stays as it was.
    again = lower(replace(trace), machine([]))
    for name, table in again.tables.items():
        np.testing.assert_array_equal(made[0].tables[name], table, name)


@settings(deadline=None, max_examples=25)
@given(
    plans(),
    st.lists(st.tuples(st.integers(1, 9000), st.lists(st.sampled_from(CHANGES), max_size=2)), max_size=3),
)
def test_programs_are_those_of_traces_of_other_times_read_anew(plan: Plan, others: list[Any]) -> None:
    model, issue = Decoder.model_validate(MODEL), plan.host.issue
    trace = generate(model, plan)
    lower(trace, machine([]))
    for time, changes in others:
        other = plan.model_copy(update={"host": plan.host.model_copy(update={"issue": time if issue else 0})})
        trace = in_other_times(trace, model, other)
        assert equal(trace, generate(model, other), machine(changes))


def test_traces_that_differ_in_times_are_read_once() -> None:
    model = Decoder.model_validate(MODEL)
    keys = {"ranks": 16, "batch": 64, "sequence": 32}
    one, two = (Plan.model_validate({**keys, "host": {"issue": time}}) for time in ("2 us", "3 us"))
    first = generate(model, one)
    lower(first, machine([]))
    second = in_other_times(first, model, two)
    lower(second, machine([]))
    known = [kept._workloads[trace][1].axis_sets for trace in (first, second)]
    assert known[0] is known[1]
    assert kept._of_other_times(generate(model, two)) is None


def test_what_differs_in_speed_only_is_read_once() -> None:
    trace = generate(
        Decoder.model_validate(MODEL), Plan.model_validate({"ranks": 16, "batch": 64, "sequence": 32})
    )
    read = []
    for changes in ([], [CHANGES[1]], [CHANGES[4]], [CHANGES[8]]):
        lower(trace, machine(changes))
        read.append(id(kept._workloads[trace][1].axis_sets))
    assert read[0] == read[1] == read[2] != read[3]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_behind_a_switch_every_place_is_like_every_other(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))
    # A fit is by what fills a node, and by how many nodes there are.
    inner = data.draw(st.integers(0, len(sizes) - 1))
    fitted = Collectives(fit=FitChoice("h100-sxm", inner=inner)) if inner else Collectives()
    dimensions = tuple(Dimension(f"d{i}", "Switch", n, 10.0, 3.0) for i, n in enumerate(sizes))
    platform = Platform(dimensions, collectives=fitted)
    counts = [data.draw(st.integers(1, n)) for n in sizes]

    def group() -> Communicator:
        places = [
            sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=k, max_size=k)))
            for n, k in zip(sizes, counts, strict=True)
        ]
        grid = np.meshgrid(*places, indexing="ij")
        strides = np.cumprod([1, *sizes[:-1]])
        members = sum(each.ravel() * stride for each, stride in zip(grid, strides, strict=True))
        return Communicator(1, np.sort(members), False)

    one, other = group(), group()
    operation = data.draw(
        st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"])
    )
    call = CollectiveCall(1, operation, data.draw(st.sampled_from([1, 1000, 12_345_678])), None)
    if place_of(call, one, platform) is None:
        assert len(one.members) < 2
        return
    assert place_of(call, one, platform) == place_of(call, other, platform)
    found = chunk_routes_of(call, one, platform).at(other.positions(platform.dimensions))
    assert found == chunk_routes_of(call, other, platform)
    assert found.stripped == chunk_routes_of(call, other, platform).stripped
    # What bounds them is shared, too.
    shared, fresh = Demands(platform), Demands(platform)
    shared.least(call, one)
    assert shared.least(call, other) == fresh.least(call, other)
    columns = shared.columns([(1, call, other)])
    for name, column in fresh.columns([(1, call, other)]).items():
        np.testing.assert_array_equal(columns[name], column, name)
