"""The section ``search`` of a sweep file, as a pydantic model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from armillary.platform.files.schema_fields import Count, Part

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
