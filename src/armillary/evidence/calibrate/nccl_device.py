"""The device that samples were measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from armillary.base.errors import InputError, nearest, one_of
from armillary.collective.fitted.model import SUBSTITUTES
from armillary.collective.fitted.read import plain_name, sheets
from armillary.evidence.calibrate.samples import Sample


def known_operation(name: str | None) -> str:
    """Return the operation that `--operation` names; empty without one.

    Raises:
        InputError: It is unknown.
    """
    if name is not None and name not in SUBSTITUTES:
        raise InputError(
            f"--operation: got '{name}', expected {one_of(SUBSTITUTES)}{nearest(name, SUBSTITUTES)}"
            # Empty: the log says it itself.
        )
    return name or ""


def choose(samples: Sequence[Sample], device: str | None) -> tuple[str, list[Sample]]:
    """Return (name of the data sheet, samples of that device); samples that name none are of any.

    Args:
        samples: As read, with what files call their devices.
        device: What the user calls it; None: what the files say.

    Raises:
        InputError: It is unknown, the files say several or none, or have no sample of it.
    """
    # Names of the data sheets, "" where a file says nothing that is known.
    said = {sample.device: sheet_name(sample.device) for sample in samples}
    if device is None:
        found = sorted({name for name in said.values() if name})
        if len(found) != 1:
            what = f"name several devices ({', '.join(found)})" if found else "do not name a known device"
            raise InputError(f"the files {what}: choose one by --device, {one_of(sheets())}")
        name = found[0]
    else:
        name = plain_name(device)
        if name not in sheets():
            raise InputError(
                f"--device: got '{device}', expected {one_of(sheets())}{nearest(name, sheets())}"
            )
    # Samples without a device are of the one that was chosen.
    mine = [replace(sample, device=name) for sample in samples if said[sample.device] in ("", name)]
    if not mine:
        raise InputError(
            f"--device {device}: the files have none, only {', '.join(sorted(set(said.values())))}"
        )
    return name, mine


def sheet_name(device: str) -> str:
    """Return the data sheet of a device as files or drivers call it (``NVIDIA H100 80GB HBM3``), or empty."""
    plain = plain_name(device)
    if plain in sheets():
        return plain
    words = plain.split("-")
    # The only device of which two capacities have data sheets.
    if "a100" in words and "40gb" in words:
        return "a100-sxm-40"
    # "h100" in "nvidia-h100-80gb-hbm3" finds h100-sxm.
    return next((name for name in sheets() if name.partition("-")[0] in words), "")
