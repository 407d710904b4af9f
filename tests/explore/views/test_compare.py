"""What sets runs apart: the terms add up, whatever ran."""

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.compare.comparison import ABSENT, as_json, compared, differences
from armillary.explore.compare.nodes import node_changes
from armillary.explore.compare.show import headline
from armillary.explore.compare.sides import Side, read_side, side_of_row
from armillary.explore.compare.terms import BETWEEN_TWO, OTHER, OUTSIDE, terms_of
from armillary.explore.compare.waterfall import bars
from armillary.explore.sweep.point import Row
from armillary.report.time_breakdown import TITLES, breakdown

_SPEC = importlib.util.spec_from_file_location(
    "report_timelines", Path(__file__).parents[2] / "report" / "conftest.py"
)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
build_timeline = _MODULE.build_timeline

DIMENSIONS = [
    {"name": "node", "topology": "Switch", "size": 8},
    {"name": "rail", "topology": "Switch", "size": 4},
]
LABELS = ("all-reduce@dp", "all-gather@tp", "all-reduce")


@st.composite
def timelines(draw):
    nodes, phases = [], []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(("compute", "cpu", "collective", "collective", "send", "recv", "memory")))
        start = draw(st.integers(0, 60))
        end = start + draw(st.integers(0, 30))
        node = {"kind": kind, "name": f"{kind} {draw(st.integers(0, 9))}", "start": start, "end": end}
        if kind == "collective":
            node["label"] = draw(st.sampled_from(LABELS))
            node["size"] = 64
            for chunk in range(draw(st.integers(0, 2))):
                begin = draw(st.integers(start, end))
                until = draw(st.integers(begin, end))
                phases.append((len(nodes), chunk, 0, draw(st.integers(0, 1)), "all-reduce", begin, until, 8))
        nodes.append(node)
    last = max((node["end"] for node in nodes), default=0)
    finish = last + draw(st.integers(0, 5))
    return build_timeline(
        [{"nodes": nodes, "phases": phases, "finish": finish}], dimensions=DIMENSIONS, npus=32
    )


@settings(max_examples=50, deadline=None)
@given(timelines(), timelines())
def test_terms_add_up_to_the_step_and_to_what_changed(one, two):
    terms = terms_of([Side("a", one), Side("b", two)])
    assert terms.total.ns == (one.total_ticks, two.total_ticks)
    exposed = [breakdown(each, 0).communication for each in (one, two)]
    for i in (0, 1):
        assert sum(part.ns[i] for part in terms.parts) == terms.total.ns[i]
        assert sum(part.ns[i] for part in terms.by_group) == exposed[i]
        assert sum(part.ns[i] for part in terms.by_dimension) == exposed[i]
        assert all(part.ns[i] >= 0 for part in (*terms.parts, *terms.by_group, *terms.by_dimension))
    assert sum(part.change for part in terms.parts) == two.total_ticks - one.total_ticks
    comparison = compared([Side("a", one), Side("b", two)])
    assert sum(bar.change for bar in bars(comparison.terms)) == two.total_ticks - one.total_ticks
    json.dumps(as_json(comparison), allow_nan=False)


def ticks_by_hand(timeline, busy, key):
    """The slow reference: every tick of its own, for the first in `order` of those in flight."""
    found = {}
    for tick in range(timeline.total_ticks):
        if not busy(tick):
            name = key(tick)
            if name:
                found[name] = found.get(name, 0) + 1
    return found


@settings(max_examples=50, deadline=None)
@given(timelines())
def test_exposed_ticks_go_to_the_group_with_most_of_them(timeline):
    table, (start, end) = timeline.table(0), timeline.spans(0)
    from armillary.engine.common.timeline import KINDS

    running = [
        (KINDS[table.kind[i]], str(table.label[i]), int(start[i]), int(end[i]))
        for i in range(len(table.kind))
    ]

    def in_flight(tick):
        return {
            BETWEEN_TWO if kind in ("send", "recv") else label
            for kind, label, begin, until in running
            if kind in ("collective", "send", "recv") and begin <= tick < until
        }

    def busy(tick):
        return any(kind in ("compute", "cpu") and begin <= tick < until for kind, _, begin, until in running)

    alone = {}
    for tick in range(timeline.total_ticks):
        for name in in_flight(tick) if not busy(tick) else ():
            alone[name] = alone.get(name, 0) + 1
    order = sorted(alone, key=lambda name: (-alone[name], name))
    expected = ticks_by_hand(
        timeline, busy, lambda tick: next((name for name in order if name in in_flight(tick)), "")
    )
    terms = terms_of([Side("a", timeline), Side("b", timeline)])
    assert {term.name: term.ns[0] for term in terms.by_group} == expected


def test_communication_outside_of_phases_has_its_own_line():
    nodes = [
        {"kind": "collective", "name": "c", "label": "all-reduce@dp", "start": 0, "end": 10, "size": 8},
        {"kind": "send", "name": "s", "start": 10, "end": 15, "size": 8},
    ]
    phases = [(0, 0, 0, 1, "all-reduce", 2, 8, 8)]
    timeline = build_timeline(
        [{"nodes": nodes, "phases": phases, "finish": 15}], dimensions=DIMENSIONS, npus=32
    )
    terms = terms_of([Side("a", timeline), Side("b", timeline)])
    assert {term.name: term.ns[0] for term in terms.by_dimension} == {"rail": 6, OUTSIDE: 9}
    assert {term.name: term.ns[0] for term in terms.by_group} == {"all-reduce@dp": 10, BETWEEN_TWO: 5}


def test_nodes_are_put_together_by_name_without_numbers():
    def run(first, second):
        nodes = [
            {"kind": "compute", "name": "layer 1 gemm", "start": 0, "end": first},
            {"kind": "compute", "name": "layer 2 gemm", "start": first, "end": first + second},
            {"kind": "collective", "name": "x", "label": "all-reduce@dp", "start": 0, "end": 7, "size": 8},
        ]
        return build_timeline([{"nodes": nodes, "finish": 100}])

    (change,) = node_changes(run(10, 20), run(11, 25))
    assert (change.kind, change.name, change.calls, change.ns, change.change) == (
        "compute", "layer * gemm", (2, 2), (30, 36), 6,
    )  # fmt: skip


def test_rows_of_a_sweep_add_up_too():
    measures = {"step_time": 1.234567891, "compute": 1.0, "communication": 0.2, "waiting": 0.0, "idle": 0.03}
    sides = [
        side_of_row(Row(0, {"tp": 1}, "a", "ok", "", measures)),
        side_of_row(Row(7, {"tp": 2}, "b", "ok", "", measures | {"step_time": 1.2, "compute": 0.9})),
    ]
    found = compared(sides)
    assert found.terms.total.ns == (1_234_567_891, 1_200_000_000)
    assert {part.name: part.ns for part in found.terms.parts} == {
        TITLES["compute"]: (1_000_000_000, 900_000_000),
        TITLES["communication"]: (200_000_000, 200_000_000),
        TITLES["idle"]: (30_000_000, 30_000_000),
        OTHER: (4_567_891, 70_000_000),
    }
    assert found.keys == {"tp": (1, 2)}
    with pytest.raises(InputError, match=r"point 3: is rejected \(too large\), expected a point that is ok"):
        side_of_row(Row(3, {}, "c", "rejected", "too large"))


def test_keys_that_differ_by_name_of_list_members():
    one = {
        "a": {"b": 1, "same": [1, 2]},
        "net": [{"name": "x", "size": 8}, {"name": "y", "size": 2}],
        "only": True,
    }
    two = {
        "a": {"b": 2, "same": [1, 2]},
        "net": [{"name": "y", "size": 4}, {"name": "x", "size": 8}],
        "b": {},
    }
    assert differences([one, two]) == {
        "a.b": (1, 2),
        "net.y.size": (2, 4),
        "only": (True, ABSENT),
        "b": (ABSENT, {}),
    }
    assert differences([{"a": 1}, {"a": True}]) == {"a": (1, True)}
    assert differences([one, one, one]) == {}


STUDY = """
workload: {{collective: all-reduce, size: {size}}}
platform:
  network: [{{name: ring, topology: Ring, size: 8, bandwidth: {bandwidth}, latency: 1 us}}]
"""


@pytest.fixture
def studies(tmp_path):
    for name, size, bandwidth in (
        ("a", "64 MiB", "50 GB/s"),
        ("b", "64 MiB", "100 GB/s"),
        ("c", "1 MiB", "50 GB/s"),
    ):
        (tmp_path / f"{name}.yaml").write_text(STUDY.format(size=size, bandwidth=bandwidth))
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, ["compare", *map(str, words)], catch_exceptions=False)


def test_studies_are_compared_from_the_command_line(studies):
    result = run(studies / "a.yaml", studies / "b.yaml", "--plot", studies / "w.png")
    assert result.exit_code == 0
    assert "platform.network.ring.bandwidth" in result.output
    assert "less than A" in result.output
    assert (studies / "w.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(run(studies / "a.yaml", studies / "b.yaml", "--json", "-").stdout)
    assert found["keys"] == {"platform.network.ring.bandwidth": ["50 GB/s", "100 GB/s"]}
    assert sum(part["change_ns"] for part in found["parts"]) == found["step_time"]["change_ns"] < 0
    assert [one["name"] for one in found["nodes"]] == ["all-reduce"]


def test_a_comparison_in_python_draws_itself(studies):
    found = armillary.compare(*(str(studies / name) for name in ("a.yaml", "b.yaml")))
    one, other = found.step_time
    assert one > other and other - one == pytest.approx(sum(row["change"] for row in found.breakdown))
    drawn = [patch.get_width() * 1e-9 for patch in found.plot().axes[0].patches]
    # From the one step by the changes to the other.
    assert (drawn[0], drawn[-1]) == pytest.approx((one, other))
    assert drawn[0] + sum(drawn[1:-1]) == pytest.approx(other)
    with pytest.raises(InputError, match="two runs, got 3"):
        armillary.compare(*(str(studies / f"{name}.yaml") for name in "abc")).plot()


def test_a_saved_timeline_is_what_its_study_is(studies):
    CliRunner().invoke(
        main, ["run", str(studies / "a.yaml"), "--save", str(studies / "a.npz")], catch_exceptions=False
    )
    sides = [read_side(str(studies / name)) for name in ("a.yaml", "a.npz")]
    found = compared(sides)
    assert headline(found).startswith("Both take ")
    assert found.nodes == ()
    assert found.terms.total.change == 0


def test_three_runs_are_one_table(studies):
    result = run(studies / "a.yaml", studies / "b.yaml", studies / "c.yaml")
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if line.startswith("to A"))
    assert line.split()[2:4] == ["+0.0", "%"]
    assert len(line.split()) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.yaml"], "expected at least two"),
        (["a.yaml", "gone.yaml"], "gone.yaml"),
        (["a.yaml", "gone.npz"], "gone.npz"),
        (["a.yaml", "gone.sqlite#3"], "gone.sqlite: there is no such store"),
        (["a.yaml", "b.yaml", "c.yaml", "--plot", "w.png"], "--plot shows two runs, 3 given"),
    ],
)
def test_mistakes_are_one_message(studies, monkeypatch, words, message):
    monkeypatch.chdir(studies)
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.output
    assert not Path("w.png").exists()
