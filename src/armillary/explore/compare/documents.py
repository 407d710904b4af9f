"""Which keys of study files differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class _Absent:
    """What a key that is not there has."""

    def __repr__(self) -> str:
        return "(none)"


ABSENT = _Absent()


def differences(documents: Sequence[Mapping[str, Any] | None]) -> dict[str, tuple[Any, ...]]:
    """Return key -> its value in each document, of the keys that are not the same in all; `ABSENT` where it is not.

    Members of lists go by their ``name`` where all have one, else by their number.
    """
    flat: list[dict[str, Any]] = [dict(_leaves(document or {}, "")) for document in documents]
    found = {
        key: tuple(each.get(key, ABSENT) for each in flat)
        for key in dict.fromkeys(key for each in flat for key in each)
    }
    return {key: values for key, values in found.items() if any(_unlike(values[0], one) for one in values)}


def _unlike(one: Any, other: Any) -> bool:
    return type(one) is not type(other) or one != other


def _leaves(value: Any, place: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        members = {str(key): each for key, each in value.items()}
    elif isinstance(value, list) and value and any(isinstance(each, Mapping | list) for each in value):
        names = [each.get("name") if isinstance(each, Mapping) else None for each in value]
        named = None not in names and len(set(map(str, names))) == len(names)
        members = {str(names[i] if named else i): each for i, each in enumerate(value)}
    else:
        return [(place, value)]
    return [
        leaf for key, each in members.items() for leaf in _leaves(each, f"{place}.{key}" if place else key)
    ]
