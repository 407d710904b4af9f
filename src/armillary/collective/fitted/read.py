"""Fits as data files: ``fits/NAME.yaml``, or a file of the same layout."""

from __future__ import annotations

import functools
from pathlib import Path

from pydantic import Field, ValidationError

from armillary.collective.fitted.model import CollectiveFit, Network
from armillary.collective.fitted.regimes import Curve, Regime
from armillary.collective.fitted.sheet import DataSheet
from armillary.errors import InputError, nearest, one_of
from armillary.platform.document import Document, read_document
from armillary.platform.native_errors import first_error
from armillary.platform.schema_fields import Bandwidth, Count, Part, Size, Time

_FOLDER = Path(__file__).parent / "fits"
_SHEETS = Path(__file__).parent / "sheets.yaml"


class _Regime(Part):
    up_to: Size | None = None
    latency: Time
    bandwidth: Bandwidth | None = None


class _Network(Part):
    nic: Bandwidth
    latency: Time
    ramp: Time


class _File(Part):
    title: str
    device: str | DataSheet
    sources: list[str] = Field(default_factory=list)
    inside: dict[str, dict[Count, list[_Regime]]]
    between: _Network | None = None


def fit_names() -> tuple[str, ...]:
    """Return the names of the fits that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@functools.cache
def sheets() -> dict[str, DataSheet]:
    """Return the known data sheets by device."""
    document = read_document(_SHEETS, "data sheets", "yaml")
    return {name: DataSheet.model_validate(value) for name, value in document.data.items()}


def load_fit(name: str | Path) -> CollectiveFit:
    """Return a fit by its name, or from a file.

    Raises:
        InputError: There is neither, or the file is not a fit.
    """
    plain = str(name).replace("_", "-")
    if plain in fit_names():
        return _read(_FOLDER / f"{plain}.yaml")
    path = Path(name)
    if not path.exists():
        known = fit_names()
        raise InputError(
            f"collective fit '{name}': no such file, and no fit of that name{nearest(plain, known)}; "
            f"known: {one_of(known)}"
        )
    return _read(path)


def _read(path: Path) -> CollectiveFit:
    document = read_document(path, "collective fit", "yaml")
    try:
        file = _File.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from error
    inside = {
        operation: {members: _curve(document, operation, members, parts) for members, parts in curves.items()}
        for operation, curves in file.inside.items()
    }
    between = file.between
    network = None if between is None else Network(between.nic, between.latency, between.ramp)
    device = file.device
    if isinstance(device, str):
        if device not in sheets():
            document.reject(("device",), device, one_of(sheets()), nearest(device, sheets()))
        device = sheets()[device]
    return CollectiveFit(path.stem, device, inside, network, tuple(file.sources))


def _curve(document: Document, operation: str, members: int, parts: list[_Regime]) -> Curve:
    ends = [float("inf") if part.up_to is None else float(part.up_to) for part in parts]
    at = ("inside", operation, members)
    if not ends or ends != sorted(set(ends)) or ends[-1] != float("inf"):
        raise document.error(at, "expected regimes with growing up_to, and the last without")
    return tuple(
        Regime(end, part.latency, part.bandwidth or float("inf"))
        for end, part in zip(ends, parts, strict=True)
    )
