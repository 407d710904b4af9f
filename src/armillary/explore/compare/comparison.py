"""The comparison of some runs, as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError
from armillary.base.kinds import check_kinds
from armillary.base.units import format_time
from armillary.explore.compare.nodes import NodeChange, node_changes, path_shares
from armillary.explore.compare.sides import Side, side_of
from armillary.explore.compare.terms import Term, Terms, terms_of
from armillary.explore.sweep.measures import MEASURES
from armillary.report.page.blocks import Block, bars, table
from armillary.report.page.blocks import headline as answer
from armillary.report.page.shown import Shown
from armillary.report.page.tracks import tracks_beside
from armillary.report.table import ResultTable
from armillary.report.time_breakdown import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Already rows of the table of times, in ticks instead of seconds.
_IN_TERMS = ("step_time", "compute", "communication", "waiting", "idle")


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """The differences between two or more runs.

    Attributes:
        sides: The runs; the others are compared with the first.
        keys: Keys of the study files that differ -> their values.
        terms: The parts of the step.
        measures: Other measures that all sides have and that differ -> their values, in base units.
        nodes: Nodes that got longer or shorter; only for two sides with timelines.
        path: Share of the critical path by kind of work, for each side; empty without timelines.
    """

    sides: tuple[Side, ...]
    keys: dict[str, tuple[Any, ...]]
    terms: Terms
    measures: dict[str, tuple[float, ...]]
    nodes: tuple[NodeChange, ...] = ()
    path: tuple[dict[str, float], ...] = ()

    def __repr__(self) -> str:
        """Return three lines: the answer, the sides, and the parts that changed most."""
        parts = sorted(self.terms.parts, key=lambda term: -abs(term.change))[:4]
        sides = ", ".join(
            f"{name} {side.name}" for name, side in zip(side_names(self), self.sides, strict=True)
        )
        changed = [
            f"{term.name} {percent(term.change, self.terms.total.ns[0])}" for term in parts if term.change
        ]
        return f"{headline(self)}\n{sides}\n{', '.join(changed) or 'no part of the step changed'}"

    @property
    def breakdown(self) -> ResultTable:
        """A row for each part of the step, which add up to it: its time on each side in s, and the change."""
        names = side_names(self)
        return ResultTable(
            ("part", *names, "change"),
            [
                {
                    "part": term.name,
                    **{name: ns * 1e-9 for name, ns in zip(names, term.ns, strict=True)},
                    "change": term.change * 1e-9,
                }
                for term in self.terms.parts
            ],
        )

    @property
    def step_time(self) -> tuple[float, ...]:
        """Of each side, in s."""
        return tuple(ns * 1e-9 for ns in self.terms.total.ns)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | None:
        """Draw a waterfall into a .png, .svg or .pdf file, or return matplotlib's figure.

        Raises:
            InputError: there are more than two sides, matplotlib is not installed, the suffix is another, or the file
                cannot be written.
        """
        from armillary.explore.compare.waterfall import waterfall

        return waterfall(headline(self), [side.name for side in self.sides], self.terms, path)

    @property
    def title(self) -> str:
        """The names of the sides."""
        return " and ".join(side.name for side in self.sides)

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page; `changes` is for results that can be simulated again."""
        names = side_names(self)
        called = [f"{name} {side.name}" for name, side in zip(names, self.sides, strict=True)]
        notes = [
            f"{name}: {note}" for name, side in zip(names, self.sides, strict=True) for note in side.notes()
        ]
        titles = {self._kind(term): term.name for term in self.terms.parts}
        rows = [
            (name, {self._kind(term): term.ns[at] * 1e-9 for term in self.terms.parts})
            for at, name in enumerate(called)
        ]
        first, _, rest = headline(self).partition(": ")
        found = [
            answer(first, [rest, *called], notes=notes),
            bars("Time of the slowest rank", rows, titles),
            self._times("Part by part", (*self.terms.parts, self.terms.total)),
        ]
        if self.keys:
            keys = [[key, *map(short, values)] for key, values in self.keys.items()]
            found.append(
                table("What differs in the studies", [("key", "text"), *((n, "text") for n in names)], keys)
            )
        for title, terms in (
            ("Exposed communication by group", self.terms.by_group),
            ("Exposed communication by dimension", self.terms.by_dimension),
        ):
            if terms:
                found.append(self._times(title, terms))
        if self.nodes:
            columns = [
                ("on the slowest rank", "text"),
                ("kind", "text"),
                ("calls in A", "count"),
                ("in B", "count"),
            ]
            columns += [("A", "time"), ("B", "time"), ("change of A's step", "text")]
            whole = self.terms.total.ns[0]
            changed = [
                [one.name, one.kind, *one.calls, *(ns * 1e-9 for ns in one.ns), percent(one.change, whole)]
                for one in self.nodes
            ]
            found.append(table("Kernels and collectives that changed most, hidden or not", columns, changed))
        timelines = {
            name: side.timeline
            for name, side in zip(names, self.sides, strict=True)
            if side.timeline is not None
        }
        if timelines:
            found.append(tracks_beside(timelines))
        return found

    def _times(self, title: str, terms: Sequence[Term]) -> Block:
        names = side_names(self)
        columns = [("part", "text"), *((name, "time") for name in names), ("change of A's step", "text")]
        whole = self.terms.total.ns[0]
        rows = [[each.name, *(ns * 1e-9 for ns in each.ns), percent(each.change, whole)] for each in terms]
        return table(title, columns, rows)

    def _kind(self, term: Term) -> str:
        """Return the part of a breakdown that a term is, which has a colour."""
        return next((part for part, title in TITLES.items() if title == term.name), term.name)


def compare(*runs: Any, top: int = 10) -> Comparison:
    """Compare two or more runs with the first.

    Args:
        runs: Each a study file, which is simulated, a timeline or the file of one, a point of a store
            (``STORE.sqlite#NUMBER``), or what `armillary.run` or `armillary.train` returned.
        top: Kernels and collectives that are listed.

    Raises:
        InputError: there are fewer than two runs, or one cannot be read.
        StuckError: a study cannot finish.
    """
    if len(runs) < 2:
        raise InputError(f"compare: {len(runs)} given, expected two runs or more")
    check_kinds({"top": top}, compare.__annotations__)
    return compared([side_of(each, chr(65 + at)) for at, each in enumerate(runs)], top)


def compared(sides: Sequence[Side], top: int = 10) -> Comparison:
    """Compare two or more runs; `top` limits kernels and collectives."""
    timelines = [side.timeline for side in sides if side.timeline is not None]
    # Points of a store have measures only: nodes and paths need every timeline.
    complete = len(timelines) == len(sides)
    documents = [side.document for side in sides]
    shared = [
        name for name in MEASURES if name not in _IN_TERMS and all(name in side.measures for side in sides)
    ]
    values = {name: tuple(float(side.measures[name]) for side in sides) for name in shared}
    return Comparison(
        tuple(sides),
        {} if None in documents else differences(documents),
        terms_of(sides),
        {name: each for name, each in values.items() if len(set(each)) > 1},
        tuple(node_changes(timelines[0], timelines[1], top)) if complete and len(sides) == 2 else (),
        tuple(path_shares(timelines)) if complete else (),
    )


def as_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values; the last part of a key is the unit."""

    def term(each: Term) -> dict[str, Any]:
        return {"name": each.name, "ns": list(each.ns), "change_ns": each.change}

    return {
        "sides": [side.name for side in found.sides],
        "notes": [side.notes() for side in found.sides],
        "keys": {
            key: [None if value is ABSENT else value for value in values]
            for key, values in found.keys.items()
        },
        "step_time": term(found.terms.total),
        "parts": [term(each) for each in found.terms.parts],
        "exposed_communication_by_group": [term(each) for each in found.terms.by_group],
        "exposed_communication_by_dimension": [term(each) for each in found.terms.by_dimension],
        "measures": {
            name: {"unit": MEASURES[name].unit, "values": list(values)}
            for name, values in found.measures.items()
        },
        "nodes": [
            {
                "kind": one.kind,
                "name": one.name,
                "calls": list(one.calls),
                "ns": list(one.ns),
                "change_ns": one.change,
            }
            for one in found.nodes
        ],
        "critical_path_ratio": list(found.path),
    }


class _Absent:
    """Value of a key that a document lacks."""

    def __repr__(self) -> str:
        return "(none)"


ABSENT = _Absent()


def differences(documents: Sequence[Mapping[str, Any] | None]) -> dict[str, tuple[Any, ...]]:
    """Return key -> its value in each document for all keys that differ; `ABSENT` where a document lacks it.

    Members of lists are matched by ``name`` if all have one, else by position.
    """
    flat: list[dict[str, Any]] = [dict(_leaves(document or {}, "")) for document in documents]
    found = {
        key: tuple(each.get(key, ABSENT) for each in flat)
        for key in dict.fromkeys(key for each in flat for key in each)
    }
    return {key: values for key, values in found.items() if any(_unlike(values[0], one) for one in values)}


def _unlike(one: Any, other: Any) -> bool:
    # 1 and True, or 8 and 8.0, are different in a study.
    return type(one) is not type(other) or one != other


def _leaves(value: Any, place: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        members = {str(key): each for key, each in value.items()}
    elif isinstance(value, list) and value and any(isinstance(each, Mapping | list) for each in value):
        names = [each.get("name") if isinstance(each, Mapping) else None for each in value]
        named = None not in names and len(set(map(str, names))) == len(names)
        # By name, an inserted dimension is one difference; by number all after it would differ.
        members = {str(names[i] if named else i): each for i, each in enumerate(value)}
    else:
        return [(place, value)]
    return [
        leaf for key, each in members.items() for leaf in _leaves(each, f"{place}.{key}" if place else key)
    ]


def headline(found: Comparison) -> str:
    """Return "B takes 195.2 ms less than A: 1.2 s instead of 1.395 s (-14.0 %)"."""
    total = found.terms.total
    if len(found.sides) > 2:
        return f"{len(found.sides)} runs, compared with the first"
    before, after = total.ns
    if before == after:
        return f"Both take {format_time(before)}"
    way = "less" if after < before else "more"
    text = f"B takes {format_time(abs(total.change))} {way} than A"
    return f"{text}: {format_time(after)} instead of {format_time(before)} ({percent(total.change, before)})"


def side_names(found: Comparison) -> list[str]:
    """Return A, B, …."""
    return [chr(65 + i) if i < 26 else f"{i + 1}" for i in range(len(found.sides))]


def percent(part: float, whole: float) -> str:
    """Return a part of a whole as "+3.2 %"."""
    return f"{100 * part / whole:+.1f} %" if whole else "-"


def short(value: object, length: int = 28) -> str:
    """Return a value of a study as YAML writes it, cut if it is long."""
    text = value if isinstance(value, str) else repr(value)
    # As YAML writes them, since they come from study files.
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= length else f"{text[: length - 1]}…"
