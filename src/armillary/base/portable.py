"""Elementary functions and sums that give the same bits on every machine.

IEEE 754 fixes +, −, ×, ÷ and the square root. It does not fix exp, log and powers: NumPy picks one of several variants
by the processor (with AVX-512 or without), and so does the C library (with fused multiply-add or without), and these
differ in the last bit. A last bit can be another tick. So whatever ends in ticks or in reports takes these functions,
which consist of fixed operations only. The same goes for products of float matrices, which a BLAS sums up in an order
of its own (`dot`), for least squares, and for the built-in `sum` of floats, which compensates for rounding since Python
3.12 and did not before (`math.fsum`).

Logarithms are kept as the sum of two floats, after Dekker ("A floating-point technique for extending the available
precision", 1971). Errors are below 0.6 units in the last place (`expm1`: 0.9), of `power` as long as its result is
between 1e-9 and 1e9; a test compares with decimal arithmetic.
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# As in fdlibm: the upper part has 21 zero bits at its end, so that its product with an exponent is exact.
_LN2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_PER_LN2 = 1.4426950408889634, 2.0355273740931033e-17
_SPLITTER = 134217729.0
"""2^27 + 1: halves a float into two of 26 bits, whose products are exact."""
_ATANH = tuple(1 / (2 * k + 1) for k in range(1, 14))
"""atanh(s) / s = 1 + s²/3 + s⁴/5 + …; |s| <= 0.1716, so that what is left out is below 2^-70."""
_EXP = tuple(1 / math.factorial(k) for k in range(2, 15))
"""e^r = 1 + r + r²/2 + …; |r| <= 0.347, so that what is left out is below 2^-60."""
_FAR = 800.0
"""e to this power is beyond float64, in both directions."""
_PASSES = 30


@overload
def exp(x: float) -> float: ...
@overload
def exp(x: Floats) -> Floats: ...
def exp(x: Any) -> Any:
    """Return e^x of a float, or of each of an array."""
    high, low, scale = _exp(_near(x), 0.0)
    return _scaled(high + low, scale)


@overload
def expm1(x: float) -> float: ...
@overload
def expm1(x: Floats) -> Floats: ...
def expm1(x: Any) -> Any:
    """Return e^x - 1 with all its digits where x is small."""
    near = _near(x)
    high, low, scale = _exp(near, 0.0)
    # Where nothing is scaled, 1 is taken away before the sum is rounded.
    small = _less_one(near, 0.0)
    return _where(_is_zero(scale), small, _scaled(high, scale) - 1 + _scaled(low, scale))


@overload
def log(x: float) -> float: ...
@overload
def log(x: Floats) -> Floats: ...
def log(x: Any) -> Any:
    """Return the natural logarithm of what is positive; -inf of 0."""
    high, low = _log(*_parts(x))
    return _ends(x, high + low)


@overload
def log2(x: float) -> float: ...
@overload
def log2(x: Floats) -> Floats: ...
def log2(x: Any) -> Any:
    """Return the logarithm to base 2 of what is positive, exact for powers of 2; -inf of 0."""
    mantissa, exponent = _parts(x)
    high, low = _log(mantissa, 0.0 * exponent)
    product, rest = _product(high, _PER_LN2[0])
    total, lost = _sum(exponent, product)
    return _ends(x, total + (lost + rest + high * _PER_LN2[1] + low * _PER_LN2[0]))


@overload
def power(x: float, y: float) -> float: ...
@overload
def power(x: Floats, y: float) -> Floats: ...
def power(x: Any, y: float) -> Any:
    """Return x^y of what is not negative, or of each of an array; exact where y is 1, 2 or 0.5."""
    if y == 1:
        return x + 0.0
    if y == 2:
        return x * x
    if y == 0.5:
        return np.sqrt(x) if isinstance(x, np.ndarray) else math.sqrt(x)
    if y == 0:
        return x * 0.0 + 1.0
    # log(0) does as well as any: the result is replaced.
    high, low = _log(*_parts(x))
    product, rest = _product(_clipped(high, _FAR / abs(y)), y)
    high, low, scale = _exp(product, rest + low * y)
    found = _scaled(high + low, scale)
    at_zero, at_infinity = (0.0, math.inf) if y > 0 else (math.inf, 0.0)
    return _where(_is_zero(x), at_zero, _where(_is_infinite(x), at_infinity, found))


@overload
def hypot(x: float, *others: float) -> float: ...
@overload
def hypot(x: Floats, *others: Floats) -> Floats: ...
def hypot(x: Any, *others: Any) -> Any:
    """Return the root of the sum of squares, which must not leave the range of float64."""
    squares = x * x
    for other in others:
        squares = squares + other * other
    return np.sqrt(squares) if isinstance(squares, np.ndarray) else math.sqrt(squares)


def dot(left: NDArray[Any], right: NDArray[Any]) -> Any:
    """Return ``left @ right``, summed up in the order of NumPy's own sums instead of that of a BLAS."""
    if right.ndim == 1:
        return (left * right).sum(axis=-1)
    return (left[..., :, None] * right).sum(axis=-2)


def least_squares(matrix: Floats, right: Floats, least: float) -> Floats:
    """Return the shortest x that minimises the norm of ``matrix @ x - right``, as `numpy.linalg.lstsq` does.

    Columns are turned in pairs until all are orthogonal (one-sided Jacobi; Hestenes, 1958). Their lengths are then the
    singular values; those below `least` times the largest count as 0.
    """
    rows, turns = matrix.T.copy(), np.eye(matrix.shape[1])
    # Each pass squares what is left of the angles: a handful is enough.
    for _ in range(_PASSES):
        turned = False
        for a in range(len(rows)):
            for b in range(a + 1, len(rows)):
                aa, bb, ab = (float((rows[i] * rows[j]).sum()) for i, j in ((a, a), (b, b), (a, b)))
                if abs(ab) <= 1e-15 * math.sqrt(aa * bb):
                    continue
                ratio = (bb - aa) / (2 * ab)
                tangent = (1 if ratio >= 0 else -1) / (abs(ratio) + math.sqrt(1 + ratio * ratio))
                cosine = 1 / math.sqrt(1 + tangent * tangent)
                for both in (rows, turns):
                    one, other = both[a].copy(), both[b].copy()
                    both[a], both[b] = cosine * (one - tangent * other), cosine * (other + tangent * one)
                turned = True
        if not turned:
            break
    squares = (rows * rows).sum(axis=1)
    found = np.zeros(len(rows))
    for row, turn, square in zip(rows, turns, squares.tolist(), strict=True):
        if square > least * least * squares.max():
            found += turn * (float((row * right).sum()) / square)
    return found


# Below, each function takes floats or arrays.


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b, rounded, and what the rounding took away (Knuth)."""
    whole = a + b
    of_b = whole - a
    return whole, (a - (whole - of_b)) + (b - of_b)


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a × b, rounded, and what the rounding took away (Dekker)."""
    whole = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return whole, ((a_high * b_high - whole) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Any) -> tuple[Any, Any]:
    far = a * _SPLITTER
    high = far - (far - a)
    return high, a - high


def _parts(x: Any) -> tuple[Any, Any]:
    """Return (mantissa between the roots of 1/2 and 2, exponent)."""
    if isinstance(x, np.ndarray):
        mantissa, exponent = np.frexp(np.where((x > 0) & (x < math.inf), x, 1.0))
        low = mantissa < math.sqrt(0.5)
        return np.where(low, 2 * mantissa, mantissa), (exponent - low).astype(np.float64)
    if not x >= 0:
        raise ValueError("expected a number that is not negative")
    one, power_of_2 = math.frexp(x if 0 < x < math.inf else 1.0)
    return (2 * one, power_of_2 - 1.0) if one < math.sqrt(0.5) else (one, float(power_of_2))


def _log(mantissa: Any, exponent: Any) -> tuple[Any, Any]:
    """Return the logarithm of mantissa × 2^exponent as a sum of two."""
    below, lost = _sum(mantissa, 1.0)
    above = mantissa - 1.0
    s = above / below
    whole, rest = _product(s, below)
    s_low = ((above - whole) - rest - s * lost) / below
    z = s * s
    series = z * 0.0
    for factor in reversed(_ATANH):
        series = (series + factor) * z
    high, low = _sum(2 * s, 2 * (s_low + s * series))
    high, lost = _sum(exponent * _LN2[0], high)
    return _sum(high, lost + (low + exponent * _LN2[1]))


def _reduced(high: Any, low: Any) -> tuple[Any, Any, Any]:
    """Return what is left, as a sum of two, and how many times ln 2 was taken away."""
    times = np.rint(high * _PER_LN2[0]) if isinstance(high, np.ndarray) else float(round(high * _PER_LN2[0]))
    rest, lost = _sum(high, -times * _LN2[0])
    rest, low = _sum(rest, (lost + low) - times * _LN2[1])
    return rest, low, times


def _less_one(high: Any, low: Any) -> Any:
    rest, low, _ = _reduced(high, low)
    return rest + (_tail(rest) + (low + low * rest))


def _exp(high: Any, low: Any) -> tuple[Any, Any, Any]:
    """Return e^(high + low) as (a sum of two) × 2^the third."""
    rest, low, times = _reduced(high, low)
    head, lost = _sum(1.0, rest)
    whole, more = _sum(head, _tail(rest) + (low + low * rest))
    return whole, more + lost, times


def _tail(rest: Any) -> Any:
    """Return e^rest - 1 - rest."""
    series = rest * 0.0
    for factor in reversed(_EXP):
        series = (series + factor) * rest
    return series * rest


def _near(x: Any) -> Any:
    return _clipped(x, _FAR)


def _clipped(x: Any, most: float) -> Any:
    # `minimum` and `maximum` let NaN pass, as `exp` does.
    return np.minimum(np.maximum(x, -most), most) if isinstance(x, np.ndarray) else min(max(x, -most), most)


def _scaled(x: Any, times: Any) -> Any:
    if isinstance(x, np.ndarray):
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(x, np.nan_to_num(times).astype(np.int32))
    try:
        return math.ldexp(x, int(times))
    except OverflowError:
        return math.inf


def _where(which: Any, yes: Any, no: Any) -> Any:
    return np.where(which, yes, no) if isinstance(which, np.ndarray) else (yes if which else no)


def _is_zero(x: Any) -> Any:
    return x == 0


def _is_infinite(x: Any) -> Any:
    return x == math.inf


def _ends(x: Any, found: Any) -> Any:
    """Return `found`, but -inf where x is 0, inf where it is infinite, and NaN where it has no logarithm."""
    if isinstance(x, np.ndarray):
        found = np.where(x == 0, -math.inf, np.where(x == math.inf, math.inf, found))
        return np.where(x >= 0, found, math.nan)
    return -math.inf if x == 0 else math.inf if x == math.inf else found
