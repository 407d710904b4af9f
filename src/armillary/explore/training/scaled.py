"""A machine with faster or slower devices and networks, as its data sheet would change.

The device and the fit of collectives become files of their own: constants that were measured are shares of peaks and
bandwidths, and follow them; latencies stay. So the interval grows as for any device that nobody measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from armillary.base.errors import InputError
from armillary.base.files import write_text
from armillary.base.portable import power
from armillary.base.units import parse_bandwidth, parse_flops
from armillary.collective.fitted import load_fit
from armillary.collective.fitted.write import text_of
from armillary.compute.gpu.device import load_gpu
from armillary.compute.gpu.power import VOLTAGE
from armillary.compute.machine import Machine, machine_of

_FILE = "machine.yaml"
MOST = 64.0
"""Largest factor; its inverse is the smallest."""


@dataclass(frozen=True)
class Scaled:
    """A machine that was changed.

    Attributes:
        machine: To predict on.
        files: Name -> text of the files that describe it; ``machine.yaml`` names the others.
    """

    machine: Machine
    files: Mapping[str, str]


def scaled(
    source: str | Mapping[str, Any], folder: Path, *, fabric: float = 1.0, peak: float = 1.0
) -> Scaled:
    """Return a machine whose networks and peaks are so many times as fast.

    Args:
        source: A preset, which may be counted, or what a platform file holds.
        folder: Where the files that it consists of are written; it exists.
        fabric: Factor of the bandwidth of all dimensions but the first, which joins the devices of a node; of a graph,
            of all links but those within hosts.
        peak: Factor of the peaks of the devices in every precision, at an unchanged memory.

    Raises:
        InputError: there is no such machine, it has no such network, or a factor is out of range.
    """
    base = machine_of(source)
    name, its = (_FILE, "what is drawn") if isinstance(source, Mapping) else (source, source)
    for key, factor in (("fabric", fabric), ("peak", peak)):
        if not (isfinite(factor) and 1 / MOST <= factor <= MOST):
            raise InputError(f"{key}: got {factor:g}, expected a factor from 1/{MOST:g} to {MOST:g}")
    if fabric == peak == 1.0:
        return Scaled(replace(base, name=name), {_FILE: _yaml(source)} if isinstance(source, Mapping) else {})
    keys: dict[str, Any] = deepcopy(dict(base.keys))
    files: dict[str, str] = {}
    assumed = [*base.assumptions]
    if fabric != 1.0:
        _scale_network(base, keys, fabric, files)
        assumed.append(
            f"networks between nodes have {fabric:g} times the bandwidth of {its}, at the same latencies"
        )
    if peak != 1.0:
        _scale_peaks(base, keys, peak, files)
        assumed.append(f"peaks of devices are {peak:g} times those of {its}, memory as it is")
    held = {"software": base.software, "assumptions": assumed, "platform": keys}
    files[_FILE] = _yaml(held)
    for file, text in files.items():
        write_text(folder / file, text)
    return Scaled(replace(machine_of(folder / _FILE), name=name), files)


def _yaml(held: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(held), sort_keys=False, width=110, allow_unicode=True)


def _scale_network(base: Machine, keys: dict[str, Any], factor: float, files: dict[str, str]) -> None:
    if keys.get("topology"):
        keys["topology"] = _scaled_graph(base.name, keys["topology"], factor)
        return
    network = keys.get("network")
    inner = base.platform.collectives.fit.inner if base.platform.collectives.fit else 1
    if not isinstance(network, list) or len(network) <= inner:
        raise InputError(f"fabric: machine {base.name} has no network between nodes, expected factor 1")
    for dimension in network[inner:]:
        dimension["bandwidth"] = f"{parse_bandwidth(dimension['bandwidth']) * factor:g} GB/s"
    choice = base.platform.collectives.fit
    if choice is None:
        return
    fit = load_fit(choice.name).with_network(factor)
    file = f"{choice.name}-fabric-{factor:g}x.yaml"
    files[file] = text_of(fit, f"{choice.name} with {factor:g} times the bandwidth between nodes")
    keys["collectives"] = {**keys["collectives"], "fit": file}


_RATES = ("bandwidth", "uplink", "local_bandwidth", "global_bandwidth")
"""Bandwidths of a graph outside of hosts and dies."""


def _scaled_graph(name: str, graph: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return a graph with faster links: those outside of hosts where it has hosts, else all."""
    held = deepcopy(dict(graph))
    if "file" in held:
        raise InputError(f"fabric: the graph of machine {name} is a file of its own, expected factor 1")
    # Of nested dimensions the first joins the devices of a node.
    for each in (held, *held.get("links", ()), *held.get("network", ())[1:]):
        for key in _RATES:
            if each.get(key) is not None:
                each[key] = f"{parse_bandwidth(each[key]) * factor:g} GB/s"
    return held


def _scale_peaks(base: Machine, keys: dict[str, Any], factor: float, files: dict[str, str]) -> None:
    npu = keys.get("npu") or {}
    peak = npu.get("peak")
    if isinstance(peak, dict):
        npu["peak"] = {name: _flops(parse_flops(value) * factor) for name, value in peak.items()}
    elif peak is not None:
        npu["peak"] = _flops(parse_flops(peak) * factor)
    if not base.device:
        return
    gpu = load_gpu(base.device)
    held: dict[str, Any] = {
        "title": f"{gpu.title} with {factor:g} times its peaks",
        "like": gpu.name,
        "sms": gpu.sms,
        "peak": {name: _flops(rate * factor) for name, rate in gpu.peaks.items()},
        "memory": {"bandwidth": f"{gpu.bandwidth / 1e9:g} GB/s"}
        | ({"capacity": f"{gpu.capacity} B"} if gpu.capacity else {}),
    }
    # Of a device that nobody measured no more is known when it is faster.
    if gpu.basis != "measured":
        held["basis"] = gpu.basis
    if gpu.power:
        # Faster clocks draw more: the limit grows with them, or it would take back what the factor gives.
        held["power"] = f"{gpu.power.limit * power(factor, VOLTAGE):.1f} W"
    file = f"{gpu.name}-peak-{factor:g}x.yaml"
    files[file] = yaml.safe_dump(held, sort_keys=False, width=110)
    keys["compute"] = {**keys["compute"], "device": file}


def _flops(rate: float) -> str:
    return f"{rate / 1e12:.6g} TFLOP/s"
