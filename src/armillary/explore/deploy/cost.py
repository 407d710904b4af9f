"""What served tokens cost: the price of the devices and their energy, for the time of a load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from armillary.base.document import Source
from armillary.base.errors import InputError
from armillary.explore.cost import Costs, Use, energy, load_costs, measures_of, price
from armillary.explore.cost.show import notes
from armillary.serving.result import Serving

MILLION = 1e6
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Bill:
    """What a load cost; None: the costs do not say.

    Attributes:
        devices: Of all replicas.
        per_hour: USD per hour, of all devices, with their share of hosts and network.
        per_output: USD per million output tokens.
        per_token: USD per million tokens of prompts and answers.
        power: Mean W of all devices, with their share of hosts.
        energy: kWh per million output tokens.
        notes: What is not in it, and which numbers are guesses.
    """

    devices: int
    per_hour: float | None
    per_output: float | None
    per_token: float | None
    power: float | None
    energy: float | None
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """A line for people."""
        many = f"{self.devices:,} device{'s' * (self.devices > 1)}"
        parts = []
        if self.per_hour is not None and self.per_output is not None and self.per_token is not None:
            parts.append(
                f"${self.per_output:,.4g} per million output tokens (${self.per_token:,.4g} per million of prompts and "
                f"answers): ${self.per_hour:,.2f} an hour for {many}"
            )
        if self.power is not None and self.energy is not None:
            parts.append(f"{self.energy:,.4g} kWh per million output tokens, at {self.power:,.0f} W")
        return "; ".join(parts)

    def json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "usd_per_hour": self.per_hour, "usd_per_million_output_tokens": self.per_output,
            "usd_per_million_tokens": self.per_token, "power_watts": self.power,
            "kwh_per_million_output_tokens": self.energy, "notes": list(self.notes),
        }  # fmt: skip


def bill(found: Serving, costs: Source | Costs) -> Bill:
    """Return what a load cost from its first arrival to its last token, on the devices of its replicas.

    Devices have their share of a whole machine: of its hosts, its network, and what stands idle with it.

    Args:
        found: The load, as it was served.
        costs: A preset, a file, or what it holds.

    Raises:
        InputError: the costs go by operations, or say neither a price nor an energy.
    """
    known = costs if isinstance(costs, Costs) else load_costs(costs)
    if known.npu.flop is not None:
        raise InputError(
            "costs: npu.flop: operations of served requests are not counted, expected npu.busy and npu.idle, or rent"
        )
    platform, outcome = found.service.machine.platform, found.outcome
    # Replicas that are started and stopped cost while they are there.
    machines = found.service.devices / platform.npus * outcome.there_share
    # Of one machine; a replica works with all its devices or with none.
    busy = outcome.busy * found.service.replicas * found.service.replica_devices * outcome.there_share
    before = found.service.prefill
    if before and outcome.moved:
        busy += outcome.busy_share(outcome.moved.replicas) * before.replicas * before.replica_devices
    busy *= outcome.duration_s / machines
    moved = (0.0,) * len(platform.dimensions)
    use = Use(outcome.duration_s, platform.npus, busy, {}, 0.0, moved)
    counted, left_out = _counted(known, platform.npus)
    output, prompts = float(outcome.requests.output.sum()), float(outcome.requests.prompt.sum())
    values = measures_of(use, platform, counted, tokens=output / machines)
    each, power = values.get("cost_per_token"), values.get("power")
    if each is None and power is None:
        raise InputError(
            "costs: nothing says what an hour or its energy is, expected npu.rent, npu.price or npu.busy"
        )
    hourly = values.get("price_per_hour")
    told = (
        notes(price(platform, counted), energy(use, platform, counted), known)
        if known.npu.rent is None
        else []
    )
    return Bill(
        found.service.devices,
        None if hourly is None else hourly * machines,
        None if each is None else MILLION * each,
        None if each is None else MILLION * each * output / (output + prompts),
        None if power is None else power * machines,
        None if power is None else MILLION * values["energy_per_token"] / JOULES_PER_KWH,
        (*told, *left_out),
    )


def _counted(costs: Costs, npus: int) -> tuple[Costs, Sequence[str]]:
    """Return costs without energies of bytes, which a load does not count, and of `npus` devices' share of hosts.

    With a sentence for each of both that changes the total.
    """
    links = {name: each.model_copy(update={"moved": None}) for name, each in costs.links.items()}
    memory = costs.memory.model_copy(update={"access": None})
    had = costs.memory.access is not None or any(each.moved for each in costs.links.values())
    told = ["not in the energy: bytes of memory and links, which are not counted"] if had else []
    host = costs.host
    if host and npus % host.npus:
        # Others use the rest of the last host.
        share = npus / (host.npus * -(-npus // host.npus))
        of = {
            name: None if (each := getattr(host, name)) is None else share * each
            for name in ("price", "power")
        }
        host = host.model_copy(update=of)
        told.append(f"of hosts of {host.npus} devices: {100 * npus / host.npus:g} %")
    return costs.model_copy(update={"links": links, "memory": memory, "host": host}), told
