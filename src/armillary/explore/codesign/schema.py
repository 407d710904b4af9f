"""The layout of a file of a mix, machines and a budget, as pydantic models.

::

    mix:
      - {train: llama-3-8b, batch: 128, plan: {sequence: 8192}, weight: 60 %}
      - {serve: llama-3.1-8b, load: "poisson:rate=4,input=1024,output=128", slo: "ttft=500ms,tpot=30ms", weight: 40 %}
    machines:
      - machine: 4xdgx-h100
        costs: h100
        vary: {platform.network.fabric.size: [2, 4, 8]}
    budget: {cost_per_year: 1 MUSD, power: 60 kW}

Keys of `vary` are those of sweeps.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, model_validator

from armillary.base import units
from armillary.explore.cost.schema import Share
from armillary.platform.fields import Count, Part, Quantity

Weight = Annotated[float, Quantity(units.parse_percent, "percent", "60 %")]
Money = Annotated[float, Quantity(units.parse_money, "money", "5 MUSD")]
Power = Annotated[float, Quantity(units.parse_power, "power", "60 kW")]
Named = Annotated[Any, WithJsonSchema({"type": ["string", "object"]})]


class TrainingPart(Part):
    """A model that is trained."""

    train: str = Field(min_length=1, description="Name of a model, or its file.")
    batch: Count = Field(description="Samples of a step.")
    plan: dict[str, Any] = Field(
        default={}, description="Keys of a plan that hold on all machines, as of `armillary.plan`."
    )
    software: str = Field(default="", description="What it is trained with; by default what suits a machine.")
    weight: Weight = Field(
        default=1.0, description="Share of the time that the reference machine spends on it."
    )


class ServingPart(Part):
    """A model that is served."""

    serve: str = Field(min_length=1, description="Name of a decoder, or its file.")
    load: str = Field(
        min_length=1, description="Its requests, as of `armillary serve`; their rate is looked for."
    )
    slo: str = Field(min_length=1, description="What a good request meets: ttft=500ms,tpot=50ms.")
    share: Share = Field(default=0.9, description="Of the requests that must be good.")
    first: Count | None = Field(default=None, description="How many requests of the load are served.")
    options: dict[str, Any] = Field(
        default={}, description="Of the engine: engine, precision, tp and others, as of `armillary.serve`."
    )
    weight: Weight = Field(
        default=1.0, description="Share of the time that the reference machine spends on it."
    )


class MachinePart(Part):
    """A kind of machine: what varies, and what it costs."""

    machine: Named = Field(description="A preset, which may be counted, a platform file, or its content.")
    costs: Named = Field(description="Prices and energies: a preset, a file, or its content.")
    vary: dict[str, Any] = Field(default={}, description="Keys, dotted, and their values, as in a sweep.")
    name: str | None = Field(default=None, min_length=1, description="What tables call it.")


class BudgetPart(Part):
    """What a machine may cost and take, at most."""

    capital: Money | None = Field(default=None, description="To buy.")
    cost_per_year: Money | None = Field(
        default=None, description="Price over the years, or rent, and electricity at full power."
    )
    power: Power | None = Field(default=None, description="With every NPU busy, and the building's share.")


class CodesignFile(Part):
    """A mix of workloads, machines, and a budget."""

    mix: Annotated[list[Any], Field(min_length=1, max_length=32)]
    machines: Annotated[list[MachinePart], Field(min_length=1, max_length=64)]
    budget: BudgetPart = BudgetPart()
    reference: Named = Field(
        default=None, description="Machine that goodput is relative to; by default the first machine."
    )

    @model_validator(mode="after")
    def _mappings(self) -> CodesignFile:
        for number, each in enumerate(self.mix):
            if not isinstance(each, dict) or ("train" in each) == ("serve" in each):
                raise ValueError(f"mix.{number}: expected a mapping with the key train, or serve")
        return self
