"""What a machine is like before anything was observed: a preset of its size, a machine file, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.base.errors import InputError
from armillary.collective.fitted.read import plain_name
from armillary.compute.machine import Machine, machine_of
from armillary.platform.files.preset import device_names, is_preset, read_preset
from armillary.platform.files.sized import counted


@dataclass(frozen=True)
class Base:
    """A machine that the observed one is like.

    Attributes:
        machine: The machine, with all devices.
        counted: The name by which its devices are counted; "": it has one size.
    """

    machine: Machine
    counted: str

    def of_size(self, npus: int) -> Mapping[str, Any]:
        """Return the keys of its platform with so many devices.

        Raises:
            InputError: there is none of that size.
        """
        if npus == self.machine.npus:
            return self.machine.keys
        if not self.counted:
            raise InputError(
                f"machine {self.machine.name} has {self.machine.npus:,} devices, expected as many as a step has ranks: "
                f"{npus:,}"
            )
        keys: Mapping[str, Any] = read_preset(f"{npus}x{self.counted}").document.data["platform"]
        return keys


def base_of(name: str | None, devices: Sequence[str], ranks: int) -> Base | None:
    """Return what a machine is like, None if nothing says.

    Args:
        name: What the user says: a preset, perhaps counted, or a file.
        devices: What files call its device.
        ranks: How many were observed: a preset that is not counted has as many devices.

    Raises:
        InputError: there is no such machine, or files name several devices.
    """
    if name is None:
        found = sorted({known for each in devices if (known := _known(each))})
        if len(found) > 1:
            raise InputError(
                f"the files name several devices ({', '.join(found)}): choose a machine by --machine"
            )
        return Base(machine_of(f"{ranks}x{found[0]}"), found[0]) if found else None
    if not is_preset(name):
        return Base(machine_of(name), "")
    number = counted(name)
    one = number[1] if number else name
    by_device = {preset: device for device, preset in device_names().items()}
    device = one if one in device_names() else by_device.get(one, "")
    if device and not number:
        # As many as were observed, or one domain.
        npus = ranks if ranks > 1 else machine_of(name).npus
        return Base(machine_of(f"{npus}x{device}"), device)
    return Base(machine_of(name), device)


def _known(device: str) -> str:
    """Return the name by which a device is counted: h100 for NVIDIA H100 80GB HBM3; "" if it is not known."""
    words = plain_name(device).split("-")
    return next((name for name in device_names() if name in words), "")
