"""A step computes the same after fusion: values as expressions of what was there before it, row by row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from armillary.capture.flows import Flow, once, unread, with_sums
from armillary.capture.fusion import Group, _groups, fuse
from armillary.capture.kinds import Kind
from armillary.capture.log import COMMUNICATION, Communication, Row
from tests.capture.test_fusion import ADD, KINDS, MM, MUL, sizes, step

Values = dict[int, object]
ALL = len(KINDS)
ALIKE = [Communication("all-reduce", 10, 10, 0, True)]


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Row], list[Flow], set[int]]:
    """Return rows that read what is there before the step or was made in it, and make something new or change it."""
    known, each = [1, 2, 3], []
    for _ in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from([MUL, MUL, MUL, MM, ADD, ALL]))
        region = each[-1][1] if each and draw(st.booleans()) else draw(st.sampled_from([1, 1, 1, -1, 0, 2]))
        read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        reads = {storage: draw(st.sampled_from([10, 10, 1])) for storage in read}
        if draw(st.integers(0, 3)):
            known.append(len(known) + 1)
            writes = {known[-1]: 10}
        else:
            writes = {draw(st.sampled_from(read)): 10}
        each.append((kind, region, reads, writes))
    rows, flows = step(*each)
    # What is communicated of the same is the same: all are one communication here.
    rows = [row._replace(kind=COMMUNICATION, what=0) if row.what == ALL else row for row in rows]
    again = draw(st.booleans())
    flows = [flow._replace(again=again and flow.region == 2) for flow in flows]
    return rows, flows, draw(st.sets(st.sampled_from(known), max_size=4))


def run(rows: list[Row], flow: Flow, read: list[object], to: Values) -> None:
    for at, (storage, size) in enumerate(flow.writes.items()):
        to[storage] = (rows[flow.row][:2], at, tuple(given_to(read)), size)


def given_to(read: list[object]) -> list[object]:
    """Return what an operator gets: of two tensors that are the same, only one is left."""
    return list(dict.fromkeys(read))


def made_again(storage: int, rows: list[Row], of: dict[int, Group], there: Values, gone: set[int]) -> object:
    """Return what a kernel makes of what is there now, in place of a result that was not kept."""
    [group] = {id(group): group for group in of.values() if storage in group.made}.values()
    own: Values = {}
    for flow in sorted(group.flows, key=lambda each: each.row):
        read = [
            own[each] if each in own
            else made_again(each, rows, of, there, gone) if each in gone and there.get(each) == "gone"
            else there.get(each, each)
            for each in flow.reads
        ]  # fmt: skip
        run(rows, flow, read, own)
        own.update({each: there.get(each, each) for each in flow.writes if each not in gone})
    return own[storage]


@given(steps())
def test_every_operator_reads_after_fusion_what_it_read_before(
    made: tuple[list[Row], list[Flow], set[int]],
) -> None:
    rows, flows, alive = made
    before: Values = {}
    read = {}
    for flow in flows:
        values = [before.get(each, each) for each in flow.reads]
        read[flow.row] = given_to(values)
        run(rows, flow, values, before)
    gone = fuse(rows, KINDS, flows, alive, ALIKE).gone
    left = with_sums(rows, KINDS, flows)
    left_out, _ = unread(rows, left, alive)
    left, twice, _ = once(rows, KINDS, [flow for flow in left if flow.row not in left_out], alive, ALIKE)
    groups = _groups(rows, KINDS, left, left_out | twice)
    of = {flow.row: group for group in groups for flow in group.flows}
    units = [(group.at, sorted(group.flows, key=lambda each: each.row)) for group in groups]
    units += [(flow.row, [flow]) for flow in left if flow.row not in of]
    there: Values = {}
    for _, unit in sorted(units, key=lambda each: each[0]):
        own: Values = {}
        for flow in unit:
            found = [
                own[each] if each in own
                else made_again(each, rows, of, there, gone) if there.get(each) == "gone"
                else there.get(each, each)
                for each in flow.reads
            ]  # fmt: skip
            assert given_to(found) == read[flow.row], flow
            run(rows, flow, found, own)
        there.update({each: "gone" if each in gone else value for each, value in own.items()})
    assert all(there.get(each) == before.get(each) for each in alive)


def test_what_is_made_of_something_that_changes_before_the_gradients_is_kept() -> None:
    forward = (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 10}), (MM, 1, {3: 10}, {4: 10})
    gradient = MUL, -1, {4: 10, 2: 10}, {5: 10}
    rows, flows = step(*forward, gradient)
    assert fuse(rows, KINDS, flows, {5}).gone == {2}
    # Like a running mean, which the next microbatch changes.
    rows, flows = step(*forward, (MUL, 0, {1: 10}, {1: 10}), gradient)
    made = fuse(rows, KINDS, flows, {5})
    assert not made.gone and sizes(made.rows, made.kinds)[0] == ("compiled::mul", 30)


def test_what_is_made_before_and_after_a_change_is_not_the_same() -> None:
    twice = (MUL, 1, {1: 10}, {2: 10}), (MM, 1, {2: 10}, {3: 10}), (MM, 1, {1: 10, 3: 10}, {1: 10})
    rows, flows = step(*twice, (MUL, 1, {1: 10}, {4: 10}), (MM, 1, {4: 10}, {5: 10}))
    assert [row.what for row in fuse(rows, KINDS, flows, {3, 5}).rows] == [MUL, MM, MM, MUL, MM]


def test_what_moves_to_its_reader_is_read_there() -> None:
    # 3 is made at its reader, of what the first kernel has changed: that one does not move past it.
    first = (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {1: 10}, {1: 10})
    scaled = (MUL, 1, {1: 1}, {3: 10}), (MUL, 1, {3: 10}, {3: 10}), (MUL, 1, {2: 10}, {2: 10})
    rows, flows = step(*first, *scaled)
    [changed] = [
        at
        for at, group in enumerate(_groups(rows, KINDS, flows, set()))
        if {0, 1} <= {f.row for f in group.flows}
    ]
    assert changed == 0


def test_the_mask_of_a_dropout_is_kept_for_the_gradients() -> None:
    kinds = [*KINDS[:2], Kind("aten::native_dropout", (), (), 4, 30, "elementwise")]
    drop = 2
    rows, flows = step(
        (MM, 1, {1: 10}, {2: 10}), (drop, 1, {2: 10}, {3: 10, 4: 5}), (MUL, 1, {3: 10}, {5: 10})
    )
    gradient, others = step((MM, 1, {5: 10}, {6: 10}), (MUL, -1, {6: 10, 4: 5}, {7: 10}))
    flows += [flow._replace(row=flow.row + 3) for flow in others]
    made = fuse(rows + gradient, kinds, flows, {7})
    assert made.gone == {3} and ("compiled::native_dropout_mul", 25) in sizes(made.rows, made.kinds)


def test_of_two_parts_of_what_is_the_same_the_larger_one_is_read() -> None:
    twice = (MM, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 10}), (MM, 1, {3: 10}, {4: 10})
    again = (MUL, 1, {2: 10}, {5: 10}), (MM, 1, {4: 10}, {6: 10})
    rows, flows = step(*twice, *again, (MUL, 1, {3: 10, 5: 1, 6: 10}, {7: 10}), (MUL, 1, {7: 10}, {8: 10}))
    made = fuse(rows, KINDS, flows, {6, 8})
    assert sizes(made.rows, made.kinds)[-1] == ("compiled::mul", 30)
