"""Permissions that only the user can give, not a file: to start programs, and to exceed the limits.

`armillary.base.reading`, `armillary.base.memory` and `armillary.base.counts` state the limits. All of them are
multiplied by one factor: ``ARMILLARY_LIMITS=4``, ``armillary --limits 4``, or `allow` in Python.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from armillary.base.errors import InputError

FACTOR = "ARMILLARY_LIMITS"
"""Environment variable: how many times the limits are."""


class Allowed(NamedTuple):
    """The permissions of this thread; a run passes them to its workers.

    Attributes:
        programs: Whether files may start any program.
        listed: Programs that files may start in any case, see `armillary.base.programs`; None: those of the user's
            configuration here.
        factor: Factor on the limits; None: that of the environment.
    """

    programs: bool = False
    listed: tuple[str, ...] | None = None
    factor: float | None = None


# Not a global: what one thread allows is no other's business.
_now: ContextVar[Allowed] = ContextVar("allowed", default=Allowed())  # noqa: B039  a tuple


def allowed() -> Allowed:
    """Return what is allowed now."""
    return _now.get()


@contextmanager
def allow(*, programs: bool | None = None, limits: float | None = None) -> Iterator[None]:
    """Give permissions that files cannot give themselves, for the duration of the context.

    Args:
        programs: Files may start programs, as ``compute: {model: subprocess}`` does; None keeps the current setting.
        limits: Factor on the limits of what is read and generated; None keeps the current factor.

    Raises:
        InputError: `limits` is no number above 0.
    """
    now = _now.get()
    if programs is not None:
        now = now._replace(programs=programs)
    if limits is not None:
        now = now._replace(factor=_factor(limits, "limits"))
    with allowing(now):
        yield


@contextmanager
def allowing(what: Allowed) -> Iterator[None]:
    """Set exactly these permissions, which another process has sent, for the duration of the context."""
    token = _now.set(what)
    try:
        yield
    finally:
        _now.reset(token)


def set_allowed(what: Allowed) -> None:
    """Set exactly these permissions from now on, for processes that do nothing else."""
    _now.set(what)


def factor() -> float:
    """Return the factor on the limits.

    Raises:
        InputError: the environment variable is no number above 0.
    """
    given = _now.get().factor
    if given is not None:
        return given
    text = os.environ.get(FACTOR)
    return 1.0 if not text else _factor(text, FACTOR)


def _factor(value: object, name: str) -> float:
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = math.nan
    # Infinity is a choice: no limits.
    if not found > 0:
        raise InputError(f"{name}: got {value!r:.60}, expected a number above 0 that multiplies the limits")
    return found


def limit(most: float) -> float:
    """Return a limit times the factor, which may be infinite."""
    return most * factor()


def how_to_raise(needed: float) -> str:
    """Return how to raise the limits by the factor `needed`, as the end of a message."""
    times = factor() * max(needed, 1) * 1.01
    shown = f"{math.ceil(times * 10) / 10:g}" if times < 10 else f"{math.ceil(times)}"
    return f"{FACTOR}={shown} raises all limits"
