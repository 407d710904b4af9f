"""Fitted constants of training software, as data files: ``software/NAME.yaml``, or a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from armillary.base.document import Document, read_document
from armillary.base.errors import InputError, nearest, one_of
from armillary.explore.training.constants import NAMES, Constants

FOLDER = Path(__file__).parent / "software"
SPREADS = ("step", "exposed", "experts")
ALL = "all"
"""Key of constants that all devices share."""


NORMAL = 1.645
"""Standard deviations on each side of 90 % of a normal distribution."""


@dataclass(frozen=True)
class Spread:
    """Standard deviations of ln(measured / predicted), whose squares add up.

    Attributes:
        step: Of every step.
        exposed: Times the share of a step that is exposed communication and waiting.
        experts: Of mixtures of experts.
    """

    step: float
    exposed: float = 0.0
    experts: float = 0.0


UNKNOWN = Spread(0.25, 0.3, 0.2)
"""Of software of which no step was measured: what the first predictions of measured steps were off by, before any of
their constants were known."""


@dataclass(frozen=True)
class Fitted:
    """Constants of a software on a device, and how far from them measured steps are.

    Attributes:
        constants: From all given rows.
        spread: Of rows that were held out.
        on: Devices that rows are of.
        folds: What was left out of a fit -> its constants.
    """

    constants: Constants
    spread: Spread = UNKNOWN
    on: tuple[str, ...] = ()
    folds: Mapping[str, Constants] = field(default_factory=dict)


@lru_cache(maxsize=1)
# Files of the package do not change while the program runs.
def stack_names() -> tuple[str, ...]:
    """Return the names of the software whose constants come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def constants_of(stack: str, device: str) -> Fitted:
    """Return the constants of a software on a device; of a device without any, those that all share.

    Args:
        stack: Name of a software, or the path of a file of ``armillary calibrate training``.
        device: Name of the GPU's constants.

    Raises:
        InputError: there is no such software, or its file is malformed.
    """
    document = document_of(stack)
    base = document.data.get("base")
    # Constants of a base software, which a recipe started from.
    below = constants_of(str(base), device) if base else Fitted(Constants())
    start = below.constants
    devices: dict[str, Any] = document.data.get("devices") or {}
    # Those of the device win over those that all share.
    values = {**_values(document, ALL, "constants"), **_values(document, device, "constants")}
    part = device if device in devices else ALL
    own: dict[str, Any] = devices.get(part) or {}
    folds = {
        # Folds are constants of the same software, with some rows left out.
        name: start.changed({**values, **_checked(document, part, each, NAMES)})
        for name, each in (own.get("folds") or {}).items()
    }
    spread = own.get("spread")
    return Fitted(
        start.changed(values),
        Spread(**_checked(document, part, spread, SPREADS)) if spread else below.spread,
        tuple(str(own.get("measured_on") or "").split()) or below.on,
        folds,
    )


@dataclass(frozen=True)
class Seen:
    """Which measured steps constants were fitted to.

    Attributes:
        rows: Digests of the rows.
        plans: Digests of their plans.
    """

    rows: frozenset[str] = frozenset()
    plans: frozenset[str] = frozenset()


def seen_by(stack: str) -> Seen:
    """Return what the constants of a software, and those of the software that it adds to, were fitted to.

    Raises:
        InputError: there is no such software, or its file is malformed.
    """
    document = document_of(stack)
    own: dict[str, str] = document.data.get("seen") or {}
    base = seen_by(str(document.data["base"])) if document.data.get("base") else Seen()
    rows, plans = (frozenset(str(own.get(name, "")).split()) for name in ("rows", "plans"))
    return Seen(base.rows | rows, base.plans | plans)


def document_of(stack: str) -> Document:
    """Return the file of a software.

    Args:
        stack: Name of a software, or the path of a file of ``armillary calibrate training``.

    Raises:
        InputError: there is no such software, or its file is malformed.
    """
    # A path of a file has a suffix; a name of the package has none.
    names = stack_names()
    if stack not in names and not Path(stack).suffix:
        raise InputError(
            f"no constants of '{stack}'{nearest(stack, names)}, expected {one_of(names)} or a file"
        )
    return _document(FOLDER / f"{stack}.yaml" if stack in names else Path(stack))


@lru_cache(maxsize=64)
# Files of the package do not change while the program runs.
def _document(path: Path) -> Document:
    return read_document(path, "constants", "yaml")


def _values(document: Document, device: str, key: str) -> dict[str, float]:
    devices = document.data.get("devices") or {}
    return _checked(document, device, (devices.get(device) or {}).get(key) or {}, NAMES)


def _checked(
    document: Document, device: str, values: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, float]:
    for name, value in values.items():
        if name not in names:
            # A typo must not be a constant that does nothing.
            document.reject(("devices", device, name), value, f"only {one_of(names)}", nearest(name, names))
        if isinstance(value, bool) or not isinstance(value, int | float):
            document.reject(("devices", device, name), value, "a number")
    return {name: float(value) for name, value in values.items()}
