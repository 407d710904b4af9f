"""New names for everything that has one; whatever does not decide how a trace runs is left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.units import whole
from armillary.lab.obfuscation.keyed import generator, word
from armillary.lab.obfuscation.rows import MISSING, Coded, Rows, kept, read, write
from armillary.platform.kernels import PRECISIONS
from armillary.trace.communication import TAGS
from armillary.trace.graph import Graph
from armillary.trace.grid import FURTHER, RankGrid
from armillary.trace.trace import WORLD, Trace, read_groups

Members = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Draft:
    """A trace that is being rewritten.

    Attributes:
        rows: Nodes of each distinct graph.
        alike: A number per graph; graphs that differ only in peers and groups have the same one.
        rank_graph: Which graph each rank runs.
        grid: As in `Trace`.
        groups: Ranks of each group by number; empty with a grid.
    """

    rows: tuple[Rows, ...]
    alike: tuple[int, ...]
    rank_graph: NDArray[np.int32]
    grid: RankGrid | None
    groups: Members

    def trace(self) -> Trace:
        """Return the trace."""
        graphs = tuple(
            write(rows, f"graph {number}", self.definition(rows)) for number, rows in enumerate(self.rows)
        )
        return Trace(graphs, self.rank_graph, self.grid)

    def definition(self, rows: Rows) -> str:
        """Return the definition of the groups that rows use, in PyTorch's format; "" where there are none."""
        # Only groups that this graph uses: others would tell how the rest of the run is divided.
        numbers = {whole(name) for name in rows.words["pg_name"].values}
        used = {number for number in self.groups if number in numbers}
        table = [
            {"pg_name": str(group), "ranks": list(self.groups[group]), "group_size": len(self.groups[group])}
            for group in sorted(used - {WORLD})
        ]
        return f"['{json.dumps(table)}']" if table and self.grid is None else ""


@dataclass(frozen=True)
class Legend:
    """The mapping from new names and numbers to old ones, which undoes the renaming.

    `names` and `ids` are valid only while nodes are neither joined nor split. `ids` has one list per graph of the
    original; an empty one means that ids count from 0.
    """

    names: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    tags: dict[int, int] = field(default_factory=dict)
    streams: dict[int, int] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    ids: list[list[int]] = field(default_factory=list)
    rank_graph: list[int] = field(default_factory=list)


def relabel(trace: Trace, key: str, given: Members | None = None) -> tuple[Draft, Legend]:
    """Return a trace that runs tick for tick like this one, without its names, shapes, ids and labels.

    Args:
        trace: The trace.
        key: What new names and numbers follow from.
        given: Groups that the trace does not define.

    Raises:
        InputError: a graph cannot be read, or defines groups that cannot be used.
    """
    of_rank, _ = trace.structures()
    # `structures` numbers ranks; graphs need the number of any rank that runs them.
    alike = np.zeros(len(trace.graphs), np.int64)
    alike[trace.rank_graph] = of_rank
    rows = [read(graph) for graph in trace.graphs]
    ids = [_kept_ids(graph) for graph in trace.graphs]
    names = sorted({name for each in rows for name in each.words["name"].values if name})
    tokens = {name: word(key, name) for name in names} | {"": ""}
    tags = _numbering(
        key,
        "tag",
        # Tags match modulo TAGS, so they are reduced before they are renumbered: otherwise two equal ones
        # would part.
        (np.where(r.numbers["comm_tag"] == MISSING, MISSING, r.number("comm_tag") % TAGS) for r in rows),
    )
    streams = {
        name: _numbering(key, name, (each.numbers[name] for each in rows)) for name in ("stream", "tid")
    }
    groups, axes, grid, members = _regrouped(trace, rows, key, given)
    # A precision decides the peak rate; any other text in that attribute is unknown to the simulator and is
    # dropped.
    known = {name: name for name in PRECISIONS}
    made = []
    for each in rows:
        numbers = dict(each.numbers)
        numbers["comm_tag"] = mapped(
            np.where(numbers["comm_tag"] == MISSING, MISSING, each.number("comm_tag") % TAGS), tags
        )
        for name, table in streams.items():
            numbers[name] = mapped(numbers[name], table)
        # False and absent mean the same, but writers differ in which they use: that would tell who recorded
        # the trace.
        for name in ("is_cpu_op", "in_switch"):
            numbers[name] = np.where(numbers[name] == 0, MISSING, numbers[name])
        words = {
            "name": renamed(each.words["name"], tokens),
            "pg_name": renamed(each.words["pg_name"], groups),
            "comm_axis": renamed(each.words["comm_axis"], axes),
            "precision": renamed(each.words["precision"], known),
        }
        made.append(replace(each, numbers=numbers, words=words))
    legend = Legend(
        {new: old for old, new in tokens.items() if old}, {new: old for old, new in groups.items()},
        {new: old for old, new in axes.items()}, {new: old for old, new in tags.items()},
        {new: old for old, new in streams["stream"].items()}, {new: old for old, new in streams["tid"].items()},
        ids, trace.rank_graph.tolist() if any(ids) else [],
    )  # fmt: skip
    return Draft(tuple(made), tuple(alike.tolist()), trace.rank_graph, grid, members), legend


def _kept_ids(graph: Graph) -> list[int]:
    ids = graph.ids[kept(graph)]
    return [] if np.array_equal(ids, np.arange(len(ids))) else ids.tolist()


def _numbering(key: str, what: str, columns: Iterable[NDArray[np.int64]]) -> dict[int, int]:
    """Return a random renumbering of the positive values, from 1; 0 and negative numbers stay."""
    # 0 and negative numbers have meanings of their own, such as the default stream.
    found = sorted({int(value) for column in columns for value in np.unique(column) if value > 0})
    places = generator(key, what).permutation(len(found)) + 1
    return dict(zip(found, places.tolist(), strict=True))


def mapped(column: NDArray[np.int64], table: Mapping[int, int]) -> NDArray[np.int64]:
    """Return a column with its numbers replaced; those that are not in the table stay."""
    if not table:
        return column
    old, new = np.array(sorted(table.items()), np.int64).T
    at = np.minimum(np.searchsorted(old, column), len(old) - 1)
    return np.where(old[at] == column, new[at], column)


def renamed(column: Coded, table: Mapping[str, str]) -> Coded:
    """Return a column with its texts replaced; those that are not in the table become absent."""
    # Two old texts may share a new one, such as "" and an unknown group: codes are assigned by the new text.
    values = tuple(dict.fromkeys(table[text] for text in column.values if text in table))
    place = {text: code for code, text in enumerate(values)}
    codes = np.array(
        [place.get(table.get(text, ""), -1) if text in table else -1 for text in column.values] + [-1]
    )
    return Coded(codes[column.codes], values)


def _regrouped(
    trace: Trace, rows: list[Rows], key: str, given: Members | None
) -> tuple[dict[str, str], dict[str, str], RankGrid | None, Members]:
    """Return new names of groups and of axes, and the grid or the group members under these names."""
    used = sorted({name for each in rows for name in each.words["pg_name"].values})
    if trace.grid is None:
        found, findings = read_groups(trace, given)
        if findings:
            raise InputError(findings[0].message)
        # The world group keeps its number: simulators know it without a definition.
        numbers = {name if (number := whole(name)) is None else number for name in used} - {WORLD, ""}
        defined = sorted(number for number in numbers if isinstance(number, int) and number in found)
        rest = sorted(numbers - set(defined), key=str)
        places = generator(key, "groups").permutation(len(defined)) + 1
        new: dict[Any, int] = dict(zip(defined, places.tolist(), strict=True))
        # Groups without a definition still need a number that no defined one has.
        new |= {name: len(defined) + 1 + i for i, name in enumerate(rest)}
        table = {
            name: name
            if name == ""
            else str(new.get(name if (number := whole(name)) is None else number, WORLD))
            for name in used
        }
        return table, {}, None, {new[number]: tuple(found[number].tolist()) for number in defined}
    grid = trace.grid
    # Axes that no node names are dropped: they would show parallelism that does not matter for the run.
    wanted = {axis for each in rows for axis in each.words["comm_axis"].values}
    wanted |= {axis for name in used if name for axis in grid.axes_in(name) if axis in grid.axes}
    order = sorted(wanted)
    axes = {
        axis: f"a{place}"
        for axis, place in zip(order, generator(key, "axes").permutation(len(order)), strict=True)
    }
    ranks = {name: name.partition(FURTHER)[0] for name in used}
    kept = dict.fromkeys(own for own in ranks.values() if own in grid.subsets)
    subsets = {name: f"s{place}" for place, name in enumerate(kept)}
    table = {
        name: (subsets[own] if own in subsets else "+".join(axes.get(axis, axis) for axis in own.split("+")))
        + name[len(own) :]
        for name, own in ranks.items()
    }
    new_grid = RankGrid(
        grid.sizes,
        {axes[axis]: grid.mesh_dims_of(axis) for axis in order},
        {subsets[name]: (axes[grid.subsets[name][0]], grid.subsets[name][1]) for name in subsets},
    )
    return table, axes, new_grid, {}
