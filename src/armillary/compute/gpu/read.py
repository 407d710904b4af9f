"""Checked values of the file of a device."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from armillary.base import units
from armillary.base.document import Document
from armillary.base.errors import nearest, one_of
from armillary.base.hints import KeyPath
from armillary.compute.gpu.power import Power
from armillary.compute.gpu.residuals import LARGEST, Residuals

PRECISIONS = ("fp32", "bf16", "fp8", "fp4")
SCALED = ("fp8 block",)
"""GEMMs that are slower by their recipe than others of their precision: scales of blocks are applied to partial sums
outside of the tensor cores of Hopper."""
LAYOUTS = ("input", "weight", "grouped")
BASES = ("measured", "sibling", "derived", "sheet")
SPREADS = (
    *(f"gemm {precision} {length}" for precision in PRECISIONS for length in ("short", "long")),
    "grouped", "attention", "attention backward", "memory",
)  # fmt: skip
"""Classes of kernels with one spread each; GEMMs of less than 20 us are short."""
_TIMES = (
    "step", "tile", "launch", "after", "split", "cast", "ramp", "vector", "vector_step", "score",
    "backward_score", "context_launch",
)  # fmt: skip
_SHARES = (
    "rate", "memory", "drop", "cast_memory", "backward_rate", "sustained", "area", "overlap", "again",
)  # fmt: skip
_POWER = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?W")
_TILE = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})(?:/([12]))?")
T = TypeVar("T")


class Reader:
    """Reads values and remembers which keys were read."""

    def __init__(self, document: Document) -> None:
        self.document = document
        # Keys that only people read.
        self._asked: set[str] = {"source", "notes"}
        if not isinstance(document.data, dict):
            document.reject((), document.data, "a mapping of keys to values")

    def reject(self, path: KeyPath, value: Any, expected: str, hint: str = "") -> NoReturn:
        """Refuse a value."""
        self.document.reject(path, value, expected, hint)

    def given(self, key: str) -> Mapping[str, Any]:
        """Return a mapping as it stands, empty where it is absent."""
        value = self.document.data.get(key) or {}
        if not isinstance(value, dict):
            self.reject((key,), value, "a mapping of keys to values")
        found: dict[str, Any] = value
        return found

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return a mapping that people read."""
        self._asked.add(key)
        return self.given(key)

    def text(self, key: str, default: str) -> str:
        """Return a text."""
        value = self._get((key,), default)
        if not isinstance(value, str):
            self.reject((key,), value, "a text")
        return str(value)

    def count(self, path: KeyPath, default: int | None = None, least: int = 1) -> int:
        """Return a whole number of `least` or more."""
        return self.document.whole(path, self._get(path, default), least)

    def peaks(self) -> dict[str, float]:
        """Return FLOP/s by precision, of which bf16 must be there."""
        self._asked.add("peak")
        given = self.given("peak")
        self._known(("peak",), given, PRECISIONS)
        return {
            name: self._parsed(("peak", name), units.parse_flops, "312 TFLOP/s")
            for name in ("bf16", *(each for each in given if each != "bf16"))
        }

    def bandwidth(self, path: KeyPath) -> float:
        """Return bytes/s."""
        return self._parsed(path, units.parse_bandwidth, "3.35 TB/s") * 1e9

    def size(self, path: KeyPath) -> int:
        """Return bytes."""
        return int(self._parsed(path, units.parse_capacity, "80 GiB"))

    def bytes_or(self, path: KeyPath, default: int) -> int:
        """Return bytes, or `default` where there are none."""
        return default if self._get(path, None) is None else self.size(path)

    def power(self, default: Power | None) -> Power | None:
        """Return the limit of the power and the demand; None where no demand is known, nor that of `default`."""
        limit, demand = self._get(("power",), None), self._get(("sustained", "demand"), None)
        self._known(("sustained",), self.given("sustained"), ("demand", "source"))
        if limit is None and demand is None:
            return default
        if demand is None and default is None:
            self.reject(("sustained", "demand"), None, "the power that GEMMs draw at full clocks, e.g. 800 W")
        if limit is None and default is None:
            self.reject(("power",), None, "the limit of the power, e.g. 700 W")
        return Power(
            self._watts(("power",), default.limit if default else None),
            self._watts(("sustained", "demand"), default.demand if default else None),
        )

    def _watts(self, path: KeyPath, default: float | None) -> float:
        value = self._get(path, None)
        if value is None and default is not None:
            return default
        match = _POWER.fullmatch(str(value))
        if not match or not 1 <= float(match[1]) <= 1e5:
            self.reject(path, value, "a power from 1 W to 100000 W, e.g. 700 W")
        return float(match[1])

    def basis(self, default: str) -> str:
        """Return what constants rest on, one of `BASES`."""
        value = self.text("basis", default)
        if value not in BASES:
            self.reject(("basis",), value, one_of(BASES), nearest(value, BASES))
        return value

    def spread(self, default: Mapping[str, float]) -> dict[str, float]:
        """Return standard deviations of logarithms by class of kernels."""
        self._asked.add("spread")
        given = self.given("spread")
        self._known(("spread",), given, SPREADS)
        return dict(default) | {name: self._number(("spread", name)) for name in given}

    def share(self, path: KeyPath, default: float | None = None) -> float:
        """Return a share above 0 and up to 1."""
        return default if default is not None and self._get(path, None) is None else self._share(path)

    def time(self, path: KeyPath, default: float | None = None) -> float:
        """Return s."""
        if default is not None and self._get(path, None) is None:
            return default
        return self._parsed(path, units.parse_time, "2.5 us", zero=True) * 1e-9

    def tiles(self, default: tuple[tuple[int, int, int], ...] | None) -> tuple[tuple[int, int, int], ...]:
        """Return tiles; each is read with its rows and columns changed, too."""
        value = self._get(("tiles",), None)
        if value is None and default:
            return default
        if not isinstance(value, list) or not value:
            self.reject(("tiles",), value, "a list of tiles such as 256x128, or 256x256/2 on two SMs")
        # A dict keeps the order and drops tiles that are given twice, or are square.
        found: dict[tuple[int, int, int], None] = {}
        for each in value:
            match = _TILE.fullmatch(str(each))
            if not match:
                self.reject(("tiles",), value, "tiles such as 256x128, or 256x256/2 on two SMs")
                continue
            rows, columns, share = int(match[1]), int(match[2]), int(match[3] or 1)
            found |= {(rows, columns, share): None, (columns, rows, share): None}
        return tuple(found)

    def fits(self, key: str, kind: type[T], default: dict[str, T]) -> dict[str, T]:
        """Return constants by precision."""
        self._asked.add(key)
        given = self.given(key)
        self._known((key,), given, (*PRECISIONS, *SCALED) if key == "gemm" else PRECISIONS)
        found = default | {name: self.record((key, name), kind, default.get(name)) for name in given}
        if "bf16" not in found:
            self.reject((key,), given or None, "constants of bf16 at least")
        return found

    def residuals(self, default: Mapping[str, Residuals]) -> dict[str, Residuals]:
        """Return residuals of GEMMs by precision."""
        self._asked.add("residuals")
        given = self.given("residuals")
        self._known(("residuals",), given, PRECISIONS)
        return dict(default) | {name: self._residuals(("residuals", name), given[name]) for name in given}

    def _residuals(self, path: KeyPath, value: Any) -> Residuals:
        if not isinstance(value, dict):
            self.reject(path, value, "a mapping with m, n, k and percent")
        self._known(path, value, ("m", "n", "k", "percent", "long", "short"))
        m, n, k = (self._knots((*path, name), value.get(name)) for name in "mnk")
        rows = value.get("percent")
        # NaN compares with nothing.
        whole = isinstance(rows, list) and all(
            isinstance(row, list) and all(isinstance(each, int | float) and abs(each) <= 100 * LARGEST for each in row)
            for row in rows
        )  # fmt: skip
        if not whole or [len(row) for row in rows or ()] != [len(n) * len(k)] * len(m):
            self.reject(
                (*path, "percent"), rows,
                f"{len(m)} lists of {len(n) * len(k)} numbers from {-100 * LARGEST:g} to {100 * LARGEST:g}, one list "
                "for each m",
            )  # fmt: skip
        long, short = (self._number((*path, name)) for name in ("long", "short"))
        return Residuals(m, n, k, tuple(each / 100 for row in rows or () for each in row), long, short)

    def _knots(self, path: KeyPath, value: Any) -> tuple[int, ...]:
        whole = isinstance(value, list) and all(type(each) is int and 0 < each < 2**31 for each in value)
        if not whole or len(value) < 2 or sorted(set(value)) != value:
            self.reject(path, value, "at least two sizes in increasing order, e.g. [32, 1024, 65536]")
        return tuple(value)

    def layouts(self, default: Mapping[str, float]) -> dict[str, float]:
        """Return factors of layouts, 1 where there is none."""
        self._asked.add("layouts")
        given = self.given("layouts")
        self._known(("layouts",), given, LAYOUTS)
        return (
            dict.fromkeys(LAYOUTS, 1.0)
            | dict(default)
            | {name: self._number(("layouts", name)) for name in given}
        )

    def record(self, path: KeyPath, kind: type[T], default: T | None) -> T:
        """Return a dataclass of constants; what is absent is that of `default`, or of the class."""
        value = self._get(path, None)
        if value is None and default is not None:
            return default
        if not isinstance(value, dict):
            self.reject(path, value, "a mapping of constants")
        fields = dataclasses.fields(kind)  # type: ignore[arg-type]
        names = [each.name for each in fields]
        self._known(path, value, names)
        found: dict[str, float] = {}
        for each in fields:
            here = (*path, each.name)
            if each.name in value:
                found[each.name] = self._constant(here)
            elif default is not None:
                found[each.name] = getattr(default, each.name)
            elif each.default is dataclasses.MISSING:
                self.reject(here, None, "a constant, which must be there")
        return kind(**found)

    def check_all_read(self) -> None:
        """Refuse a key that nothing has read."""
        self._known((), self.document.data, sorted(self._asked))
        self._known(("memory",), self.given("memory"), ("bandwidth", "capacity", "share", "cache"))

    def _constant(self, path: KeyPath) -> float:
        name = str(path[-1])
        if name == "feed":
            return self.bandwidth(path)
        if name in _TIMES:
            return self.time(path)
        return (
            self._share(path, zero=name in ("drop", "area", "overlap", "again"))
            if name in _SHARES
            else self._number(path)
        )

    def _share(self, path: KeyPath, zero: bool = False) -> float:
        found = self._parsed(path, units.parse_percent, "85 %", zero=zero)
        if found > 1:
            self.reject(path, self._get(path, None), "a share of at most 100 %")
        return found

    def _number(self, path: KeyPath, zero: bool = False) -> float:
        value = self._get(path, None)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            # The limits only catch slips of the unit.
            or not (0 if zero else 1e-9) <= value < 1e9
        ):
            self.reject(path, value, "a number above 0")
        return float(value)

    def _parsed(
        self, path: KeyPath, parse: Callable[[object], float], example: str, zero: bool = False
    ) -> float:
        value = self._get(path, None)
        try:
            found = parse(value)
        except ValueError:
            found = -1.0
        if found < 0 or (found == 0 and not zero):
            self.reject(path, value, f"a value such as {example}")
        return found

    def _get(self, path: KeyPath, default: Any) -> Any:
        self._asked.add(str(path[0]))
        value: Any = self.document.data
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return default if value is None else value

    def _known(self, path: KeyPath, given: Mapping[str, Any], names: Any) -> None:
        for key in given:
            if key not in names:
                self.reject(
                    (*path, key), given[key], f"only the keys {one_of(names)}", nearest(str(key), names)
                )
