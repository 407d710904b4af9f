"""The layout of a sweep file, as pydantic models; also the source of its JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator

from armillary.explore.cost.schema import Costs
from armillary.explore.sweep.quantity import base_units
from armillary.platform.fields import Count, Part, Quantity, Size, Time

Method = Literal["planner", "tpe", "nsga2", "random"]


class Search(Part):
    """How `armillary plan` looks for the best."""

    method: Method = Field(
        default="planner",
        description="planner: exact, by bounds; tpe and nsga2: Optuna's samplers; random: points by lot.",
    )
    trials: Count = Field(default=100, description="Points that tpe, nsga2 and random look at.")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(
        default=0, description="Of tpe, nsga2 and random: the same seed gives the same points."
    )
    population: Annotated[int, Field(ge=2, le=100_000)] = Field(
        default=50, description="Points of a generation (nsga2)."
    )
    storage: str | None = Field(
        default=None,
        min_length=1,
        description="File that keeps the trials of tpe and nsga2, to go on later: .db is SQLite, else a journal.",
    )


_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_END: dict[str, Any] = {"type": ["string", "number"]}


def _tokens(value: object) -> float:
    found = base_units(value) if isinstance(value, str) else None
    if found and found[1] == "count":
        return found[0]
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"got {value!r}, expected a number of tokens, e.g. '15.6 T'") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise ValueError(f"got {value!r}, expected a number of tokens, e.g. '15.6 T'")
    return float(value)


class _Tokens(Quantity):
    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": ["number", "string"], "examples": ["15.6 T"]}


Tokens = Annotated[float, _Tokens(_tokens, "count", "15.6 T")]


class Varied(Part):
    """What a key is varied over: values, or a range; or named choices of several keys."""

    values: Annotated[
        list[Any] | None, WithJsonSchema({"type": "array", "items": _SCALAR, "minItems": 1})
    ] = Field(default=None, description="The values.")
    first: Annotated[Any, WithJsonSchema(_END)] = Field(
        default=None, alias="from", description="First value of a range, with a unit where the key has one."
    )
    to: Annotated[Any, WithJsonSchema(_END)] = Field(default=None, description="Its last value, at most.")
    step: Annotated[Any, WithJsonSchema(_END)] = Field(default=None, description="Between values: 1, 2, 3.")
    times: float | int | None = Field(default=None, gt=1, description="From value to value: 1, 2, 4.")
    count: Annotated[int, Field(ge=2, le=1_000_000)] | None = Field(
        default=None, description="Instead: so many values from first to last."
    )
    spacing: Literal["linear", "log"] | None = Field(
        default=None, description="With count: equal differences (by default), or equal ratios."
    )
    choices: dict[str, dict[str, Any]] | None = Field(
        default=None, min_length=1, description="By name: keys of the study and their values."
    )
    when: str | None = Field(
        default=None,
        min_length=1,
        description="Condition on what is listed before; elsewhere the study's own value holds.",
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z]\w*$",
        description="In expressions and tables; absent: the last part.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Varied:
        # Exactly one way to list values, and for a range exactly one way to step through it.
        ways = [name for name in ("values", "choices") if getattr(self, name) is not None]
        ways += ["from"] * (self.first is not None)
        if len(ways) != 1:
            raise ValueError("expected one of values, from … to, choices")
        if (self.first is None) != (self.to is None):
            raise ValueError("expected from and to together")
        how = [name for name in ("step", "times", "count") if getattr(self, name) is not None]
        if len(how) != (self.first is not None):
            raise ValueError(
                "expected one of step, times and count with from and to" + ", and only there" * bool(how)
            )
        if self.spacing is not None and self.count is None:
            raise ValueError("expected spacing with count only")
        return self


class Limits(Part):
    """What one point may take; more than that, and it is recorded as such."""

    time: Time | None = Field(default=None, description="Wall-clock time: 60 s.")
    memory: Size | None = Field(default=None, description="Memory of the process: 4 GiB.")


Study = Annotated[Any, WithJsonSchema({"type": ["string", "object"]})]
Vary = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
Let = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number"]}})
]


class Sweep(Part):
    """Many studies that differ in some keys."""

    study: Study = Field(description="A study file, relative to this one, or its content.")
    vary: Vary = Field(default={}, description="Keys of the study, dotted, and what they are varied over.")
    let: Let = Field(
        default={}, description="Keys of the study, or new names, and expressions that give them."
    )
    where: list[str] = Field(default=[], description="Constraints; points that break one are rejected.")
    objectives: list[str] = Field(default=["minimize step_time"], min_length=1, description="What is best.")
    tokens: Tokens | None = Field(default=None, description="Of the whole run: 15.6 T.")
    limits: Limits = Limits()
    costs: Costs | None = Field(default=None, description="Prices and energies.")
    search: Search | None = Field(default=None, description="How `armillary plan` looks for the best.")


def sweep_schema() -> dict[str, Any]:
    """Return the JSON Schema of a sweep file."""
    schema = Sweep.model_json_schema(by_alias=True)
    varied = Varied.model_json_schema(by_alias=True)
    schema["$defs"] = schema.get("$defs", {}) | varied.pop("$defs", {}) | {"Varied": varied}
    listed = {"type": "array", "items": _SCALAR, "minItems": 1}
    schema["properties"]["vary"]["additionalProperties"] = {"anyOf": [listed, {"$ref": "#/$defs/Varied"}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Armillary sweep"}
