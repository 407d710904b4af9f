"""The comparison of some runs, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.explore.compare.nodes import NodeChange, node_changes, path_shares
from armillary.explore.compare.sides import Side
from armillary.explore.compare.terms import Term, Terms, terms_of
from armillary.explore.sweep.measures import MEASURES

# Already rows of the table of times, in ticks instead of seconds.
_IN_TERMS = ("step_time", "compute", "communication", "waiting", "idle")


@dataclass(frozen=True)
class Comparison:
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
