"""The machine file of what was observed, and the files beside it: its device, its collectives, its software."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

import yaml

from armillary.base.errors import InputError
from armillary.base.files import write_text
from armillary.base.units import format_bytes
from armillary.collective.fitted.model import INSIDE, CollectiveFit
from armillary.collective.fitted.read import load_fit
from armillary.compute.gpu.device import load_gpu
from armillary.compute.gpu.spread import device_spread
from armillary.compute.machine import Machine
from armillary.evidence.calibrate.nccl_device import sheet_name
from armillary.evidence.calibrate.observe.base import Base
from armillary.evidence.calibrate.observe.kernels import BALANCE, REACHED, Kernels, fit_kernels
from armillary.evidence.calibrate.observe.network import Network, fit_network
from armillary.evidence.calibrate.observe.read import Observed
from armillary.evidence.calibrate.observe.software import Steps, fit_steps, rows_of, software_name
from armillary.explore.training.prediction import Prediction
from armillary.explore.training.software import Software, software_of
from armillary.explore.training.train import of_plan
from armillary.platform.files.native import load_platform

DEVICE, COLLECTIVES, SOFTWARE = "device", "collectives", "software"
"""What files beside a machine file hold: ``NAME.device.yaml``, …"""
_HEADER = "# Written by `armillary calibrate observe`. It needs the files beside it that it names.\n"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """An observed machine.

    Attributes:
        files: Name -> text, the machine file last.
        machine: The machine, whose parts are in the folder that it was made in.
        kernels: None: no GEMM was observed.
        network: None: no collective was observed.
        steps: None: no step was measured.
        again: (plans) the measured plans, predicted by what was found.
        assumptions: What is from where, a sentence each.
    """

    files: Mapping[str, str]
    machine: Machine
    kernels: Kernels | None
    network: Network | None
    steps: Steps | None
    again: tuple[Prediction, ...]
    assumptions: tuple[str, ...]

    def write(self, out: Path) -> list[Path]:
        """Write the files to the folder of `out`, the machine file as `out`, and return them."""
        paths = [out.parent / name for name in self.files]
        paths[-1] = out
        # The machine file last: what it names is there.
        for path, text in zip(paths, self.files.values(), strict=True):
            write_text(path, text)
        return paths


@dataclass
class _Parts:
    """What the platform of the observed machine is made of."""

    name: str
    base: Base | None
    npus: int
    folder: Path
    kernels: Kernels | None = None
    network: Network | None = None
    files: dict[str, str] = field(default_factory=dict)

    def put(self, what: str, text: str) -> str:
        """Write a part to the folder, for what is simulated, and return its name."""
        name = f"{self.name}.{what}.yaml"
        self.files[name] = text
        write_text(self.folder / name, text)
        return name

    def keys(self, npus: int, folder: str = "") -> dict[str, Any]:
        """Return the keys of a platform with so many devices, its parts in a folder."""
        keys = dict(self.base.of_size(npus)) if self.base else self._plain(npus)
        for section, key, what in (("compute", "device", DEVICE), ("collectives", "fit", COLLECTIVES)):
            name = f"{self.name}.{what}.yaml"
            if name in self.files:
                model = {"model": "gpu"} if section == "compute" else {}
                keys[section] = {**(keys.get(section) or {}), **model, key: f"{folder}{name}"}
        return keys

    def machine(self, npus: int | None) -> Machine:
        """Return the machine with so many devices, or with all of them."""
        keys = self.keys(npus or self.npus, f"{self.folder.resolve()}/")
        device = keys["compute"].get("device", "")
        return Machine(self.name, keys, load_platform(keys), str(device), "")

    def _plain(self, npus: int) -> dict[str, Any]:
        """Return a machine like no other: devices on one switch."""
        assert self.kernels is not None
        gpu, latency, bandwidth = self.kernels.gpu, 1e3, 1.0
        if self.network is not None:
            curves = [curve[-1] for known in self.network.fit.inside.values() for curve in known.values()]
            latency, bandwidth = min(each.latency for each in curves), max(each.bandwidth for each in curves)
        switch = {"name": "node", "topology": "Switch", "size": npus, "bandwidth": f"{bandwidth:.4g} GB/s",
                  "latency": f"{max(1.0, latency):.0f} ns"}  # fmt: skip
        peak = {name: f"{value / 1e12:.4g} TFLOP/s" for name, value in gpu.peaks.items()}
        npu = {"peak": peak, "memory": {"bandwidth": f"{gpu.bandwidth / 1e9:.4g} GB/s"}}
        return {"network": [switch], "npu": npu}


def observed_machine(
    observed: Observed,
    base: Base | None,
    folder: Path,
    *,
    title: str,
    ranks: int | None = None,
    per_node: int | None = None,
    software: str = "",
    tell: Tell = lambda text: None,
) -> Found:
    """Return the machine of what was observed.

    Args:
        observed: What files say.
        base: What the machine is like; None: like nothing.
        folder: Its parts are written there, to be simulated with.
        title: Of the machine; its parts are named after it.
        ranks: Devices; absent: those of `base`, or as many as were observed.
        per_node: Devices of a node, where a profile does not tell; absent: those of `base`.
        software: What steps were measured with; "": what the files say, or what trains on such a machine.
        tell: Called with what is fitted next.

    Raises:
        InputError: a step is impossible, or too little was observed.
    """
    # A name of a file without blanks, which a list of devices has between its words.
    name = re.sub(r"\s+", "-", title)
    npus = ranks or (base.machine.npus if base else observed.ranks)
    parts, gemms = _Parts(name, base, npus, folder), observed.gemms()
    gpu = load_gpu(base.machine.device) if base and base.machine.device else None
    if gemms:
        tell("GEMMs")
        sources = ", ".join((*observed.files.get("GEMMs", ()), *observed.files.get("profile", ())))
        parts.kernels = fit_kernels(gpu, gemms, title, sources)
        parts.put(DEVICE, yaml.safe_dump(dict(parts.kernels.keys), sort_keys=False, width=120))
    elif base is None:
        raise InputError(
            "no GEMM was observed, and no file names a device that is known: expected a table of GEMMs, a PyTorch "
            "profile, or --machine, a preset that is like yours"
        )
    samples = observed.collectives(per_node or (base.machine.domain if base else npus))
    if samples:
        tell("collectives")
        sources_of = [*observed.files.get("collectives", ()), *observed.files.get("profile", ())]
        parts.network = fit_network(samples, _fit_like(base, observed.devices), title, sources_of)
        parts.put(COLLECTIVES, parts.network.text)
    elif base is None and npus > 1:
        raise InputError(
            f"no collective was observed, so nothing says how long {npus} ranks wait for each other: expected a log "
            "of nccl-tests, a table of such times, or --machine, a preset that is like yours"
        )
    machine = parts.machine(None)
    steps, used = None, None
    if observed.steps:
        tell("steps")
        named = software_name(observed.steps, software, base.machine.software if base else "")
        used = software_of(named, machine.device) if named else None
        rows = rows_of(observed.steps, used, parts.machine)
        further = device_spread(load_gpu(machine.device)) if machine.device else 0.0
        steps = fit_steps(rows, used, further)
        device = Path(machine.device).name.removesuffix(".yaml")
        text = yaml.safe_dump(
            steps.document(title, device, observed.files["steps"]), sort_keys=False, width=120
        )
        parts.put(SOFTWARE, text)
    assumptions = tuple(
        _assumptions(observed, parts, steps, software or (base.machine.software if base else ""))
    )
    again = _again(parts, steps, folder)
    own = f"{name}.{SOFTWARE}.yaml" if steps else software or (base.machine.software if base else "")
    data = {
        **({"software": own} if own else {}),
        "assumptions": list(assumptions),
        "platform": parts.keys(npus),
    }
    text = _HEADER + yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    files = {**parts.files, f"{name}.yaml": text}
    whole = replace(machine, software=own, assumptions=assumptions)
    return Found(files, whole, parts.kernels, parts.network, steps, again, assumptions)


def _fit_like(base: Base | None, devices: Sequence[str]) -> CollectiveFit | None:
    """Return the fit of collectives of the device; None: its library is not known."""
    given = (base.machine.keys.get("collectives") or {}).get("fit") if base else None
    known = [found for each in devices if (found := sheet_name(each))]
    name = given or (known[0] if known else None)
    return load_fit(name) if name else None


def _again(parts: _Parts, steps: Steps | None, folder: Path) -> tuple[Prediction, ...]:
    """Return the measured plans, predicted by the software that was found."""
    if steps is None:
        return ()
    found = []
    for row in steps.rows:
        machine = parts.machine(row.machine.npus)
        own: Software = software_of(str(folder / f"{parts.name}.{SOFTWARE}.yaml"), machine.device)
        assert row.case.step is not None
        found.append(of_plan(row.case.step.model, machine, own, row.values))
    return tuple(found)


def _assumptions(observed: Observed, parts: _Parts, steps: Steps | None, software: str) -> list[str]:
    """Return what is from where."""
    base, found = parts.base, []
    like = (base.machine.device or base.machine.name) if base else "no known device"
    if parts.kernels is None:
        found.append(f"no GEMM was observed: kernels are those of {like}")
    else:
        for name, fit in parts.kernels.fits.items():
            rest = f"the others are those of {like}" if base else "other kernels follow from these"
            found.append(
                f"GEMMs in {name} follow {_decided(fit.shapes, 'observed shape', _some(fit.free))}; {rest}"
                + _held(fit.mean)
            )
        said = f"those of {like}" if base else "taken to start, compute and move bytes as GEMMs do"
        found.append(
            f"attention and kernels bound by memory were not observed by themselves: they are {said}"
        )
        if not base:
            found.append(
                f"no data sheet is known: the peak is the rate of the fastest observed GEMM over {REACHED:g}, the "
                f"memory's bandwidth the peak over {BALANCE:g} FLOP a byte"
            )
    if parts.network is None:
        found += [f"no collective was observed: they are those of {like}"] if base else []
    else:
        found += _of_network(parts.network, like)
        if observed.calls:
            found.append(
                "of collectives in profiles, which wait for other ranks, the shortest of each size counts"
            )
    if steps is None:
        found.append(f"no step was measured: software adds what {software or 'it'} does elsewhere")
    else:
        rest = f"the others are those of {steps.base}" if steps.base else "the others add nothing"
        found.append(
            f"steps follow {_decided(len(steps.rows), 'measured plan', _some(steps.names))}; {rest}"
            + _held(steps.held_out)
        )
    return found


def _of_network(network: Network, like: str) -> list[str]:
    places = sorted({place for _, place in network.fit.measured})
    seen = sorted({operation for operation, _ in network.fit.measured})
    about = f"{', '.join(seen)}; {format_bytes(network.least)} to {format_bytes(network.most)}"
    moved = f"{network.moved} constant{'s' * (network.moved != 1)}"
    found = [
        f"collectives follow {_decided(network.cases, 'observed case', moved, f' ({about})')}"
        + _held(network.mean)
    ]
    lacking = [
        name for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all") if name not in seen
    ]
    if lacking:
        rest = f", and from {like}" if network.fit.mechanism is not None else ""
        found.append(f"{', '.join(lacking)} were not observed: they follow from what was{rest}")
    if places == [INSIDE] and network.fit.mechanism is not None:
        found.append(f"no collective between nodes was observed: as on {like}")
    return found


def _decided(count: int, noun: str, what: str, about: str = "") -> str:
    """Return "3 NOUNs ABOUT, which decide WHAT", or the same of one."""
    return (
        f"{count} {noun}{about}, which decides {what}"
        if count == 1
        else f"{count} {noun}s{about}, which decide {what}"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) or "no constant"


def _held(mean: float) -> str:
    return "" if isnan(mean) else f" (held out: {100 * mean:.1f} %)"
