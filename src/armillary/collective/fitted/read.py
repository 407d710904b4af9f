"""Fits as data files: ``fits/NAME.yaml``, or a file of the same layout.

::

title: My cluster
device: h100-sxm            # one of sheets.yaml, or a mapping of the same keys
sources: [all_reduce_8.log]
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
from armillary.collective.fitted.between import Spanning, Stage
from armillary.collective.fitted.derive import borrowed, derive
from armillary.collective.fitted.model import SUBSTITUTES, CollectiveFit, DataSheet
from armillary.collective.fitted.regimes import Curve, Regime
from armillary.platform.fields import Bandwidth, Count, Part, Size, Time
from armillary.platform.files.native_errors import first_error

_FOLDER = Path(__file__).parent / "fits"
_SHEETS = Path(__file__).parent / "sheets.yaml"
NETWORK_OF = "h100-sxm"
"""The fit whose latencies between nodes others take that have none."""


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


class _File(Part):
    title: str
    device: str | DataSheet
    sources: list[str] = Field(default_factory=list)
    inside: dict[str, dict[Count, list[_Regime]]] = Field(default_factory=dict)
    between: dict[str, _Between] = Field(default_factory=dict)


def measured_names() -> tuple[str, ...]:
    """Return the names of the fits to measurements that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def fit_names() -> tuple[str, ...]:
    """Return every name that `load_fit` knows: also of devices that are derived from a sibling."""
    return tuple(sorted({*measured_names(), *sheets()}))


@functools.cache
def sheets() -> dict[str, DataSheet]:
    """Return the known data sheets by device."""
    document = read_document(_SHEETS, "data sheets", "yaml")
    return {name: DataSheet.model_validate(value) for name, value in document.data.items()}


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
    if not path.is_file():
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
    if fit.between:
        return fit
    # Where no network was measured, latencies are those of the reference and bandwidths those of the NIC.
    network = _read(_FOLDER / f"{NETWORK_OF}.yaml")
    note = (
        f"between nodes as {NETWORK_OF}, with {fit.sheet.nic / network.sheet.nic:.3g} times its NIC bandwidth"
    )
    return replace(fit, between=borrowed(fit.sheet, network), notes=(*fit.notes, note))


def _read(path: Path) -> CollectiveFit:
    document = read_document(path, "collective fit", "yaml")
    try:
        file = _File.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from error
    for part, given in (("inside", file.inside), ("between", file.between)):
        for operation in given:
            document.choice((part, operation), operation, SUBSTITUTES)
    if not file.inside and not file.between:
        raise document.error((), "expected measured operations under 'inside' or 'between'")
    device = file.device
    if isinstance(device, str):
        device = sheets()[document.choice(("device",), device, sheets())]
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
    return CollectiveFit(path.stem, device, inside, between, tuple(file.sources))


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
