"""Fits as data files: ``fits/NAME.yaml``, or a file of the same layout.

::

title: My cluster
device: h100-sxm            # one of sheets.yaml, or a mapping of the same keys
sources: [all_reduce_8.log]
lines:                      # within a node, shared by all operations and members (`mechanism`)
  LL: {overhead: 5 us, hop: 1 us, bandwidth: 140 GB/s}
  Simple: {overhead: 9 us, hop: 8 us, bandwidth: 390 GB/s}
  ...
network:                    # between nodes; without it that of a reference, with the NICs of the device
  Simple: {step: 6 us, hop: 20 us, bandwidth: 48 GB/s}
  ...
saturation: 5 MB
own: {all-gather: 0.5, all-reduce: 0.4}
measured: {inside: [all-reduce]}
spread: {inside: {all-reduce: 0.04, any: 0.04}}    # standard deviations of ln(measured / predicted)

Where no mechanism of NCCL's holds, a file states regimes instead::

inside:                     # operation -> members -> regimes: time = latency + bytes sent / bandwidth
  all-reduce:
    8:
      - {up_to: 64 KiB, latency: 16 us, bandwidth: 30 GB/s}
      - {latency: 30 us, bandwidth: 470 GB/s}
between:                    # operation -> what NICs carry, and regimes over several nodes
  all-reduce:
    nic: {8: 43 GB/s}
    stages:
      - {base: 0 ns, hop: 80 us, step: 2 us, load: 1.0}
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from armillary.base.document import Document, read_document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import KeyPath
from armillary.base.units import format_bandwidth
from armillary.collective.fitted.between import Spanning, Stage
from armillary.collective.fitted.derive import derive, networked
from armillary.collective.fitted.mechanism import LINES, NETWORK_LINES, SHARING, Line, Mechanism, Outer
from armillary.collective.fitted.model import BETWEEN, INSIDE, SUBSTITUTES, CollectiveFit
from armillary.collective.fitted.regimes import Curve, Regime
from armillary.collective.fitted.sheet import DataSheet
from armillary.collective.fitted.tuning import LL128, NVLS, has_ll128
from armillary.platform.fields import Bandwidth, Count, Part, Size, Time, first_error

_FOLDER = Path(__file__).parent / "fits"
_SHEETS = Path(__file__).parent / "sheets.yaml"
_UNSEEN = Path(__file__).parent / "unseen.yaml"
NETWORK_OF = "h100-sxm"
"""The fit whose latencies between nodes others take that have none."""
_ROUNDED = 1.001
"""Four digits are written."""


class _Regime(Part):
    up_to: Size | None = None
    latency: Time
    bandwidth: Bandwidth | None = None


class _Stage(Part):
    up_to: Size | None = None
    base: Time = 0.0
    hop: Time = 0.0
    step: Time = 0.0
    load: Annotated[float, Field(ge=0)] = 1.0


class _Between(Part):
    nic: dict[Count, Bandwidth] = Field(min_length=1)
    stages: list[_Stage]


class _Line(Part):
    overhead: Time = 0.0
    hop: Time = 0.0
    bandwidth: Bandwidth


class _Outer(Part):
    step: Time = 0.0
    hop: Time = 0.0
    bandwidth: Bandwidth


_Share = Annotated[float, Field(ge=0)]


class _File(Part):
    title: str
    device: str | DataSheet
    sources: list[str] = Field(default_factory=list)
    lines: dict[str, _Line] = Field(default_factory=dict)
    network: dict[str, _Outer] = Field(default_factory=dict)
    own: dict[str, Annotated[float, Field(ge=0, le=2)]] = Field(default_factory=dict)
    saturation: Size = 0
    ramp: Time = 0.0
    gather: Time = 0.0
    peer: Time = 0.0
    channel: Bandwidth | None = None
    sharing: dict[str, dict[Count, Annotated[float, Field(gt=0)]]] = Field(default_factory=dict)
    measured: dict[str, list[str]] = Field(default_factory=dict)
    spread: dict[str, dict[str, _Share]] = Field(default_factory=dict)
    inside: dict[str, dict[Count, list[_Regime]]] = Field(default_factory=dict)
    between: dict[str, _Between] = Field(default_factory=dict)


# Files of the package do not change while the program runs.
@functools.cache
def measured_names() -> tuple[str, ...]:
    """Return the names of the fits to measurements that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@functools.cache
def fit_names() -> tuple[str, ...]:
    """Return every name that `load_fit` knows: also of devices that are derived from a sibling."""
    return tuple(sorted({*measured_names(), *sheets()}))


@functools.cache
def sheets() -> dict[str, DataSheet]:
    """Return the known data sheets by device."""
    document = read_document(_SHEETS, "data sheets", "yaml")
    return {name: DataSheet.model_validate(value) for name, value in document.data.items()}


@functools.cache
def unseen() -> dict[str, float]:
    """Return the standard deviations of ln(measured / predicted) of what was left out of fits, by what it was."""
    document = read_document(_UNSEEN, "spread of what was not measured", "yaml")
    return {name: float(value) for name, value in document.data.items()}


def plain_name(name: str) -> str:
    """Return `name` as fits are called, e.g. h100-sxm for H100_SXM or h100."""
    plain = name.lower().replace("_", "-").replace(" ", "-")
    known = fit_names()
    # A bare device name means the usual form factor.
    return next((word for word in (plain, f"{plain}-sxm", f"{plain}-server") if word in known), plain)


def load_fit(name: str | Path) -> CollectiveFit:
    """Return a fit by its name, or from a file.

    Raises:
        InputError: There is neither, or the file is not a fit.
    """
    plain = plain_name(str(name))
    if plain in fit_names():
        return _known(plain)
    path = Path(name)
    if not path.exists():
        known = fit_names()
        raise InputError(
            f"collective fit '{name}': there is no such fit and no such file{nearest(plain, known)}; "
            f"known: {', '.join(known)}"
        )
    return _with_network(_read(path))


@functools.cache
def _known(name: str) -> CollectiveFit:
    if name in measured_names():
        return _with_network(_read(_FOLDER / f"{name}.yaml"))
    sheet = sheets()[name]
    return derive(name, sheet, _known(sheet.sibling))


def _with_network(fit: CollectiveFit) -> CollectiveFit:
    if fit.between or (fit.mechanism and fit.mechanism.network):
        return fit
    # Where no network was measured, latencies are those of the reference and bandwidths those of the NIC.
    network = _read(_FOLDER / f"{NETWORK_OF}.yaml")
    assert network.mechanism is not None
    note = (
        f"between nodes as {NETWORK_OF}, with {fit.sheet.nic / network.sheet.nic:.3g} times its NIC bandwidth"
    )
    notes = (*fit.notes, note)
    if fit.mechanism is None:
        # Of regimes within a node only: what they do not say is the reference's.
        return replace(fit, mechanism=derive(fit.name, fit.sheet, network).mechanism, notes=notes)
    outer = networked(network.mechanism, fit.sheet, network.sheet)
    return replace(fit, mechanism=replace(fit.mechanism, network=outer), notes=notes)


def _read(path: Path) -> CollectiveFit:
    document = read_document(path, "collective fit", "yaml")
    try:
        file = _File.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from error
    for part, given in (("inside", file.inside), ("between", file.between)):
        for operation in given:
            document.choice((part, operation), operation, SUBSTITUTES)
    device = file.device
    if isinstance(device, str):
        device = sheets()[document.choice(("device",), device, sheets())]
    if file.lines:
        if file.inside or file.between:
            raise document.error(
                (), "expected either 'lines' or regimes under 'inside' and 'between', got both"
            )
        return _mechanical(document, path, file, device)
    if not file.inside and not file.between:
        raise document.error((), "expected 'lines', or measured operations under 'inside' or 'between'")
    inside = {
        operation: {
            members: _curve(document, ("inside", operation, members), parts)
            for members, parts in curves.items()
        }
        for operation, curves in file.inside.items()
    }
    between = {
        operation: Spanning(
            part.nic,
            tuple(
                Stage(end, each.base, each.hop, each.step, each.load)
                for end, each in zip(
                    _ends(document, ("between", operation, "stages"), [each.up_to for each in part.stages]),
                    part.stages,
                    strict=True,
                )
            ),
        )
        for operation, part in file.between.items()
    }
    places = frozenset(
        (operation, place) for place, given in ((INSIDE, inside), (BETWEEN, between)) for operation in given
    )
    _check_spread(document, file)
    sources = tuple(file.sources)
    return CollectiveFit(
        path.stem, device, inside, between, sources, spread=file.spread, measured=places, unseen=unseen()
    )


def _mechanical(document: Document, path: Path, file: _File, sheet: DataSheet) -> CollectiveFit:
    """Return the fit of a file that states a mechanism."""
    needed = [name for name in LINES if name != NVLS and (name != LL128 or has_ll128(sheet))]
    outer = [name for name in NETWORK_LINES if name != LL128 or has_ll128(sheet)]
    for part, given, known, least in (
        ("lines", file.lines, LINES, needed),
        ("network", file.network, NETWORK_LINES, outer if file.network else []),
    ):
        for name in given:
            document.choice((part, name), name, known)
        if missing := [name for name in least if name not in given]:
            raise document.error((part,), f"expected lines {', '.join(least)}; without {', '.join(missing)}")
    # A protocol cannot carry more than the link.
    for part, values, most in (("lines", file.lines, sheet.link), ("network", file.network, sheet.nic)):
        for name, value in values.items():
            if value.bandwidth > most * _ROUNDED:
                raise document.error(
                    (part, name, "bandwidth"),
                    f"got {format_bandwidth(value.bandwidth)}, expected at most that of the data sheet, "
                    f"{format_bandwidth(most)}",
                )
    for name in file.own:
        document.choice(("own", name), name, SUBSTITUTES)
    for name in file.sharing:
        document.choice(("sharing", name), name, SHARING)
    for place, operations in file.measured.items():
        document.choice(("measured", place), place, (INSIDE, BETWEEN))
        for operation in operations:
            document.choice(("measured", place), operation, SUBSTITUTES)
    _check_spread(document, file)
    mechanism = Mechanism(
        {name: Line(line.overhead, line.hop, line.bandwidth) for name, line in file.lines.items()},
        {name: Outer(line.step, line.hop, line.bandwidth) for name, line in file.network.items()},
        file.own,
        file.saturation,
        file.ramp,
        file.gather,
        file.peer,
        file.channel or math.inf,
        file.sharing,
    )
    places = frozenset((operation, place) for place, each in file.measured.items() for operation in each)
    return CollectiveFit(
        path.stem,
        sheet,
        {},
        sources=tuple(file.sources),
        mechanism=mechanism,
        spread=file.spread,
        measured=places,
        unseen=unseen(),
    )


def _check_spread(document: Document, file: _File) -> None:
    for place in file.spread:
        document.choice(("spread", place), place, (INSIDE, BETWEEN))


def _curve(document: Document, at: KeyPath, parts: list[_Regime]) -> Curve:
    ends = _ends(document, at, [part.up_to for part in parts])
    # Without a bandwidth the regime is pure latency.
    return tuple(
        Regime(end, part.latency, part.bandwidth or math.inf) for end, part in zip(ends, parts, strict=True)
    )


def _ends(document: Document, at: KeyPath, given: list[int | None]) -> list[float]:
    ends = [math.inf if end is None else float(end) for end in given]
    # A regime without an end must be the last, or those behind it could never apply.
    if not ends or ends != sorted(set(ends)) or ends[-1] != math.inf:
        raise document.error(at, "expected regimes with growing up_to, and the last one without")
    return ends
