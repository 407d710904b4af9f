"""Measures of an evaluated study: names, units, and which direction is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from armillary.base.errors import InputError, one_of
from armillary.base.units import format_bytes, format_count, format_flops, format_time

Better = Literal["less", "more"]


@dataclass(frozen=True)
class Measure:
    """One number of an evaluated study, kept in the base unit.

    Attributes:
        name: In expressions, objectives, tables and columns.
        unit: Base unit in which it is stored: "s", "byte", "USD", "J", "1/s", "FLOP/s", "NPU", or "" for a ratio.
        better: Whether less or more is better.
        text: Description in one line.
        show: Formats a value with its unit.
    """

    name: str
    unit: str
    better: Better
    text: str
    show: Callable[[float], str]


def _seconds(value: float) -> str:
    return (
        format_time(value * 1e9)
        if value < 3600
        else f"{value / 86400:,.2f}".rstrip("0").rstrip(".") + " days"
    )


def _money(value: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"${value / size:,.4g} {letter}"
    return f"${value:,.2f}" if value >= 0.01 or value == 0 else f"${value:.3g}"


def _count(unit: str) -> Callable[[float], str]:
    def show(value: float) -> str:
        # Whole numbers keep all digits, others four.
        number = value if value == int(value) else float(f"{value:.4g}")
        return f"{format_count(int(number) if number == int(number) else number)} {unit}".rstrip()

    return show


def _energy(value: float) -> str:
    for size, unit in ((3.6e9, "MWh"), (3.6e6, "kWh"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")):
        if abs(value) >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:.3g} J"


def _power(value: float) -> str:
    text = _count("")(value)
    return f"{text}W" if text[-1].isalpha() else f"{text} W"


def _yes_or_no(value: float) -> str:
    return "yes" if value else "NO"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("step_time", "s", "less", "Simulated time of a step.", _seconds),
        Measure(
            "bound", "s", "less", "Time that no run of this workload on this machine can beat.", _seconds
        ),
        Measure("tokens_per_second", "1/s", "more", "Tokens of all replicas per second.", _count("tokens/s")),
        Measure(
            "samples_per_second", "1/s", "more", "Samples of all replicas per second.", _count("samples/s")
        ),
        Measure(
            "flops_per_npu", "FLOP/s", "more", "Compute rate of an NPU, the mean over all.", format_flops
        ),
        Measure("mfu", "", "more", "Model FLOPs utilisation.", _percent),
        Measure("npus", "NPU", "less", "NPUs of the machine.", _count("NPUs")),
        Measure("memory", "byte", "less", "Memory that the fullest NPU needs.", format_bytes),
        Measure("headroom", "byte", "more", "Capacity of an NPU's memory less what it needs.", format_bytes),
        Measure("fits", "", "more", "Whether this is 0 or more: 1, or 0.", _yes_or_no),
        Measure(
            "assumed_nodes",
            "",
            "less",
            "Nodes without a recorded time, whose time is assumed.",
            _count("nodes"),
        ),
        Measure(
            "roofline",
            "",
            "less",
            "Share of the peak that kernels are assumed to reach.",
            _percent,
        ),
        Measure("compute", "s", "less", "Compute time of the slowest rank.", _seconds),
        Measure("communication", "s", "less", "Exposed communication of the slowest rank.", _seconds),
        Measure("waiting", "s", "less", "Time that the slowest rank waits for others.", _seconds),
        Measure("idle", "s", "less", "Time that the slowest rank does nothing.", _seconds),
        Measure("price", "USD", "less", "What the machine costs to buy.", _money),
        Measure("price_per_hour", "USD", "less", "What the machine costs per hour, energy included.", _money),
        Measure("cost_per_token", "USD", "less", "Cost of the machine's time and energy, per token.", _money),
        Measure("power", "W", "less", "Mean power of the machine.", _power),
        Measure("energy", "J", "less", "Energy of a step, of all NPUs and links.", _energy),
        Measure("energy_per_token", "J", "less", "Energy per token.", _energy),
        Measure("run_time", "s", "less", "Time of the whole run, without failures.", _seconds),
        Measure("run_cost", "USD", "less", "Cost of the whole run.", _money),
        Measure("run_energy", "J", "less", "Energy of the whole run.", _energy),
        Measure(
            "npu_years", "NPU year", "less", "NPUs times the years of the whole run.", _count("NPU years")
        ),
    )
}


def measure(name: str) -> Measure:
    """Return a measure by its name.

    Raises:
        InputError: there is none of that name.
    """
    if name not in MEASURES:
        raise InputError(f"got '{name}', expected {one_of(MEASURES)}")
    return MEASURES[name]
