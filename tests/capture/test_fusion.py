"""Kernels of compiled parts: what becomes one, and what it reads and writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from armillary.capture.flows import Flow
from armillary.capture.fusion import fuse
from armillary.capture.kinds import Kind
from armillary.capture.log import COMMUNICATION, JOIN, OPERATOR, RECORD, Communication, Row

MUL, MM, ADD, COPY = range(4)
COMMUNICATION_AT, RECORD_AT = 4, 5
KINDS = [
    Kind("aten::mul", (), (), 4, 30, "elementwise"),
    Kind("aten::mm", (), (), 100, 30, "matmul"),
    Kind("aten::add", (), (), 4, 30, "elementwise"),
    Kind("fsdp::all_gather_copy_in", (), (), 0, 30, "memory"),
]


def step(*each: tuple[int, int, dict[int, int], dict[int, int]]) -> tuple[list[Row], list[Flow]]:
    """Return rows and flows of (kind, region, reads, writes)."""
    rows = [Row(OPERATOR, kind, 0, 0, 3) for kind, *_ in each]
    return rows, [Flow(at, *rest) for at, (_, *rest) in enumerate(each)]


def sizes(rows: list[Row], kinds: list[Kind]) -> list[tuple[str, int]]:
    return [(kinds[row.what].name, kinds[row.what].size) for row in rows if row.kind == OPERATOR]


def test_a_chain_reads_what_comes_from_outside_and_writes_what_is_used_there() -> None:
    rows, flows = step(
        (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10, 3: 10}, {4: 10}), (MM, 1, {4: 10}, {5: 10})
    )
    made = fuse(rows, KINDS, flows, set())
    assert sizes(made.rows, made.kinds) == [("compiled::mul", 30), ("aten::mm", 30)]
    assert made.gone == {2} and made.kinds[made.rows[0].what].flops == 8
    assert made.rows[0].calls == 1


def test_what_outlives_the_step_or_is_read_elsewhere_is_written() -> None:
    chain = (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {4: 10})
    rows, flows = step(*chain)
    assert sizes(*fuse(rows, KINDS, flows, {2, 4})[:2]) == [("compiled::mul", 30)]
    rows, flows = step(*chain, (MM, 0, {2: 10, 4: 10}, {5: 10}))
    assert sizes(*fuse(rows, KINDS, flows, set())[:2])[0] == ("compiled::mul", 30)


def test_what_only_gradients_need_is_made_again() -> None:
    forward = (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 10}), (MM, 1, {3: 10}, {4: 10})
    rows, flows = step(*forward, (MUL, -1, {4: 10, 2: 10}, {5: 10}), (MM, 0, {5: 10}, {6: 10}))
    made = fuse(rows, KINDS, flows, set())
    # The gradient reads 1, of which 2 is made, in place of 2; 1 is there until then.
    assert sizes(made.rows, made.kinds)[0] == ("compiled::mul", 20)
    assert sizes(made.rows, made.kinds)[2] == ("compiled::mul", 30)
    assert made.gone == {2} and made.kept == {1: 2}


def test_nothing_is_fused_outside_of_compiled_parts_or_over_events() -> None:
    rows, flows = step((MUL, 0, {1: 10}, {2: 10}), (MUL, 0, {2: 10}, {3: 10}))
    assert fuse(rows, KINDS, flows, set()).rows == rows
    rows, flows = step((MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 10}))
    rows.insert(1, Row(RECORD, 7, 0))
    flows[1] = flows[1]._replace(row=2)
    made = fuse(rows, KINDS, flows, {3})
    assert [row.kind for row in made.rows] == [OPERATOR, RECORD, OPERATOR]


def test_calls_of_a_part_are_kernels_of_their_own() -> None:
    rows, flows = step((MUL, 1, {1: 10}, {2: 10}), (MUL, 2, {2: 10}, {3: 10}))
    assert fuse(rows, KINDS, flows, {3}).rows == rows


def test_what_a_checkpoint_makes_again_and_nobody_reads_is_not_made() -> None:
    again = (MM, 2, {1: 10}, {5: 10}), (MUL, 2, {5: 10}, {6: 10}), (MUL, 2, {1: 10}, {7: 10})
    rows, flows = step((MM, 1, {1: 10}, {2: 10}), *again, (MUL, -1, {7: 10}, {8: 10}))
    flows = [flow._replace(again=flow.region == 2) for flow in flows]
    made = fuse(rows, KINDS, flows, {8})
    # 7 is made in the kernel that reads it: what a checkpoint makes again is compiled with the backward pass.
    assert sizes(made.rows, made.kinds) == [("aten::mm", 30), ("compiled::mul", 20)]
    assert made.gone == {5, 6, 7} and made.kept == {1: 7}


def test_a_kernel_moves_over_gemms_until_its_results_are_read() -> None:
    gate = (MM, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 10}), (MM, 1, {1: 10}, {4: 10})
    product = MUL, 1, {3: 10, 4: 10}, {5: 10}
    rows, flows = step(*gate, product, (MM, 1, {5: 10}, {6: 10}))
    made = fuse(rows, KINDS, flows, {6})
    assert sizes(made.rows, made.kinds) == [
        ("aten::mm", 30), ("aten::mm", 30), ("compiled::mul", 30), ("aten::mm", 30)
    ]  # fmt: skip
    # A GEMM that reads what it makes, one that writes what it reads, or an event keeps it where it is.
    for between in ((MM, 1, {3: 10}, {4: 10}), (MM, 1, {1: 10}, {4: 10, 2: 10})):
        rows, flows = step(*gate[:2], between, product)
        assert [name for name, _ in sizes(*fuse(rows, KINDS, flows, {5})[:2])].count("aten::mul") == 2
    rows, flows = step(*gate, product)
    rows.insert(3, Row(RECORD, 7, 0))
    flows[3] = flows[3]._replace(row=4)
    assert fuse(rows, KINDS, flows, {5}).rows == rows


def test_a_kernel_moves_over_communications_until_its_results_are_read() -> None:
    # Two sums of three results of GEMMs, with the communication of a scale between them.
    sums = (MM, 1, {1: 10}, {2: 10}), (MM, 1, {1: 10}, {3: 10}), (ADD, 1, {2: 10, 3: 10}, {4: 10})
    last = (MM, 1, {1: 10}, {5: 10}), (ADD, 1, {4: 10, 5: 10}, {6: 10})
    rows, flows = step(*sums, *last)
    rows[3:3] = Row(COMMUNICATION, 99, 0, 0, 3), Row(JOIN, 99, 0)

    def moved(reads: dict[int, int], region: int) -> list[tuple[str, int]]:
        between = Flow(3, region, reads, {9: 1})
        found = fuse(
            rows, KINDS, [*flows[:3], between, *[each._replace(row=each.row + 2) for each in flows[3:]]], {6}
        )
        return sizes(found.rows, found.kinds)

    whole = [*[("aten::mm", 30)] * 3, ("compiled::add", 40)]
    assert moved({8: 1}, 1) == whole
    # It reads the first sum, or is of no compiled part.
    assert whole[-1] not in moved({4: 10}, 1) and whole[-1] not in moved({8: 1}, 0)


def test_a_row_moves_to_a_kernel_before_a_gemm_if_all_that_it_reads_is_there() -> None:
    first = (MUL, 1, {1: 10, 2: 10}, {3: 10}), (MUL, 1, {1: 10, 4: 10}, {5: 10}), (MM, 1, {3: 10}, {6: 10})
    rows, flows = step(*first, (MUL, 1, {5: 10, 7: 10}, {8: 10}), (MM, 1, {8: 10}, {9: 10}))
    made = fuse(rows, KINDS, flows, {6, 9})
    # It reads 1, 2, 4 and 7, and writes 3 and 8.
    assert sizes(made.rows, made.kinds) == [("compiled::mul", 60), ("aten::mm", 30), ("aten::mm", 30)]
    rows, flows = step(*first, (MUL, 1, {5: 10, 6: 10}, {8: 10}), (MM, 1, {8: 10}, {9: 10}))
    assert len(fuse(rows, KINDS, flows, {6, 9}).rows) == 4


def test_what_a_call_makes_twice_of_the_same_is_made_once() -> None:
    twice = (MM, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 5}), (MM, 1, {3: 5}, {4: 10})
    rows, flows = step(*twice, (MUL, 1, {2: 10}, {5: 5}), (MM, 1, {5: 5, 4: 10}, {6: 10}))
    made = fuse(rows, KINDS, flows, {6})
    assert [name for name, _ in sizes(made.rows, made.kinds)] == [
        "aten::mm",
        "aten::mul",
        "aten::mm",
        "aten::mm",
    ]
    assert made.gone == {5} and made.kept == {3: 5}
    # With its arguments the other way round it is something else.
    both = (MM, 1, {1: 10}, {2: 10}), (MM, 1, {1: 10}, {3: 10})
    rows, flows = step(*both, (MUL, 1, {2: 10, 3: 10}, {4: 10}), (MM, 1, {4: 10}, {5: 10}))
    more, others = step(*both, (MUL, 1, {3: 10, 2: 10}, {6: 10}), (MM, 1, {6: 10, 5: 10}, {7: 10}))
    flows += [each._replace(row=each.row + 2) for each in others[2:]]
    assert len(fuse(rows + more[2:], KINDS, flows, {7}).rows) == 6
    # Of a part, in another call, of something else, changed, or where the program keeps it: made again.
    for other, alive in (
        ((MUL, 1, {2: 5}, {5: 5}), {6}),
        ((MUL, 2, {2: 10}, {5: 5}), {6}),
        ((ADD, 1, {2: 10}, {5: 5}), {6}),
        ((MUL, 1, {2: 10}, {5: 5, 2: 10}), {6}),
        ((MUL, 1, {2: 10}, {5: 5}), {5, 6}),
    ):
        rows, flows = step(*twice, other, (MM, 1, {5: 5, 4: 10}, {6: 10}))
        assert len(fuse(rows, KINDS, flows, alive).rows) == 5


def test_what_a_backward_pass_makes_twice_over_a_communication_is_made_once() -> None:
    # A checkpoint makes 2 and its largest value again, the gradient makes that a second time; both ask all ranks.
    first = (MM, 2, {1: 10}, {2: 10}), (MUL, 2, {2: 10}, {3: 1}), (MUL, 2, {4: 1, 2: 10}, {5: 10})
    again = (MUL, -1, {2: 10}, {6: 1}), (MUL, -1, {7: 1, 2: 10}, {8: 10}), (MM, -1, {5: 10, 8: 10}, {9: 10})
    rows, flows = step(*first, *again)
    of_all = Communication("all-reduce", 1, 1, 0, True)
    others = {2: (0, 2, {3: 1}, {4: 1}), 6: (1, -1, {6: 1}, {7: 1})}
    places = [0, 1, 4, 5, 8, 9]
    flows = [flow._replace(row=at) for flow, at in zip(flows, places, strict=True)]
    for at, (number, *rest) in others.items():
        rows[at:at] = Row(COMMUNICATION, number, 0, 0, 3), Row(JOIN, number, 0)
        flows.append(Flow(at, *rest))
    flows = [flow._replace(again=flow.region == 2) for flow in sorted(flows)]
    made = fuse(rows, KINDS, flows, {9}, [of_all, of_all])
    assert (
        [row.kind for row in made.rows].count(COMMUNICATION)
        == [row.kind for row in made.rows].count(JOIN)
        == 1
    )
    assert [name for name, _ in sizes(made.rows, made.kinds)].count("aten::mul") == 2
    # Of other bytes, it is another one.
    other = fuse(rows, KINDS, flows, {9}, [of_all, Communication("all-reduce", 2, 2, 0, True)])
    assert [row.kind for row in other.rows].count(JOIN) == 2


def test_what_makes_much_of_little_for_one_reader_is_made_there() -> None:
    # 3 is made of the scales 1 and 2, and multiplies the result of a GEMM in place.
    scales = (MUL, 1, {7: 10}, {1: 1}), (MUL, 1, {1: 1, 2: 1}, {3: 10})
    rows, flows = step(*scales, (MM, 1, {5: 10, 1: 1}, {6: 10}), (MUL, 1, {6: 10, 3: 10}, {6: 10}))
    made = fuse(rows, KINDS, flows, {6})
    assert sizes(made.rows, made.kinds) == [("aten::mul", 30), ("aten::mm", 30), ("compiled::mul", 22)]
    assert made.gone == {3}
    # Another reader, a change of what it is made of, or an event in between: it is made where it was.
    rows, flows = step(*scales, (MM, 1, {5: 10, 1: 1}, {6: 10, 2: 1}), (MUL, 1, {6: 10, 3: 10}, {6: 10}))
    assert ("compiled::mul", 23) not in sizes(*fuse(rows, KINDS, flows, {6})[:2])
    assert 3 not in fuse(rows, KINDS, flows, {6}).gone


def test_neighbours_without_a_tensor_in_common_are_kernels_of_their_own() -> None:
    rows, flows = step((MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {3: 10}, {4: 10}))
    assert fuse(rows, KINDS, flows, {2, 4}).rows == rows


def test_what_is_made_again_is_made_of_what_is_nearest() -> None:
    forward = (MUL, 1, {1: 10, 2: 10}, {3: 10}), (MUL, 1, {3: 10}, {4: 10}), (MUL, 1, {4: 10}, {5: 10})
    rows, flows = step(*forward, (MM, 1, {3: 10, 5: 10}, {6: 10}), (MUL, -1, {6: 10, 4: 10}, {7: 10}))
    made = fuse(rows, KINDS, flows, {7})
    # Of 3, which is written for the GEMM, and not of 1 and 2.
    assert made.gone == {4} and made.kept == {3: 4}
    assert sizes(made.rows, made.kinds) == [("compiled::mul", 40), ("aten::mm", 30), ("compiled::mul", 30)]


def test_sums_of_gradients_belong_to_the_call_that_makes_all_of_them() -> None:
    gradients = (MM, -1, {1: 10}, {2: 10}), (MM, -1, {1: 10}, {3: 10})
    rows, flows = step(*gradients, (ADD, 0, {2: 10, 3: 10}, {4: 10}), (MUL, -1, {4: 10}, {5: 10}))
    found = sizes(*fuse(rows, KINDS, flows, {5})[:2])
    assert found == [("aten::mm", 30), ("aten::mm", 30), ("compiled::add_mul", 30)]
    rows, flows = step(*gradients[:1], (ADD, 0, {2: 10, 9: 10}, {4: 10}), (MUL, -1, {4: 10}, {5: 10}))
    assert fuse(rows, KINDS, flows, {5}).rows == rows


def test_hooks_of_fsdp_are_not_compiled() -> None:
    rows, flows = step((MUL, 1, {1: 10}, {2: 10}), (COPY, 1, {2: 10}, {3: 10}), (MUL, 1, {3: 10}, {4: 10}))
    assert fuse(rows, KINDS, flows, {4}).rows == rows


def test_what_is_read_in_its_own_call_alone_ends_there() -> None:
    rows, flows = step((MM, 1, {1: 10}, {2: 10}), (MM, 1, {2: 10}, {3: 10}), (MM, -1, {3: 10}, {4: 10}))
    flows = [flow._replace(mark=at + 1) for at, flow in enumerate(flows)]
    assert fuse(rows, KINDS, flows, {4}).early == {2: 2}
    assert not fuse(rows, KINDS, flows, {2, 4}).early


STORAGES = st.dictionaries(st.integers(1, 6), st.sampled_from([1, 10, 10]), max_size=2)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([MUL, MUL, ADD, MM, COPY, COMMUNICATION_AT, RECORD_AT]),
            st.sampled_from([1, 1, 1, 2, 0, -1]), STORAGES, STORAGES, st.booleans(),
        ),
        max_size=12,
    ),
    st.sets(st.integers(1, 6)),
)  # fmt: skip
def test_whatever_a_step_consists_of_only_what_inductor_makes_is_fused(
    made: list[tuple[int, int, dict[int, int], dict[int, int], bool]], alive: set[int]
) -> None:
    rows, flows = [], []
    for at, (what, region, reads, writes, again) in enumerate(made):
        kind = {COMMUNICATION_AT: COMMUNICATION, RECORD_AT: RECORD}.get(what, OPERATOR)
        # Numbers of communications and events are others than those of kinds.
        rows.append(Row(kind, what if kind == OPERATOR else 99, 0, 0, 3))
        if kind != RECORD:
            flows.append(Flow(at, region, reads, writes, again and kind == OPERATOR))
    found = fuse(rows, KINDS, flows, alive)
    events = [row for row in rows if row.kind != OPERATOR]
    assert [row for row in found.rows if row.kind != OPERATOR] == events
    # What a checkpoint makes again for nobody is left out; the rest of what calls a library stays, in order.
    libraries = [
        row.what for row, (_, region, _, _, again) in zip(rows, made, strict=True)
        if row.kind == OPERATOR and (row.what in (MM, COPY) or not region) and not again
    ]  # fmt: skip
    left = [row.what for row in found.rows if row.kind == OPERATOR]
    kept = iter(left)
    assert all(each in kept for each in libraries if each in (MM, COPY))
    assert len(found.rows) <= len(rows) and not found.gone & alive
