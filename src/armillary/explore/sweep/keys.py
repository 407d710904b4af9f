"""Keys of study files as sweep files write them, dotted: whether they exist, and values put in their place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from armillary.base.errors import InputError, nearest
from armillary.base.hints import KeyPath
from armillary.base.units import unit_pattern, whole
from armillary.platform.files.preset import is_preset, read_preset

_KINDS = ("bytes", "bandwidth", "time", "flops", "frequency", "percent")


@dataclass(frozen=True)
class Key:
    """A key of study files.

    Attributes:
        text: As written.
        path: Where it stands; members of lists by their position.
        kind: Quantity that it holds, see `quantity.KINDS`; empty for none.
        whole: Whether it holds integers.
        default: Value where a study has none.
    """

    text: str
    path: KeyPath
    kind: str = ""
    whole: bool = False
    default: Any = field(default=None, compare=False)

    @property
    def last(self) -> str:
        """The last part of its name, as expressions can name it."""
        return re.sub(r"\W", "_", self.text.rpartition(".")[2])


def find_key(text: str, base: Mapping[str, Any]) -> Key:
    """Return the key that a dotted text names.

    Args:
        text: E.g. ``platform.network.fabric.bandwidth``; a member of a list by its number from 0, or its `name`.
        base: The study, whose lists and presets parts of the text may name.

    Raises:
        InputError: study files have no such key, or the study no such member; names the nearest.
    """
    # Two walks in parallel: `places` through the schema, where a key may have alternatives, and
    # `held` through the study, which knows the members of lists.
    places: list[dict[str, Any]] = [_schema()]
    held: Any = base
    path: list[str | int] = []
    for part in text.split("."):
        before = ".".join(map(str, path)) or "a study"
        if isinstance(held, list):
            place = _member(part, held, before)
            places = [each for one in _resolved(places) if (each := one.get("items"))]
            held = held[place]
            path.append(place)
            continue
        if path == ["platform", "network"]:
            _check_dimension(part, base)
        found = [each for one in _resolved(places) for each in _below(one, part)]
        if not found:
            known = sorted({key for one in _resolved(places) for key in one.get("properties", {})})
            hint = nearest(part, known) or (f"; known keys: {', '.join(known)}" if known else "")
            raise InputError(f"{before} has no key '{part}'{hint}")
        places = found
        held = held.get(part) if isinstance(held, Mapping) else None
        # A mapping may have numbers as keys, which YAML reads as int.
        path.append(part if (number := whole(part)) is None else number)
        # A preset has a network that the study does not show; keys over it merge by name.
        if path == ["platform", "network"] and held is None and _preset(base):
            held = {}
    ends = list(_resolved(places))
    default = (
        held
        if held is not None
        else next((e["default"] for e in places if e.get("default") is not None), None)
    )
    # A quantity is known by the pattern that its JSON schema has.
    kind = next((kind for e in ends for kind in _KINDS if e.get("pattern") == unit_pattern(kind)), "")
    types = {each.get("type") for each in ends} - {"null"}
    return Key(text, tuple(path), kind, types == {"integer"}, default)


def put(document: Any, path: KeyPath, value: Any) -> Any:
    """Return a copy of the document with `value` at `path`; everything off the path is shared with the original."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(document, list) and isinstance(first, int):
        return [*document[:first], put(document[first], rest, value), *document[first + 1 :]]
    held = document if isinstance(document, Mapping) else {}
    return {**held, first: put(held.get(first), rest, value)}


def at(document: Any, path: KeyPath) -> Any:
    """Return the value at `path`, None if there is none."""
    for part in path:
        if isinstance(document, list) and isinstance(part, int) and part < len(document):
            document = document[part]
        elif isinstance(document, Mapping):
            document = document.get(part)
        else:
            return None
    return document


@cache
def _schema() -> dict[str, Any]:
    from armillary.workload.plan.request import study_schema

    return study_schema()


def _resolved(places: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the alternatives of some places of the schema."""
    for place in places:
        if "$ref" in place:
            yield from _resolved([_schema()["$defs"][place["$ref"].rpartition("/")[2]]])
        for several in ("anyOf", "oneOf"):
            # A mapping's `anyOf` may only say which keys go together.
            if several in place and not any("required" in each for each in place[several]):
                yield from _resolved(place[several])
        if "$ref" not in place:
            yield place


def _below(place: dict[str, Any], part: str) -> Iterator[dict[str, Any]]:
    properties = place.get("properties", {})
    more = place.get("additionalProperties")
    if part in properties:
        yield properties[part]
    elif isinstance(more, dict) and re.search(place.get("propertyNames", {}).get("pattern", ""), part):
        # The only mappings with free names that hold mappings are dimensions over a preset.
        yield {"$ref": "#/$defs/NetworkDimension"} if more == {"type": "object"} else more


def _member(part: str, held: list[Any], before: str) -> int:
    names = [each.get("name") for each in held if isinstance(each, Mapping)]
    if part in names:
        return names.index(part)
    if (number := whole(part)) is not None and number < len(held):
        return number
    known = [str(name) for name in names if name is not None]
    members = f"it has {', '.join(known)}" if known else f"expected 0 to {len(held) - 1}"
    raise InputError(f"{before} has no member '{part}'{nearest(part, known) or '; ' + members}")


def _preset(base: Mapping[str, Any]) -> str | None:
    platform = base.get("platform")
    name = platform.get("preset") if isinstance(platform, Mapping) else None
    return name if isinstance(name, str) and is_preset(name) else None


def _check_dimension(part: str, base: Mapping[str, Any]) -> None:
    """Check that the preset of a study has a dimension of that name, where it has one."""
    name = _preset(base)
    if name is None:
        return
    names = [each["name"] for each in read_preset(name).document.data["platform"].get("network", [])]
    if part not in names:
        hint = nearest(part, names) or f"; it has {', '.join(names)}"
        raise InputError(f"platform.network: preset {name} has no dimension '{part}'{hint}")
