"""A fit as text in the layout of its files."""

from __future__ import annotations

import json
import math

from armillary.collective.fitted.between import Spanning
from armillary.collective.fitted.mechanism import Line, Mechanism, Outer
from armillary.collective.fitted.model import BETWEEN, INSIDE, CollectiveFit
from armillary.collective.fitted.regimes import Curve
from armillary.collective.fitted.sheet import DataSheet


def text_of(fit: CollectiveFit, title: str, device: str | None = None) -> str:
    """Return the file of a fit; `device` names a known data sheet, else the sheet is written out."""
    lines = [f"title: {json.dumps(title)}", f"device: {device or _sheet(fit.sheet)}"]
    lines.append(f"sources: {json.dumps(list(fit.sources))}")
    if fit.mechanism is not None and not fit.inside:
        return "\n".join([*lines, *_mechanism(fit.mechanism), *_errors(fit)]) + "\n"
    for part, given in (("inside", fit.inside), ("between", fit.between)):
        if given:
            lines.append(f"{part}:")
    # Rows of `inside` belong before the heading of `between`.
    cut = lines.index("between:") if fit.between else len(lines)
    inside = [
        line
        for operation, curves in fit.inside.items()
        for line in (f"  {operation}:", *(line for n, curve in curves.items() for line in _curve(n, curve)))
    ]
    between = [line for operation, part in fit.between.items() for line in _spanning(operation, part)]
    return "\n".join([*lines[:cut], *inside, *lines[cut:], *between, *_spread(fit)]) + "\n"


def _mechanism(mechanism: Mechanism) -> list[str]:
    lines = ["lines:", *(_line(name, line) for name, line in mechanism.lines.items())]
    if mechanism.network:
        lines += ["network:", *(_line(name, outer) for name, outer in mechanism.network.items())]
    lines.append(
        f"own: {{{', '.join(f'{name}: {_number(share)}' for name, share in mechanism.own.items())}}}"
    )
    lines.append(f"saturation: {mechanism.saturation:.0f} B")
    lines += [f"{name}: {_number(getattr(mechanism, name) / 1e3)} us" for name in ("ramp", "gather", "peer")]
    if mechanism.channel < math.inf:
        lines.append(f"channel: {_number(mechanism.channel)} GB/s")
    if mechanism.sharing:
        lines.append("sharing:")
    for kind, known in mechanism.sharing.items():
        lines.append(f"  {kind}: {{{', '.join(f'{n}: {_number(times)}' for n, times in known.items())}}}")
    return lines


def _line(name: str, line: Line | Outer) -> str:
    *times, (_, bandwidth) = line._asdict().items()
    said = "".join(f"{key}: {_number(ns / 1e3)} us, " for key, ns in times if ns)
    return f"  {name}: {{{said}bandwidth: {_number(bandwidth)} GB/s}}"


def _errors(fit: CollectiveFit) -> list[str]:
    lines = ["measured:"] if fit.measured else []
    for place in (INSIDE, BETWEEN):
        if operations := sorted(operation for operation, where in fit.measured if where == place):
            lines.append(f"  {place}: [{', '.join(operations)}]")
    return lines + _spread(fit)


def _spread(fit: CollectiveFit) -> list[str]:
    lines = ["spread:"] if fit.spread else []
    for place, known in fit.spread.items():
        lines.append(
            f"  {place}: {{{', '.join(f'{name}: {_number(value)}' for name, value in known.items())}}}"
        )
    return lines


def _number(value: float) -> str:
    # Four digits are more than measurements have; large values keep all of theirs.
    return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def _up_to(end: float) -> str:
    return "" if end == math.inf else f"up_to: {end:.0f} B, "


def _curve(members: int, curve: Curve) -> list[str]:
    lines = [f"    {members}:"]
    for part in curve:
        bandwidth = "" if part.bandwidth == math.inf else f", bandwidth: {_number(part.bandwidth)} GB/s"
        lines.append(f"      - {{{_up_to(part.up_to)}latency: {_number(part.latency / 1e3)} us{bandwidth}}}")
    return lines


def _spanning(operation: str, part: Spanning) -> list[str]:
    nic = ", ".join(f"{count}: {_number(rate)} GB/s" for count, rate in part.nic.items())
    lines = [f"  {operation}:", f"    nic: {{{nic}}}", "    stages:"]
    for each in part.stages:
        times = (("base", each.base), ("hop", each.hop), ("step", each.step))
        said = "".join(f"{name}: {_number(value / 1e3)} us, " for name, value in times if value)
        lines.append(f"      - {{{_up_to(each.up_to)}{said}load: {_number(each.load)}}}")
    return lines


def _sheet(sheet: DataSheet) -> str:
    return (
        f"{{link: {_number(sheet.link)} GB/s, memory: {_number(sheet.memory)} GB/s, processors: {sheet.processors}, "
        f"clock: {_number(sheet.clock / 1e9)} GHz, mesh: {str(sheet.mesh).lower()}, "
        f"reduces: {str(sheet.reduces).lower()}, generation: {sheet.generation}, nic: {_number(sheet.nic)} GB/s, "
        f"gpus: {sheet.gpus}, "
        f"sibling: {sheet.sibling}, source: {json.dumps(sheet.source)}}}"
    )
