"""Fit the constants of a GPU's GEMMs to measured ones.

Of all GEMMs a fifth is held out by a hash of its sizes, whatever the file: the constants that come with the package
have not seen it either. Least squares of the logarithm of predicted over measured time, in which outliers count less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.compute.gpu.device import GemmFit, Gpu
from armillary.compute.gpu.gemm import LOOPED, gemm_seconds
from armillary.compute.gpu.residuals import Residuals
from armillary.compute.model import Floats, Ints
from armillary.compute.table_file import Measured, read_table
from armillary.evidence.calibrate.priors import told
from armillary.evidence.calibrate.residuals import fit_residuals

LEAST_NS = 20_000.0
"""Least time of long GEMMs, whose errors are stated apart: of shorter ones launch and latency are a large part."""
WEIGHT = 2.0
"""Weight of long GEMMs in a fit over that of short ones: training spends its time in long ones."""
MOST = 2000
"""Most GEMMs that a fit uses; more change little."""
FEWEST = 40
"""Fewest GEMMs from which a dozen constants can be told."""
# The order is that of the vector that least squares moves.
_FITTED = (
    "rate", "feed", "step", "tile", "launch", "memory", "sharp", "drop", "after", "split", "area", "overlap", "cached",
    "ramp",
)  # fmt: skip
_CAST = ("cast", "cast_memory")
_VECTOR = ("vector", "vector_step")
# Fitted to bf16, and taken from there by other precisions.
_SHARED = ("area", "overlap", "cached")
# Where operands are read again (`again`), clocks are those of bf16: alone they would take the blame for those reads, as
# in NVFP4 on a B200, whose `drop` ran to its bound, with the same errors. Those kernels are of another library, whose
# memory has a `ramp` of its own: with that of bf16 8.4 % were held out, with its own 8.0 %.
_CLOCKS = ("drop", "after")
_RAMP = ("ramp",)
# Below these a constant would switch its term off, and its slope with it.
LOWEST = {"sharp": 1.5, "drop": 0.005, "after": 1e-4, "area": 0.01, "overlap": 0.01, "cached": 1.0}
HIGHEST = {
    "rate": 1.0, "memory": 1.0, "cast_memory": 1.0, "drop": 0.6, "after": 0.1, "sharp": 12.0, "area": 1.0,
    "overlap": 1.0, "cached": 10.0,
}  # fmt: skip
"""Largest values of constants that a fit bounds; `LOWEST`: the least. A file says why one stands there (``bounds``)."""
# Where constants are held back, and how firmly, relative to one row that is off by 5 %: shares near 1 would otherwise
# run into their bound where another constant (`drop`, `tile`) takes the rest.
_HELD_BACK = {"rate": (0.95, 2000.0), "overlap": (0.8, 100.0)}
_FEED = 10.0
"""Firmness of `feed`, which is expected to be that of bf16."""
WIDTHS = {
    "rate": 0.1, "feed": 1.2, "step": 0.8, "tile": 0.8, "launch": 0.7, "memory": 0.1, "sharp": 0.3, "drop": 0.1,
    "after": 2.2, "split": 0.1, "area": 0.15, "overlap": 0.3, "cached": 0.15, "ramp": 0.5,
}  # fmt: skip
"""Standard deviation of the logarithm of a constant among A100, H100 and B200, at least 0.1: how far the device of few
GEMMs is expected to be from the one that it is like."""
_ROUNDS = 18
# Rounds of least squares; later ones change errors by less than 0.05 %.
_SLOPE = 1e-2
# Step in the logarithm of a constant to see what it does.
_NEAR = 1e-3
# Logarithm by which a constant is away from its bounds, else it is at one.
_SOFT = 0.05
"""Relative error beyond which a row has less weight (soft L1)."""


@dataclass(frozen=True)
class Errors:
    """How far predicted times of GEMMs are off.

    Attributes:
        count: GEMMs.
        mean: Mean absolute relative error; nan of none.
        worst: That nine of ten stay below.
        spread: Root of the mean square of ln(measured / predicted).
    """

    count: int
    mean: float
    worst: float
    spread: float = float("nan")


@dataclass(frozen=True)
class Fitted:
    """Constants of one precision.

    Attributes:
        fit: The constants.
        rows: GEMMs measured.
        inside: Errors of those of `LEAST_NS` and more that were fitted to.
        outside: Errors of those that were held out.
        groups: What was left out -> errors of it, by constants fitted to the rest.
        short: Errors of shorter ones that were held out.
        residuals: What GEMMs take besides, by size; None: too few to tell. Errors are those with them.
        before: Errors of those that were held out without residuals: of `LEAST_NS` and more, and of shorter ones.
    """

    fit: GemmFit
    rows: int
    inside: Errors
    outside: Errors
    groups: Mapping[str, Errors]
    short: Errors = Errors(0, float("nan"), float("nan"))
    residuals: Residuals | None = None
    before: tuple[Errors, ...] = ()


def held_out(sizes: Ints) -> NDArray[np.bool_]:
    """Return (GEMMs) which of the (GEMMs, 3) m, n and k are held out of all fits: a fifth, by a hash."""
    # The sizes are mixed by primes of spatial hashing (Teschner et al., VMV 2003), so that no pattern in m,
    # n, k is left out.
    mixed = sizes[:, 0] * 73_856_093 ^ sizes[:, 1] * 19_349_663 ^ sizes[:, 2] * 83_492_791
    # >> 5: sizes are multiples of powers of two, so that the low bits carry nothing.
    found: NDArray[np.bool_] = (mixed >> 5) % 5 == 0
    return found


def read_gemms(
    paths: list[Path], columns: Mapping[str, str], unit_ns: float, precision: str
) -> tuple[dict[str, Measured], list[str]]:
    """Return the GEMMs of all files by precision, and notes; see `read_table`.

    Raises:
        InputError: a file is missing or malformed.
    """
    parts: dict[str, list[Measured]] = {}
    notes: list[str] = []
    for path in paths:
        found, said = read_table(path, columns, unit_ns, precision)
        notes += said
        for name, measured in found.items():
            parts.setdefault(name, []).append(measured)
    # One table per precision, over all files.
    return {
        name: Measured(
            np.concatenate([each.sizes for each in own]), np.concatenate([each.ns for each in own])
        )
        for name, own in parts.items()
    }, notes


def predicted_ns(
    gpu: Gpu,
    precision: str,
    sizes: Ints,
    fit: GemmFit | None = None,
    loaded: NDArray[np.bool_] | None = None,
    residuals: Residuals | None = None,
) -> Floats:
    """Return (GEMMs) ns of single GEMMs.

    Args:
        gpu: The device.
        precision: Of the GEMMs.
        sizes: (GEMMs, 3) m, n and k.
        fit: Constants other than those of `gpu`.
        loaded: (GEMMs) whether each ran in a step, with weights of its own and under the limit of the power; absent:
            all were measured in a loop.
        residuals: Of those that were measured in a loop.
    """
    # A fourth column: calls, 1 each.
    four = np.column_stack([sizes, np.ones(len(sizes))]).astype(float)
    if loaded is None or not loaded.any():
        return gemm_seconds(gpu, precision, four, fit=fit, copies=LOOPED, residuals=residuals)[0] * 1e9
    found = np.zeros(len(sizes))
    found[~loaded] = gemm_seconds(gpu, precision, four[~loaded], fit=fit, copies=LOOPED)[0]
    found[loaded] = gemm_seconds(gpu, precision, four[loaded], fit=fit, power=gpu.power)[0]
    return found * 1e9


def errors(
    gpu: Gpu,
    precision: str,
    measured: Measured,
    fit: GemmFit,
    which: NDArray[np.bool_],
    *,
    short: bool = False,
    residuals: Residuals | None = None,
) -> Errors:
    """Return the errors of some of the GEMMs: of those of `LEAST_NS` and more, or of the `short` ones."""
    which = which & ((measured.ns < LEAST_NS) if short else (measured.ns >= LEAST_NS))
    if not which.any():
        return Errors(0, float("nan"), float("nan"))
    ratio = predicted_ns(gpu, precision, measured.sizes[which], fit, None, residuals) / measured.ns[which]
    off = np.abs(ratio - 1)
    spread = float(np.sqrt(np.mean(np.log(ratio) ** 2)))
    return Errors(int(which.sum()), float(off.mean()), float(np.quantile(off, 0.9)), spread)


def calibrate(
    gpu: Gpu,
    precision: str,
    measured: Measured,
    *,
    leave_out: bool = False,
    keep: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Fitted:
    """Fit constants and residuals.

    Args:
        gpu: Whose data sheet and tiles hold, and from whose constants the search starts.
        precision: Of the GEMMs.
        measured: The GEMMs.
        leave_out: Whether to fit again and again without a third of all m, and of all pairs of n and k.
        keep: Whether constants stay those of `gpu`, and only residuals are fitted.
        progress: Called with what is fitted next.

    Raises:
        InputError: the device has no peak of that precision, or there are too few GEMMs.
    """
    # Without a peak there is no roof from which shares could be taken.
    if precision not in gpu.peaks:
        raise InputError(
            f"device {gpu.name} has no peak of {precision}, in which there are {len(measured.ns)} GEMMs"
        )
    held = held_out(measured.sizes)
    # GEMMs that the fit will see: of the held-out rest only errors are taken.
    enough = int((~held).sum())
    if enough < FEWEST:
        raise InputError(
            f"{enough} GEMMs in {precision} are not held out, expected {FEWEST} at least to fit {len(_FITTED)} "
            "constants"
        )
    tell = progress or (lambda what: None)
    tell(f"{precision}: {enough} GEMMs")

    def fitted_to(which: NDArray[np.bool_]) -> tuple[GemmFit, Residuals | None]:
        fit = gpu.gemm_fit(precision) if keep else _fit(gpu, precision, measured, which)
        sizes, ns = measured.sizes[which], predicted_ns(gpu, precision, measured.sizes[which], fit)
        return fit, fit_residuals(sizes, np.log(measured.ns[which] / ns), ns)

    fit, residuals = fitted_to(~held)
    groups: dict[str, list[Errors]] = {}
    if leave_out:
        for name, out in _folds(measured.sizes):
            # Constants from two thirds, errors on the third that was left out.
            tell(f"{precision}: without some {name}")
            other, besides = fitted_to(~out)
            groups.setdefault(name, []).append(
                errors(gpu, precision, measured, other, out, residuals=besides)
            )
    inside, outside = (
        errors(gpu, precision, measured, fit, which, residuals=residuals) for which in (~held, held)
    )
    short = errors(gpu, precision, measured, fit, held, short=True, residuals=residuals)
    before = [errors(gpu, precision, measured, fit, held, short=each) for each in (False, True) if residuals]
    together = {name: _mean(found) for name, found in groups.items()}
    return Fitted(fit, len(measured.ns), inside, outside, together, short, residuals, tuple(before))


def _folds(sizes: Ints) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    # n and k together: a weight matrix is left out with all its batch sizes.
    pairs = sizes[:, 1] * 31 + sizes[:, 2]
    for name, key in (("m", sizes[:, 0]), ("pairs of n and k", pairs)):
        # Position in sorted order: every third value is left out, so that gaps are spread.
        place = np.unique(key, return_inverse=True)[1]
        for third in range(3):
            yield name, place % 3 == third


def _mean(found: list[Errors]) -> Errors:
    count = sum(each.count for each in found)
    return Errors(
        count,
        # Weighted by rows; the worst of all folds is the worst.
        sum(each.count * each.mean for each in found) / max(count, 1),
        max(each.worst for each in found),
        float(np.sqrt(sum(each.count * each.spread**2 for each in found) / max(count, 1))),
    )


def few(
    gpu: Gpu,
    precision: str,
    measured: Measured,
    loaded: NDArray[np.bool_] | None = None,
    widths: Mapping[str, float] = WIDTHS,
) -> tuple[GemmFit, tuple[str, ...]]:
    """Return constants that GEMMs of any number decide as far as they can, and the names of those that they do.

    Each is drawn to that of `gpu`; at most half as many as GEMMs move, those that the GEMMs tell most. One that would
    end at a bound, where something else takes its part, stays where it was.

    Args:
        gpu: The device that the measured one is like.
        precision: Of the GEMMs.
        measured: The GEMMs.
        loaded: See `predicted_ns`.
        widths: How far constants are expected to be from those of `gpu`, as logarithms.
    """
    start = gpu.gemm_fit(precision)
    names = [name for name in widths if getattr(start, name) > 0]
    base = np.log(predicted_ns(gpu, precision, measured.sizes, start, loaded))
    moved = (dataclasses.replace(start, **{name: getattr(start, name) * np.exp(_SLOPE)}) for name in names)
    slopes = [
        (np.log(predicted_ns(gpu, precision, measured.sizes, each, loaded)) - base) / _SLOPE * widths[name]
        for name, each in zip(names, moved, strict=True)
    ]
    free = tuple(names[at] for at in told(np.array(slopes).T, len(measured.ns)).tolist())
    while free:
        found = _fit(gpu, precision, measured, np.ones(len(measured.ns), bool), free, widths, loaded)
        low, high = _bounds(free, start)
        at = np.log([getattr(found, name) for name in free])
        inside = (at > low + _NEAR) & (at < high - _NEAR)
        if inside.all():
            return found, free
        free = tuple(name for name, holds in zip(free, inside.tolist(), strict=True) if holds)
    return start, ()


def _bounds(names: Sequence[str], start: GemmFit) -> tuple[Floats, Floats]:
    """Return the least and largest logarithms of constants."""
    # 1e-12: a constant of 0 has no logarithm.
    first = [max(getattr(start, name), 1e-12) for name in names]
    low = np.log([LOWEST.get(name, value / 20) for name, value in zip(names, first, strict=True)])
    high = np.log([HIGHEST.get(name, value * 20) for name, value in zip(names, first, strict=True)])
    return low, high


def _fit(
    gpu: Gpu,
    precision: str,
    measured: Measured,
    which: NDArray[np.bool_],
    free: Sequence[str] = (),
    widths: Mapping[str, float] | None = None,
    loaded: NDArray[np.bool_] | None = None,
) -> GemmFit:
    """Return the constants that fit best; with `free` only these move, drawn to where they start by `widths`."""
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise InputError(
            "fitting needs scipy, which is not installed: pip install armillary[calibrate]"
        ) from error
    start = gpu.gemm_fit(precision)
    names = tuple(free) or (*_FITTED, *(_CAST if start.cast else ()), *(_VECTOR if start.vector else ()))
    if precision != "bf16" and not free:
        # What a tile hides and where operands lie has little to do with their precision.
        same = (*_SHARED, *(_CLOCKS if start.again else _RAMP))
        shared = {name: getattr(gpu.gemm_fit("bf16"), name) for name in same}
        start, names = (
            dataclasses.replace(start, **shared),
            tuple(each for each in names if each not in same),
        )
    mine = np.flatnonzero(which)
    # Knuth's multiplicative hash: the same rows in every run, from all over the file.
    order = np.argsort((mine * 2_654_435_761) % 2**32, kind="stable")
    mine = mine[order[:MOST]]
    sizes, target = measured.sizes[mine], np.log(measured.ns[mine])
    under = None if loaded is None else loaded[mine]
    # Least squares of weighted residuals: a row of weight 2 counts twice.
    weight = np.sqrt(np.where(measured.ns[mine] >= LEAST_NS, WEIGHT, 1.0))
    held_back = [(place, *_HELD_BACK[name]) for place, name in enumerate(names) if name in _HELD_BACK]
    feed = None if precision == "bf16" or free else np.log(gpu.gemm_fit("bf16").feed)
    expected = np.array([widths[name] for name in names]) if widths else None

    def constants(at: Floats) -> GemmFit:
        return dataclasses.replace(start, **dict(zip(names, np.exp(at).tolist(), strict=True)))

    def off(at: Floats) -> Floats:
        rows = (np.log(predicted_ns(gpu, precision, sizes, constants(at), under)) - target) * weight
        firm = [
            _SOFT * strength * max(0.0, at[place] - np.log(value)) for place, value, strength in held_back
        ]
        if feed is not None:
            firm.append(_SOFT * _FEED * (at[names.index("feed")] - feed))
        drawn = np.zeros(0) if expected is None else _SOFT * (at - np.log(first)) / expected
        result: Floats = np.concatenate([rows, firm, drawn])
        return result

    # 1e-12: a constant of 0 has no logarithm.
    first = np.array([max(getattr(start, name), 1e-12) for name in names])
    low, high = _bounds(names, start)
    # The best tile changes in jumps, so that small steps see no slope.
    found: Any = least_squares(
        off, np.clip(np.log(first), low + 1e-6, high - 1e-6), bounds=(low, high), loss="soft_l1", f_scale=_SOFT,
        # diff_step, see above.
        diff_step=_SLOPE, x_scale=0.2, max_nfev=_ROUNDS,
    )  # fmt: skip
    return constants(found.x)
