"""Names of network models, and what a machine says of the one to use: the list that all others read.

What stands behind a name is in `armillary.engine.transport.models`; other packages add to it by entry points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.extension import ExtensionPoint
from armillary.platform.limits import Choice, Kind, check, refuse

NETWORK_MODELS = ExtensionPoint(
    "armillary.transport", "network model", ("analytical", "congestion", "flow", "packet", "ns3")
)
"""Models of profile physical. All but the first move messages."""
ASTRA_SIM_MODELS = ("analytical", "congestion")
"""Models of profile astra-sim."""


@dataclass(frozen=True)
class NetworkChoice:
    """The network model that a machine names.

    Attributes:
        name: One of `NETWORK_MODELS`; empty: analytical, or flow where the network is a graph.
        options: Of a model of another package; built-in ones have none (`Platform.packets` has those of packet).
        source: File, line and key of the setting, or empty.
        folder: What paths in the options are relative to.
    """

    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    source: str = field(default="", compare=False)
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        # Empty is no name and means that the simulation or the profile chooses.
        if self.name != "":
            check(self, name=Choice(NETWORK_MODELS))
        check(self, options=Kind(Mapping, "a mapping"))
        # A built-in model would silently ignore options: those of packet are in `Platform.packets`.
        if self.options and (not self.name or self.name in NETWORK_MODELS.built_in):
            raise refuse(self, ("options",), "expected only with a network model of another package")
