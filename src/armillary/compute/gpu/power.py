"""Clocks under a load that lasts: the limit of the power lowers them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.base.portable import power
from armillary.compute.model import Floats

REST = 0.15
"""Share of the power at full clocks and full load that is drawn without any: leakage, memory, links."""
VOLTAGE = 1.5
"""Exponent of the clocks in the power: 1 where the voltage is at its floor, 3 where it follows the clocks.

With demands from kernels under load (A100 PCIe, B200) 1.5 puts an H100 of 500 W at 63 % of the clocks, a GB200 at 73 %
and a GB300 at 83 %; whole steps published on them ask for about 66, 80 and more than 90 %. 1 suits the last two, 2 the
first."""


@dataclass(frozen=True)
class Power:
    """What a device may draw under a load that lasts, and what it would draw at full clocks.

    Of the power at full clocks `REST` is drawn in any case. The remainder grows with the load of the tensor cores and
    with a power of the clocks, so that the limit lowers the clocks of what computes and of nothing else.

    Attributes:
        limit: W.
        demand: W of GEMMs that keep all tensor cores busy at full clocks.
    """

    limit: float
    demand: float

    def clocks(self, load: Floats) -> Floats:
        """Return (kernels) the share of the clocks that is left under (kernels) loads of the tensor cores, 0 to 1."""
        room = max(self.limit / self.demand - REST, 0.01) / (1 - REST)
        found: Floats = np.minimum(1.0, power(room / np.maximum(load, 1e-9), 1 / VOLTAGE))
        return found

    @property
    def full(self) -> float:
        """The share of the clocks that is left when all tensor cores are busy."""
        return float(self.clocks(np.array(1.0)))
