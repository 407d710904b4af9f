"""Options of DCQCN, the rate control of model `packet` (see `packet` for what the model covers)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from armillary.base.errors import InputError
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk


@dataclass(frozen=True)
class Dcqcn:
    """Rate control by marks (Zhu et al., SIGCOMM 2015); defaults are those of the paper unless noted.

    Attributes:
        g: Share by which the estimate of congestion moves, 0 to 1.
        alpha_timer: ns without notification after which the estimate decays.
        timer: ns after which the rate rises.
        byte_counter: Bytes sent after which the rate rises.
        fast_recovery: Times that it rises to the rate before the last notification only.
        additive: Bytes/ns added to the target after these (40 Mb/s).
        hyper: Bytes/ns added, times their number, where both timer and counter are past them (ours: 10 additive).
        notify: ns between two notifications of one message.
        least: Bytes/ns below which the rate does not fall (ours: 1 Mb/s).

    Raises:
        InputError: A value is out of range.
    """

    g: float = 1 / 256
    alpha_timer: float = 55_000
    timer: float = 55_000
    byte_counter: int = 10_000_000
    fast_recovery: int = 5
    additive: float = 0.005
    hyper: float = 0.05
    notify: float = 50_000
    least: float = 0.000125

    def __post_init__(self) -> None:
        unit = {"byte_counter": "bytes", "fast_recovery": "times"} | dict.fromkeys(
            ("additive", "hyper", "least"), "bytes/ns"
        )
        low = {"byte_counter": 1, "fast_recovery": 0, "additive": 0, "hyper": 0, "least": 1e-6}
        if not 0 < self.g <= 1:
            raise InputError(f"packet: dcqcn: g is {self.g}, expected more than 0 and at most 1, e.g. 1/256")
        for field in fields(self)[1:]:
            value, least = getattr(self, field.name), low.get(field.name, 1)
            most = 1000 if unit.get(field.name) == "bytes/ns" else 10**12
            if not least <= value <= most:
                raise InputError(
                    f"packet: dcqcn: {field.name} is {value}, expected {least:g} to {most:g} "
                    f"{unit.get(field.name, 'ns')}, e.g. {field.default:g}"
                )

    def options(self) -> list[int]:
        """Return the options in the units of the kernel: ps, bytes and bytes/s; `g` in parts of `ONE`."""
        times = [round(time * lk.PS) for time in (self.alpha_timer, self.timer, self.notify)]
        # 1 byte/ns is 10**9 bytes/s.
        rates = [round(rate * 10**9) for rate in (self.additive, self.hyper, self.least)]
        return [max(1, round(self.g * pk.ONE)), *times, self.byte_counter, self.fast_recovery, *rates]
