"""Prices and energies of a machine's parts, as a file says them.

::

    npu: {price: 27500 USD, busy: 700 W, idle: 100 W}
    host: {npus: 8, price: 50 kUSD, power: 4.6 kW}
    links:                              # a class of links: USD, W and J per GB/s of an NPU, or per byte
      node: {link: 4 USD, switch: 13 USD}
      pod: {link: 7.8 USD, switch: 18 USD, nic: 31.6 USD}
    switches: {ndr: {ports: 64, rate: 50 GB/s, price: 36 kUSD}}         # of a network that is a graph
    cables: {optics: {rate: 50 GB/s, price: 1240 USD, price_high: 2700 USD}}
    dimensions: {rail: pod}             # which class a dimension is of, where `class_of` takes it for another
    years: 4
    electricity: 0.08 USD

``preset: NAME`` takes the numbers of a known set; other keys beside it change them. What is not said is not
counted, and every table says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from armillary.base import units
from armillary.base.document import Source, is_there, read_document
from armillary.base.errors import InputError, nearest, one_of
from armillary.explore.cost.presets import cost_preset_names, expanded, read_cost_preset
from armillary.platform.fields import Bandwidth, Count, Efficiency, Part, Quantity, first_error
from armillary.platform.limits import Number

Money = Annotated[float, Quantity(units.parse_money, "money", "250 USD", Number())]
Power = Annotated[float, Quantity(units.parse_power, "power", "700 W", Number())]
Energy = Annotated[float, Quantity(units.parse_energy, "energy", "0.7 pJ", Number())]
Share = Annotated[float, Quantity(units.parse_percent, "percent", "20 %", Number())]

CLASSES = ("pod", "node", "package", "chiplet")
"""Classes of dimensions that no key names, from the outside in."""


class NpuCosts(Part):
    """Of an NPU: its power by how long it computes (`busy`, `idle`), or by what it computes (`flop`, `idle`)."""

    price: Money | None = Field(
        default=None, description="To buy, with its memory unless `memory.price` says so."
    )
    rent: Money | None = Field(
        default=None, description="Per hour, instead of all prices, years and electricity: what a cloud asks."
    )
    busy: Power | None = Field(default=None, description="While it computes.")
    idle: Power | None = Field(
        default=None, description="While it waits or communicates; with flop: all the time."
    )
    flop: dict[Literal["fp32", "bf16", "fp8"], Energy] | None = Field(
        default=None, description="Per operation, by precision; instead of busy."
    )

    @model_validator(mode="after")
    def _one_way(self) -> NpuCosts:
        if self.busy is not None and self.flop is not None:
            raise ValueError("got busy and flop, expected one of them: time or operations")
        # Without idle watts the time outside of kernels would cost nothing.
        if self.busy is not None and self.idle is None:
            raise ValueError("got busy without idle, expected both")
        return self


class MemoryCosts(Part):
    """Of the local memory of an NPU."""

    price: Money | None = Field(default=None, description="Per GB (10^9 bytes) of its capacity.")
    access: Energy | None = Field(default=None, description="Per byte read or written.")
    stored: Power | None = Field(default=None, description="Per GB of its capacity, all the time.")


class HostCosts(Part):
    """Of the computer around some NPUs."""

    npus: Count = Field(description="That one host has.")
    price: Money | None = None
    power: Power | None = Field(default=None, description="All the time, without its NPUs.")


class LinkCosts(Part):
    """Of a class of links, per GB/s (10^9 bytes per second, one way) that an NPU has in a dimension.

    As in LIBRA (arXiv 2109.11762), a Switch has a link, a switch port and perhaps a NIC for each NPU; the links of a
    Ring or a FullyConnected dimension share the bandwidth of the NPU.
    """

    link: Money = Field(default=0.0, description="Wires and cables.")
    switch: Money = Field(default=0.0, description="Ports of switches, in dimensions of topology Switch.")
    nic: Money = Field(default=0.0, description="Network adapters, in dimensions of topology Switch.")
    power: Power = Field(default=0.0, description="All the time.")
    moved: Energy = Field(default=0.0, description="Per byte (not per GB/s) that an NPU sends.")


class _Sold(Part):
    """What is sold at a price, or at a range of prices."""

    price: Money
    price_high: Money | None = Field(
        default=None, description="Where it is dear; with it prices have an interval."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.price_high is not None and self.price_high < self.price:
            raise ValueError(
                f"price_high: got {self.price_high:g} USD, expected at least price, {self.price:g} USD"
            )
        return self


class SwitchCosts(_Sold):
    """Of a switch as it is sold."""

    ports: Annotated[int, Field(ge=2)] = Field(description="That it has.")
    rate: Bandwidth = Field(description="Of a port, one way.")
    power: Power = Field(default=0.0, description="All the time, without optics.")


class CableCosts(_Sold):
    """Of a cable between two ports, with what is plugged in at both ends."""

    rate: Bandwidth = Field(description="That it carries, one way; a faster link has several.")
    power: Power = Field(default=0.0, description="All the time, of both ends.")


class Costs(Part):
    """Prices and energies; see the module."""

    preset: str | None = Field(default=None, description="A known set, which the other keys change.")
    npu: NpuCosts = NpuCosts()
    memory: MemoryCosts = MemoryCosts()
    host: HostCosts | None = None
    links: dict[str, LinkCosts] = Field(
        default={}, description="By class: chiplet, package, node, pod, or others."
    )
    switches: dict[str, SwitchCosts] = Field(
        default={},
        description="By name: those of which a network that is a graph is built, instead of links.pod.",
    )
    cables: dict[Literal["optics", "copper"], CableCosts] = Field(
        default={}, description="Of such a network."
    )
    copper: list[str] = Field(
        default=[], description="Kinds of links of a graph that are copper, e.g. local of a dragonfly."
    )
    dimensions: dict[str, str] = Field(default={}, description="Name of a dimension -> its class.")
    other: Share = Field(default=0.0, description="Of all prices, besides: storage, racks, building.")
    years: Annotated[float, Field(gt=0, le=100)] | None = Field(
        default=None, description="Over which the price is written off."
    )
    utilisation: Efficiency = Field(default=1.0, description="Of these years in which the machine works.")
    electricity: Money | None = Field(default=None, description="Per kWh.")
    pue: Annotated[float, Field(ge=1, le=10)] = Field(
        default=1.0, description="Power usage effectiveness: power of the building / power of the machine."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        # Before validation, so that preset and own keys are checked together.
        return expanded(data) if isinstance(data, dict) and isinstance(data.get("preset"), str) else data

    @model_validator(mode="after")
    def _classes(self) -> Costs:
        if self.switches and not self.cables:
            raise ValueError("got switches without cables, expected both")
        for name, kind in self.dimensions.items():
            if kind not in self.links:
                # Classes are free names, known by having costs.
                known = one_of(self.links) if self.links else "a class of links"
                raise ValueError(
                    f"dimensions.{name}: got '{kind}', expected {known}{nearest(kind, self.links)}"
                )
        return self


def load_costs(source: Source) -> Costs:
    """Read a file of costs, or a preset by its name; what such a file holds may be given as a mapping.

    Raises:
        InputError: it is neither, or malformed.
    """
    # A file of the same name wins over a preset.
    if isinstance(source, str) and source in cost_preset_names() and not is_there(source):
        return Costs(preset=source)
    # A suffix is meant as a file.
    if not isinstance(source, Mapping) and not Path(source).suffix and not is_there(source):
        names = cost_preset_names()
        raise InputError(
            f"{source}: neither a file nor a preset of costs{nearest(str(source), names)}; "
            f"presets: {', '.join(names)}"
        )
    document = read_document(source, "costs", "yaml")
    try:
        return Costs.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None


def unverified(costs: Costs) -> tuple[str, ...]:
    """Return the keys of a preset's numbers that no public source says and that are still as they were."""
    if costs.preset is None:
        return ()
    preset = read_cost_preset(costs.preset)
    original = Costs(preset=costs.preset)
    return tuple(
        number.key
        for number in preset.numbers
        # A number that the user replaced is no longer the preset's guess.
        if number.unverified and _value(costs, number.key) == _value(original, number.key)
    )


def _value(costs: Costs, key: str) -> object:
    value: Any = costs
    for part in key.split("."):
        # Keys like "links.pod.link" go through mappings and models alike.
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return value
