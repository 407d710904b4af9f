"""A machine whose kernels some model times: a preset of any size, a file, or the mapping that it holds.

Training steps and served requests are predicted on it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from armillary.base.document import Source
from armillary.base.errors import InputError, nearest, one_of
from armillary.compute.gpu.device import gpu_names, load_gpu
from armillary.platform.files.native import load_platform, platform_document
from armillary.platform.files.preset import device_names, expand, is_preset, read_preset
from armillary.platform.model import Platform

_NOT_MEASURED = {
    "sibling": "were not measured: they take what its data sheet adds to",
    "derived": "were not measured: they follow its data sheet and the shares of the peaks of",
    "sheet": "were not measured, nor of any such device: they follow its data sheet and the shares of the peaks of",
}
"""Basis of a device -> what is to be said of it, before the device that its constants are from."""


@dataclass(frozen=True)
class Machine:
    """A machine whose kernels some model times.

    Attributes:
        name: As the user said it.
        keys: Of the platform.
        platform: The same, read; its memory is as large as the device says where the keys do not.
        device: Name of the constants of its kernels; "": another model than ``gpu`` times them.
        software: What trains on it by default; "": it does not say.
        assumptions: What it takes from elsewhere, a sentence each.
        cut: Of one whose graph is taken by its levels: returns it with levels that end where those groups of
            consecutive devices do; None: its network is the same for all plans.
    """

    name: str
    keys: Mapping[str, Any]
    platform: Platform
    device: str
    software: str
    assumptions: tuple[str, ...] = ()
    cut: Callable[[tuple[int, ...]], Machine] | None = field(default=None, compare=False, repr=False)

    @property
    def npus(self) -> int:
        """How many devices it has."""
        return self.platform.npus

    @property
    def domain(self) -> int:
        """Devices that its innermost dimension joins."""
        return self.platform.dimensions[0].size

    @property
    def moves_messages(self) -> bool:
        """Whether its network model moves messages, as over a graph, where nothing slows collectives as a whole."""
        platform = self.platform
        return platform.topology is not None or platform.network_model.name not in ("", "analytical")

    def not_measured(self) -> list[str]:
        """Return what is not known of the times of its kernels and collectives, a sentence each."""
        return [*self.kernels_not_measured(), *self.collectives_not_measured()]

    def kernels_not_measured(self, which: str = "kernels") -> list[str]:
        """Return what is not known of the times of its kernels, or of some of them."""
        compute = self.platform.compute
        if self.device:
            gpu = load_gpu(self.device)
            known = gpu.basis not in _NOT_MEASURED
            return [] if known else [f"{which} of {gpu.name} {_NOT_MEASURED[gpu.basis]} {gpu.like}"]
        share = f" at {100 * compute.kernels.compute:g} % of the peaks" if compute.model == "roofline" else ""
        return [
            f"{which} of machine {self.name} are timed by {compute.model}{share}, of whose errors nothing is known"
        ]

    def collectives_not_measured(self) -> list[str]:
        """Return what is not known of the times of its collectives."""
        if not self.device or self.platform.collectives.fit or self.npus == 1:
            return []
        return [
            "collectives follow the links of the data sheet, as none was measured; those that were take 1.5 times as "
            "long from 64 MiB on"
        ]


def machine_of(source: Source) -> Machine:
    """Return a machine.

    Args:
        source: A preset, which may be counted (64xdgx-h100), a study or platform file, or what such a file holds.

    Raises:
        InputError: there is no such machine, it is malformed, or nothing says how its kernels are timed.
    """
    document = platform_document(source)
    name = document.name if isinstance(source, Mapping) else str(source)
    preset = read_preset(name) if document.path is None and is_preset(name) else None
    at = ("platform",) if "platform" in document.data else ()
    document, _ = expand(document, at)
    keys = document.data["platform"] if at else document.data
    if document.path:
        keys = _absolute(keys, document.path.parent)
    platform = load_platform(source)
    if not platform.compute.modelled:
        raise InputError(
            f"machine {name}: nothing says how long kernels take; expected compute: {{model: gpu, device: NAME}} "
            f"with {one_of(gpu_names())}, or a roofline by name, compute: {{roofline: true, "
            f"efficiency: 60 %}}{nearest(name, device_names().values())}"
        )
    device = str(keys["compute"]["device"]) if platform.compute.model == "gpu" else ""
    npu = platform.npu
    if device and not npu.memory.capacity:
        memory = replace(npu.memory, capacity=load_gpu(device, platform.compute.folder).capacity)
        platform = replace(platform, npu=replace(npu, memory=memory))
    software = preset.software if preset else str((document.data.get("software") if at else None) or "")
    if document.path and Path(software).suffix:
        software = str((document.path.parent / software).resolve())
    assumptions = tuple(document.data.get("assumptions") or ()) if at else ()
    return Machine(name, keys, platform, device, software, assumptions)


def _absolute(keys: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return keys whose paths do not depend on where the file is."""
    found = {**keys}
    for part, key in (("compute", "device"), ("compute", "file"), ("collectives", "fit")):
        value = (found.get(part) or {}).get(key) if isinstance(found.get(part), dict) else None
        if isinstance(value, str) and Path(value).suffix:
            found[part] = {**found[part], key: str((folder / value).resolve())}
    return found
