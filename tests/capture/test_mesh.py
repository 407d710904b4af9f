"""Meshes found from the groups of a rank."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.capture.log import HOST, Communication, Log, Row
from armillary.capture.mesh import mesh_of
from armillary.capture.summary import classes, witnesses
from tests.capture.logs import call, kernel, log

SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=4)


def group_along(sizes: list[int], axes: list[int], rank: int) -> tuple[int, ...]:
    """Return the ranks that differ from a rank along these axes only."""
    strides = [prod(sizes[:at]) for at in range(len(sizes))]
    first = rank - sum(rank // strides[at] % sizes[at] * strides[at] for at in axes)
    steps = product(*(range(sizes[at]) for at in axes))
    return tuple(
        sorted(first + sum(n * strides[at] for n, at in zip(step, axes, strict=True)) for step in steps)
    )


@given(sizes=SIZES, data=st.data())
def test_groups_of_other_ranks_follow_from_those_of_one(sizes: list[int], data: st.DataObject) -> None:
    ranks = prod(sizes)
    every = st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True)
    chosen = data.draw(st.lists(every, min_size=1, max_size=4))
    rank, other = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, ranks - 1))
    groups = [group_along(sizes, axes, rank) for axes in chosen]
    mesh = mesh_of([log(rank, ranks, [], list(dict.fromkeys(groups)))])
    # Two ranks say less than an axis: which ones they are may fit several meshes.
    if mesh is None or any(len(group) == 2 for group in groups):
        return
    grid = mesh.grid()
    for axes, group in zip(chosen, groups, strict=True):
        name = mesh.group(group)
        assert name
        wanted = group_along(sizes, axes, other)
        if name == "0":
            assert wanted == tuple(range(ranks))
        else:
            rows = grid.members(name).tolist()
            assert sorted(next(row for row in rows if other in row)) == list(wanted)


def test_groups_of_a_usual_mesh_are_named_after_their_strides() -> None:
    # tensor parallel 8, data parallel 4, pipeline 2
    groups = [tuple(range(8)), (0, 8, 16, 24), (0, 32), tuple(range(32))]
    mesh = mesh_of([log(0, 64, [], groups)])
    assert mesh is not None and mesh.sizes == (8, 4, 2)
    assert [mesh.group(each) for each in groups] == ["stride1", "stride8", "stride32", "stride1+stride8"]
    assert mesh.way(0, 32) == ("stride32", 1) and mesh.way(40, 8) == ("stride32", 1)
    assert mesh.way(0, 33) is None


def test_first_and_last_stage_are_some_coordinates_of_an_axis() -> None:
    messages = [Communication("send", 8, 0, 0, True, 8)]
    mesh = mesh_of([log(0, 32, [], [(0, 8, 16, 24), (0, 24)], messages)])
    assert mesh is not None and mesh.sizes == (8, 4)
    assert mesh.group((0, 24)) == "stride8@0,3"
    assert sorted(mesh.grid().members("stride8@0,3").tolist())[1] == [1, 25]
    assert mesh.stages([log(0, 32, [], [(0, 8, 16, 24)], messages)]) == (1,)


@pytest.mark.parametrize("groups", [[(0, 1, 2), (0, 2, 4, 6)], [(0, 1, 2, 3, 4)]])
def test_overlapping_groups_have_no_mesh(groups: list[tuple[int, ...]]) -> None:
    assert mesh_of([log(0, 12, [], groups)]) is None or len(groups) > 1
    assert mesh_of([log(0, 12, [], [(0, 1, 2), (0, 1, 2, 3)])]) is None


def of_64(rank: int, *, reads: bool) -> Log:
    """Return a rank of 64 that all-reduces with all, and may read its loss."""
    read = [Row(HOST, 0, 0, 1, 0)] if reads else []
    sums = [Communication("all-reduce", 8, 8, 0, True)]
    return log(rank, 64, [kernel(), call(0), *read], [tuple(range(64))], sums)


def test_the_first_rank_alone_may_read_its_loss() -> None:
    run = [of_64(rank, reads=rank == 0) for rank in (0, 41, 63)]
    assert len(classes(run)[0].ranks) == 1 and len(classes(run)[1].ranks) == 2, (
        "two may be like each other by chance"
    )
    more = witnesses(run, 8)
    assert more == {1, 2, 8, 62}
    alone, others = classes([*run, *(of_64(rank, reads=False) for rank in more)])
    assert alone.ranks == (0,) and others.ranks == tuple(range(1, 64))
    # One of each host: nobody knows which others.
    found = classes([*run, *(of_64(rank, reads=rank == 8) for rank in more)])
    assert sum(len(each.ranks) for each in found) == 7
    assert not witnesses([of_64(rank, reads=True) for rank in (0, 41, 63)], 8)


def test_the_last_rank_may_read_its_loss_and_few_are_no_rule() -> None:
    found = classes([of_64(rank, reads=rank == 63) for rank in (0, 1, 2, 63)])
    assert [len(each.ranks) for each in found] == [63, 1]
    found = classes([of_64(rank, reads=rank == 30) for rank in (0, 1, 2, 30)])
    assert [len(each.ranks) for each in found] == [3, 1]
