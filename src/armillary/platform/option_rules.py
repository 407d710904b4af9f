"""What the options of compute models and of packet protocols may be: both are mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from armillary.base.errors import nearest, one_of
from armillary.platform.document import KeyPath
from armillary.platform.limits import COUNT, FLAG, MOST_BYTES, POSITIVE, TEXT, Choice, Kind, Number, Rule

SYSTOLIC_BUFFERS = ("ifmap", "filter", "ofmap")
"""SCALE-sim's names of the buffers of the left operand, the right one and the result."""
_ON_CHIP = Number(1, MOST_BYTES, whole=True)


class _Buffers:
    """Of a systolic array: bytes of all three, or None."""

    def __call__(self, value: object) -> str:
        if value is None:
            return ""
        if not isinstance(value, Mapping) or set(value) != set(SYSTOLIC_BUFFERS):
            return f"got {value!r:.60}, expected a mapping of {', '.join(SYSTOLIC_BUFFERS)} to bytes"
        wrong = ((name, _ON_CHIP(size)) for name, size in value.items())
        return next((f"{name}: {problem}" for name, problem in wrong if problem), "")


_FLOWS = Choice(("output", "weight", "input"))
_WORDS = Kind((list, tuple), "a list of words, at least one")
_OF_MODELS: dict[str, tuple[dict[str, Rule], dict[str, Rule]]] = {
    "roofline": ({}, {}),
    "gpu": ({"device": TEXT}, {"factors": Kind(Mapping, "a mapping")}),
    "tiled": ({"buffer": Number(above=True, whole=True)}, {}),
    "table": (
        {"file": TEXT},
        {"columns": Kind(Mapping, "a mapping"), "unit_ns": POSITIVE, "precision": Choice(("fp32", "bf16", "fp8"))},
    ),
    "systolic": (
        {"rows": COUNT, "columns": COUNT, "dataflow": _FLOWS, "clock": POSITIVE},
        {"arrays": COUNT, "stall": FLAG, "buffers": _Buffers()},
    ),
    "subprocess": ({"command": _WORDS}, {"timeout_ns": POSITIVE}),
}  # fmt: skip
"""Options that a built-in model needs, and those that it may have."""


def wrong_model_option(model: str, options: Mapping[str, Any]) -> tuple[KeyPath, str]:
    """Return which option of a compute model is wrong and what; () and "" for none, or for another package's model."""
    if model not in _OF_MODELS:
        return (), ""
    needed, more = _OF_MODELS[model]
    for name in needed:
        if name not in options:
            return (), f"missing key '{name}'"
    if model == "subprocess":
        words = options["command"]
        if (
            not isinstance(words, list | tuple)
            or not words
            or not all(isinstance(each, str) for each in words)
        ):
            return ("command",), f"got {words!r:.60}, expected {_WORDS.name}"
    return _wrong(needed | more, options)


def wrong_packet_option(protocol: str, options: Mapping[str, Any]) -> tuple[KeyPath, str]:
    """Return which option of a packet protocol is wrong and what; () and "" for none. Times of TCP are in ms."""
    from armillary.platform.files.packets_schema import PROTOCOLS

    fields = PROTOCOLS[protocol].model_fields
    rules = {
        name: _rule(each.annotation, each.metadata) for name, each in fields.items() if name != "protocol"
    }
    return _wrong(rules, options)


def _wrong(rules: Mapping[str, Rule], options: Mapping[str, Any]) -> tuple[KeyPath, str]:
    for name, value in options.items():
        if name not in rules:
            hint = nearest(str(name), rules) or (f"; expected {one_of(rules)}" if rules else "")
            return (name,), f"unknown key{hint}"
        if problem := rules[name](value):
            return (name,), problem
    return (), ""


def _rule(annotation: Any, metadata: Any = ()) -> Rule:
    """Return the rule of a field of a layout, for values without units."""
    from armillary.platform.files.schema_fields import (  # loads pydantic, which most runs do without
        Quantity,
        Ruled,
    )

    for each in metadata:
        if isinstance(each, Quantity):
            limits = each.limits
            return Number(limits.low, limits.high, limits.above, bool(each.whole))
        if isinstance(each, Ruled):
            return each.rule
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _rule(parts[0], parts[1:])
    if get_origin(annotation) is Literal:
        return Choice(parts)
    if get_origin(annotation) is Union or type(None) in parts:  # what is left to the model is not given
        (part,) = (each for each in parts if each is not type(None))
        return _rule(part)
    return FLAG if annotation is bool else TEXT
