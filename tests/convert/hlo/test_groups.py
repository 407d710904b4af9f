"""Replica groups in every form and every meaning of their ids."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.convert.hlo.groups import Devices
from armillary.convert.hlo.module import Instruction
from armillary.convert.hlo.shapes import Shape
from armillary.convert.hlo.source import Source


def groups(
    text: str, replicas: int = 1, partitions: int = 8, opcode: str = "all-reduce", **attributes: str
) -> list[tuple[int, ...]]:
    given = {"replica_groups": text, **attributes}
    collective = Instruction("c", opcode, Shape(32, (4,)), (), "", given, (), 0)
    return Devices(Source("HloModule m", "m.hlo"), replicas, partitions).groups(collective)


FLAT = {"channel_id": "1", "use_global_device_ids": "true"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("{ {6,4,2,0}, {1,3,5,7} }", [(6, 4, 2, 0), (1, 3, 5, 7)]),
        ("{}", [(0, 1, 2, 3, 4, 5, 6, 7)]),
        ("{{}}", [(0, 1, 2, 3, 4, 5, 6, 7)]),
        ("[2,4]<=[8]", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("[4,2]<=[2,4]T(1,0)", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("[2,4]<=[4,2]T(1,0)", [(0, 2, 4, 6), (1, 3, 5, 7)]),
        ("[4,2]<=[2,2,2]T(0,2,1)", [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("mesh['x'=2,'y'=4] {'y'}", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("mesh['x'=2,'y'=4] {'x'}", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("mesh['x'=2,'y'=4] {'y','x'}", [(0, 4, 1, 5, 2, 6, 3, 7)]),
        ("mesh['x'=2,'y'=4]", [(0, 1, 2, 3, 4, 5, 6, 7)]),
        ("mesh['x'=8] {'x':(1)2}", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("mesh['x'=8] {'x':(4)2}", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("mesh['x'=8] {'x':(1)2,'x':(4)2}", [(0, 1, 4, 5), (2, 3, 6, 7)]),
        ("@mesh<x=2,y=4>, device_ids=([4,2]T(1,0)) {x}", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("mesh['x'=2,'y'=4], device_ids=(7,6,5,4,3,2,1,0) {'x'}", [(7, 3), (6, 2), (5, 1), (4, 0)]),
    ],
)
def test_forms(text: str, want: list[tuple[int, ...]]) -> None:
    assert groups(text, **FLAT) == want


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4).flatmap(
    lambda dims: st.tuples(st.just(dims), st.sampled_from(list(permutations(range(len(dims))))))
), st.data())  # fmt: skip
def test_iota_counts_in_the_source_shape_and_reads_in_the_order(
    given_dims: tuple[list[int], tuple[int, ...]], data: st.DataObject
) -> None:
    dims, order = given_dims
    total = 1
    for size in dims:
        total *= size
    rows = data.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    flat = []
    shape = [dims[axis] for axis in order]
    for place in range(total):  # the slow way: digits of the place in the transposed shape
        index, rest = {}, place
        for axis, size in reversed(list(zip(order, shape, strict=True))):
            rest, index[axis] = divmod(rest, size)
        number = 0
        for axis, size in enumerate(dims):
            number = number * size + index[axis]
        flat.append(number)
    width = total // rows
    want = [tuple(flat[row * width : (row + 1) * width]) for row in range(rows)]
    text = f"[{rows},{width}]<=[{','.join(map(str, dims))}]T({','.join(map(str, order))})"
    assert groups(text, partitions=total, **FLAT) == want


# Rank = replica · partitions + partition: two replicas of three partitions are ranks 0 1 2 and 3 4 5.
@pytest.mark.parametrize(
    ("opcode", "attributes", "text", "want"),
    [
        ("all-reduce", {}, "{{0,1}}", [(0, 3), (1, 4), (2, 5)]),
        ("all-reduce", {}, "{}", [(0, 3), (1, 4), (2, 5)]),
        ("all-reduce", {}, "{{0},{1}}", [(0,), (1,), (2,), (3,), (4,), (5,)]),
        ("all-reduce", {"channel_id": "1"}, "{{0,1}}", [(0, 1, 2, 3, 4, 5)]),
        ("all-gather", {"channel_id": "1"}, "{{0},{1}}", [(0, 1, 2), (3, 4, 5)]),
        ("all-reduce-start", FLAT, "{{0,5},{1,2,3,4}}", [(0, 5), (1, 2, 3, 4)]),
        ("all-to-all", {}, "{{1,0}}", [(3, 0), (4, 1), (5, 2)]),
        ("all-to-all", {"channel_id": "1"}, "{{2,0,1}}", [(2, 0, 1), (5, 3, 4)]),
        ("all-to-all", {"channel_id": "1"}, "{}", [(0, 1, 2), (3, 4, 5)]),
        ("collective-broadcast", {"channel_id": "1"}, "{{2,0}}", [(2, 0), (5, 3)]),
    ],
)
def test_what_the_ids_of_a_group_mean(
    opcode: str, attributes: dict[str, str], text: str, want: list[tuple[int, ...]]
) -> None:
    assert sorted(groups(text, 2, 3, opcode, **attributes)) == sorted(want)


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ({}, [(0, 3), (1, 4), (2, 5)]),
        ({"channel_id": "1"}, [(0, 1), (3, 4)]),
        ({"channel_id": "1", "use_global_device_ids": "true"}, [(0, 1)]),
    ],
)
def test_pairs_of_a_permutation(attributes: dict[str, str], want: list[tuple[int, int]]) -> None:
    permute = Instruction("p", "collective-permute", Shape(32, (4,)), (), "", attributes, (), 0)
    assert Devices(Source("HloModule m", "m.hlo"), 2, 3).pairs(permute, "{{0,1}}") == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{0,1},{2,3}}", "has no 4, expected each of 0 to 7"),
        ("{{0,1},{1,2}}", "has a device twice"),
        ("{{0,8}}", "has 8, but the module runs on 8 devices; expected at most 7"),
        ("[4,2]<=[2,2]", "shapes do not fit"),
        ("[2,8]<=[16]", "shapes do not fit each other or the 8 devices"),
        ("[4,2]<=[2,4]T(1,1)", "shapes do not fit"),
        ("mesh['x'=2,'y'=4] {'z'}", "an axis that the mesh does not have"),
        ("mesh['x'=8] {'x':(3)2}", "cannot be split like this"),
        ("mesh['x'=8] {'x','x'}", "an axis stands twice"),
        ("mesh['x'=16] {'x'}", "a mesh of 16 devices, expected one of 8"),
        ("{{0,1},{2,3}", "expected {{0,1},…}"),
        ("somewhere", "expected {{0,1},…}"),
    ],
)  # fmt: skip
def test_groups_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        groups(text, **FLAT)
    assert str(error.value).startswith("m.hlo:1:1: 'c': ")
    assert message in str(error.value)
