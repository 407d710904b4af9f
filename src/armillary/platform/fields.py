"""Keys of study files that have a unit or a choice, and what pydantic finds wrong with them, in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, ValidationError, WithJsonSchema, model_validator
from pydantic.json_schema import models_json_schema
from pydantic_core import PydanticCustomError, core_schema

from armillary.base import units
from armillary.base.document import Document
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.extension import ExtensionPoint
from armillary.base.hints import KeyPath, key_text, show, whole_number
from armillary.platform.limits import COUNT, POSITIVE, RATE, SHARE, SIDE, TIME, Choice, Number

_NEGATIVE = re.compile(r"\s*-\s*([\d.].*)")


@dataclass(frozen=True)
class Quantity:
    """Makes a field read text with a unit; `whole`: the unit in which only whole numbers are accepted."""

    parse: Callable[[object], float]
    kind: str
    example: str
    limits: Number = POSITIVE
    whole: str = ""

    def read(self, text: object) -> float:
        """Return the value of `text`.

        Raises:
            ValueError: It is not such a quantity.
        """
        # Units know no sign: the rest is parsed alone, so that the error speaks of the limit and not of the
        # unit.
        if isinstance(text, str) and (match := _NEGATIVE.fullmatch(text)) and (value := self.parse(match[1])):
            raise ValueError(f"got {show(text)}, which is negative, expected {self.limits.least}")
        value = self.parse(text)
        if problem := self.limits.out_of_range(value, text):
            # The example helps who wrote too small a value; who wrote too large a one knows the unit already.
            raise ValueError(problem + (f", e.g. '{self.example}'" if value <= self.limits.low else ""))
        # 2.5 GB/s has no integer value in bytes per ns, the unit that ASTRA-sim's integer arithmetic needs.
        if self.whole and value != int(value):
            raise ValueError(f"got {text!r}, expected a whole number of {self.whole}")
        return int(value) if self.whole else value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        # A plain validator replaces pydantic's own: strict mode would otherwise refuse text for a float.
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "pattern": units.unit_pattern(self.kind), "examples": [self.example]}


@dataclass(frozen=True)
class Ruled:
    """Makes a field a number that a rule of `armillary.platform.limits` accepts."""

    rule: Number

    def read(self, value: object) -> int | float:
        """Return the value, a float unless only whole numbers will do.

        Raises:
            ValueError: The rule refuses it.
        """
        if problem := self.rule(value):
            raise ValueError(problem)
        # A bool never gets here: `Number` refuses it, although it is an int.
        return value if self.rule.whole else float(value)  # type: ignore[arg-type, return-value]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        rule = self.rule
        least = {"exclusiveMinimum" if rule.above else "minimum": rule.low}
        return {"type": "integer" if rule.whole else "number", **least, "maximum": rule.high}


@dataclass(frozen=True)
class Named:
    """Makes a field one of the names of a registry or of an extension point."""

    names: Collection[str]

    def read(self, value: object) -> str:
        """Return the name.

        Raises:
            ValueError: There is none of that name.
        """
        if problem := Choice(self.names)(value):
            raise ValueError(problem)
        return str(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        # Examples, not an enum: the schema must hold on machines that have other packages installed.
        key = "examples" if isinstance(self.names, ExtensionPoint) else "enum"
        return {"type": "string", key: list(self.names)}


Bandwidth = Annotated[float, Quantity(units.parse_bandwidth, "bandwidth", "400 GB/s", RATE)]
WholeBandwidth = Annotated[int, Quantity(units.parse_bandwidth, "bandwidth", "100 GB/s", whole="GB/s")]
Time = Annotated[float, Quantity(units.parse_time, "time", "500 ns", TIME)]
WholeTime = Annotated[int, Quantity(units.parse_time, "time", "10 ns", TIME, whole="ns")]
Percent = Annotated[float, Quantity(units.parse_percent, "percent", "5 %")]
Efficiency = Annotated[float, Quantity(units.parse_percent, "percent", "45 %", SHARE)]
Flops = Annotated[float, Quantity(units.parse_flops, "flops", "312 TFLOP/s")]
Size = Annotated[int, Quantity(units.parse_bytes, "bytes", "1 GiB", whole="bytes")]
Capacity = Annotated[int, Quantity(units.parse_capacity, "bytes", "80 GiB", whole="bytes")]
Count = Annotated[int, Ruled(COUNT)]
Side = Annotated[int, Ruled(SIDE)]
Options = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
"""Options of a model from another package, which validates them itself."""
TAGS = ("<text>", "<mapping>")
"""Names of the two ways to write some values; pydantic puts them into the place of an error."""
# Without a discriminator pydantic reports the errors of both alternatives for one wrong value.
BY_TYPE = Discriminator(lambda value: TAGS[isinstance(value, dict)])


class Part(BaseModel):
    """A mapping of the file: types are not converted, and keys that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        """Refuse an unknown key with its nearest match, before anything is said about the values."""
        # "before": pydantic would first complain about missing keys, and hide that one of them is only
        # misspelled.
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in data if isinstance(data, dict) else ():
            if key not in known:
                hint = nearest(str(key), known) or f"; known keys: {', '.join(known)}"
                raise PydanticCustomError("unknown_key", "unknown key{hint}", {"key": key, "hint": hint})
        return data


def choice_schema(name: str, models: Iterable[type[Part]], description: str) -> dict[str, Any]:
    """Return the JSON Schemas of layouts, by name, and of the choice of one of them as `name`."""
    models = tuple(models)
    _, schema = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/$defs/{model}"
    )
    parts: dict[str, Any] = schema["$defs"]
    choices = [{"$ref": f"#/$defs/{model.__name__}"} for model in models]
    return parts | {name: {"oneOf": choices, "description": description}}


def first_error(document: Document, error: ValidationError, at: KeyPath = ()) -> InputError:
    """Return the first of pydantic's errors in the words of this project; `at` is where the part stands."""
    # One error at a time: later ones are often consequences of the first.
    path, problem = first_problem(error)
    path = (*at, *path)
    if not problem:
        inside = f" in {key_text(path[:-1])}" if path[:-1] else ""
        return InputError(f"{document.where(path[:-1])}: missing key '{path[-1]}'{inside}")
    return document.error(path, problem)


def first_problem(error: ValidationError) -> tuple[KeyPath, str]:
    """Return where the first of pydantic's errors is, and what: empty for a key that is missing."""
    first: Any = error.errors(include_url=False)[0]
    # Tags of unions are no keys of the file.
    path: KeyPath = tuple(part for part in first["loc"] if part not in TAGS)
    context = first.get("ctx", {})
    kind = first["type"]
    if kind in ("missing", "missing_key"):
        # Our own errors of this type carry the key; pydantic's own have it as the last part of the path.
        return (path if kind == "missing" else (*path, context["key"])), ""
    if kind == "unknown_key":
        return (*path, context["key"]), first["msg"]
    # Raised by validators of this package, whose text is final.
    if kind == "value_error":
        return path, str(context["error"])
    got = show(first["input"])
    if kind == "literal_error":
        # pydantic writes "'a', 'b' or 'c'".
        choices = [word.strip("' ") for word in context["expected"].replace(" or ", ",").split(",")]
        return path, f"got {got}, expected {one_of(choices)}{nearest(str(first['input']), choices)}"
    expected = {
        "int_type": "a whole number",
        "string_type": "text",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "a mapping of keys to values",
        "model_type": "a mapping of keys to values",
        "greater_than_equal": f"{context.get('ge')} or more",
        "less_than_equal": f"{context.get('le')} or less",
        "greater_than": f"more than {context.get('gt')}",
        "float_type": "a number",
        "too_short": f"at least {context.get('min_length')} entries"
        if context.get("min_length", 1) > 1
        else "at least one entry",
        "too_long": f"at most {context.get('max_length')} entries",
        "string_too_short": "some text",
    }
    # 1e3 is a float in YAML, and 1_000 text: say how to write it.
    hint = whole_number(str(first["input"])) if kind == "int_type" else ""
    return path, f"got {got}, expected {expected.get(kind, first['msg'])}{hint}"
