"""The points of a space against loops that say the same, their numbers, and what is computed from them."""

import pickle
from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.explore.sweep import load_sweep

STUDY = {
    "workload": {"collective": "all-reduce", "size": "1 MiB"},
    "platform": {
        "network": [
            {"name": "node", "topology": "Switch", "size": 2, "bandwidth": "100 GB/s", "latency": "1 us"},
            {"name": "pod", "topology": "Ring", "size": 4, "bandwidth": "50 GB/s", "latency": "1 us"},
        ]
    },
}
KEYS = (
    "platform.network.node.size",
    "platform.network.pod.size",
    "platform.collectives.chunks",
    "platform.collectives.queues",
)
STANDING = (2, 4, 64, 1)


def space(**keys):
    return load_sweep({"study": STUDY, **keys}).space


@st.composite
def axes(draw):
    """Lists of values, some with a condition on an axis before them."""
    found = []
    for index in range(draw(st.integers(1, 4))):
        values = draw(st.lists(st.integers(2, 9), min_size=1, max_size=4, unique=True))
        on = draw(st.none() | st.tuples(st.integers(0, index - 1), st.integers(2, 9))) if index else None
        found.append((values, on))
    return found


@settings(max_examples=50, deadline=None)
@given(axes())
def test_points_are_those_of_nested_loops(given_axes):
    vary = {}
    for index, (values, on) in enumerate(given_axes):
        vary[KEYS[index]] = {"values": values, "name": f"a{index}"} | (
            {"when": f"a{on[0]} > {on[1]}"} if on else {}
        )
    expected = []
    for choice in product(*(values for values, _ in given_axes)):
        own = []
        for index, (value, (_, on)) in enumerate(zip(choice, given_axes, strict=True)):
            own.append(value if on is None or own[on[0]] > on[1] else STANDING[index])
        expected.append(tuple(own))
    # A combination of values whose axis is not varied comes once: where that axis has its first value.
    kept = []
    for choice, own in zip(product(*(values for values, _ in given_axes)), expected, strict=True):
        active = [on is None or own[on[0]] > on[1] for _, on in given_axes]
        if all(a or c == values[0] for a, c, (values, _) in zip(active, choice, given_axes, strict=True)):
            kept.append(own)
    found = space(vary=vary)
    points = list(found.points())
    assert [tuple(point.values.values()) for point in points] == kept
    assert [point.number for point in points] == list(range(found.size))
    for point in points:
        assert found.at(point.number) == point
        assert found.point(point.values) == point
    assert pickle.loads(pickle.dumps(found)).at(len(points) - 1) == points[-1]


def test_points_share_what_does_not_change():
    first, second = space(vary={KEYS[0]: [2, 4]}).points()
    assert (
        first.document["platform"]["network"][0]["size"],
        second.document["platform"]["network"][0]["size"],
    ) == (2, 4)
    assert first.document["workload"] is second.document["workload"]
    assert first.key != second.key
    assert STUDY["platform"]["network"][0]["size"] == 2


def test_a_million_points_cost_nothing_until_asked_for():
    found = space(
        vary={key: {"from": 2, "to": 101, "step": 1, "name": key[-8:].replace(".", "_")} for key in KEYS}
    )
    assert found.size == 10**8
    assert [tuple(point.values.values())[-2:] for point in islice(found.points(), 3)] == [
        (2, 2),
        (2, 3),
        (2, 4),
    ]
    assert set(found.at(10**8 - 1).values.values()) == {101}


def test_choices_change_several_keys_together():
    found = space(
        vary={
            "machine": {
                "choices": {
                    "slow": {"platform.network.node.bandwidth": "10 GB/s"},
                    "fast": {
                        "platform.network.node.bandwidth": "1 TB/s",
                        "platform.network.pod.latency": "2 us",
                    },
                }
            }
        }
    )
    slow, fast = found.points()
    assert (slow.values, fast.values) == ({"machine": "slow"}, {"machine": "fast"})
    assert [part["latency"] for part in slow.document["platform"]["network"]] == ["1 us", "1 us"]
    assert [part["latency"] for part in fast.document["platform"]["network"]] == ["1 us", "2 us"]


def test_let_computes_keys_and_names_in_the_order_they_need():
    found = space(
        vary={KEYS[0]: {"values": [2, 8], "name": "inner"}},
        let={
            "platform.network.pod.bandwidth": "rate / 2",
            "rate": "100 GB/s * npus",
            "platform.network.pod.size": "64 / inner",
        },
    )
    one, other = found.points()
    assert one.values == {"inner": 2, "size": 32, "rate": 6400000000000, "bandwidth": "3200000000000 B/s"}
    assert other.document["platform"]["network"][1]["size"] == 8
    assert other.document["platform"]["network"][1]["bandwidth"] == "3200000000000 B/s"


def test_a_point_without_its_computed_value_says_so():
    points = list(space(vary={KEYS[2]: [1, 2]}, let={KEYS[3]: "4 // (chunks - 1)"}).points())
    assert [point.problem for point in points] == [
        "'4 // (chunks - 1)': integer division or modulo by zero",
        "",
    ]
    assert points[1].values["queues"] == 4


def test_presets_are_changed_by_the_names_of_their_dimensions():
    study = {"workload": STUDY["workload"], "platform": {"preset": "dgx-superpod-h100"}}
    found = load_sweep({"study": study, "vary": {"platform.network.nvlink.bandwidth": ["1 GB/s"]}}).space
    assert found.at(0).document["platform"] == {
        "preset": "dgx-superpod-h100",
        "network": {"nvlink": {"bandwidth": "1 GB/s"}},
    }


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"chunks": 3}, "chunks: got 3, expected one of 1, 2"),
        ({"chunk": 1}, "no axis 'chunk' (did you mean 'chunks'?)"),
        ({}, "no value of chunks, expected one of 1, 2"),
        ({"chunks": True}, "chunks: got True"),
    ],
)
def test_points_by_wrong_values(values, problem):
    with pytest.raises(InputError) as error:
        space(vary={KEYS[2]: [1, 2]}).point(values)
    assert problem in str(error.value)


def test_what_follows_from_a_value_that_is_none_is_none() -> None:
    varied = {"platform.network.node.size": [2, 4]}
    sweep = load_sweep({"study": STUDY, "vary": varied, "let": {"x": "1 / (size - 2)", "y": "x + 1"}})
    first, second = sweep.space.points()
    assert first.problem == "'1 / (size - 2)': division by zero" and "y" not in first.values
    assert not second.problem and second.values["y"] == 1.5


def test_derived_values_are_no_larger_than_stores_take() -> None:
    doubled = {"x0": "2"} | {f"x{i}": f"x{i - 1} * x{i - 1}" for i in range(1, 12)}
    (point,) = load_sweep(
        {"study": STUDY, "vary": {"workload.size": ["1 MiB"]}, "let": doubled}
    ).space.points()
    assert point.problem.startswith("'x9 * x9' = ") and point.problem.endswith(
        "expected a number below 1e+300"
    )


def test_many_derived_values_are_ordered_by_need_and_then_as_they_stand() -> None:
    count = 1000
    back = {f"x{i}": f"x{i + 1} + 1" for i in range(count - 1)} | {f"x{count - 1}": "1"}
    sweep = load_sweep({"study": STUDY, "vary": {"workload.size": ["1 MiB"]}, "let": back})
    assert [each.name for each in sweep.space.derived] == [f"x{i}" for i in reversed(range(count))]
    with pytest.raises(InputError, match="entries of let: 1,001 of them, expected at most 1,000"):
        load_sweep({"study": STUDY, "vary": {"workload.size": ["1 MiB"]}, "let": back | {"z": "1"}})
