"""Permissions that only the user can give, not a file: to start programs, and to exceed the limits.

This module limits memory (`require`): work that needs more than there is, is refused before it begins.
`armillary.base.reading` and `armillary.base.counts` state the other limits. All of them are multiplied by one factor:
``ARMILLARY_LIMITS=4``, ``armillary --limits 4``, or `allow` in Python.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from armillary.base.errors import InputError, ShortageError
from armillary.base.units import format_bytes

FACTOR = "ARMILLARY_LIMITS"
"""Environment variable: how many times the limits are."""
MOST_MEMORY = 8e9
"""Bytes that work may take by its estimate, however much there is."""
SIMULATED = 1200
"""Bytes that a node of a simulated rank takes at the peak: 1,130 measured for steps of Llama 2 7B, physical, folded."""
_UNLIMITED = 1 << 62
SMALL = 1 << 26
"""Bytes that are never refused: to ask takes longer than to use them."""


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


def available() -> int:
    """Return the bytes that this process can still allocate: free memory within its limits.

    Limits are those of its control group (a container, a Slurm job) and ``ulimit -v``. If the system does not report
    any, the result is very large.
    """
    return max(min(_free(), _of_group(), _of_process()), 0)


def require(size: float, what: str, change: str) -> None:
    """Refuse work that needs more memory than available, or more than `MOST_MEMORY`.

    Args:
        size: Bytes that it needs.
        what: What needs them: "the trace has 10000000 nodes, whose simulation".
        change: What to do about it: "fewer ranks, or fewer nodes".

    Raises:
        ShortageError: there is less.
    """
    if size < SMALL:
        return
    there = available()
    most = min(limit(MOST_MEMORY), limit(there))
    if size > most:
        why = (
            f"there are {format_bytes(there)}"
            if there < limit(MOST_MEMORY)
            else f"at most {format_bytes(most)} are allowed"
        )
        raise ShortageError(
            f"{what} takes about {format_bytes(size)} of memory, and {why}; expected {change} "
            f"({how_to_raise(size / max(most, 1))})"
        )


def _free() -> int:
    with suppress(OSError, AttributeError, TypeError):
        # What the kernel can give without swapping, caches included.
        if found := re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text("ascii")):
            return int(found[1]) * 1024
    with suppress(OSError, AttributeError, ValueError):
        # Without /proc: all there is, as what is free is not known in one call.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _UNLIMITED


def _of_group() -> int:
    """Return what the control groups of this process leave it, of version 2 or 1."""
    if not sys.platform.startswith("linux"):
        return _UNLIMITED
    left = _UNLIMITED
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers in ("", "memory"):
                root = Path("/sys/fs/cgroup") / controllers
                names = ("memory.max", "memory.current") if not controllers else (
                    "memory.limit_in_bytes", "memory.usage_in_bytes"
                )  # fmt: skip
                # A group has the limits of all around it; in a container only the root may be there.
                group = root / name.lstrip("/")
                for folder in (group, *group.parents):
                    left = min(left, left_in_group(folder, *names))
                    if folder == root:
                        break
    return left


def left_in_group(folder: Path, most: str, used: str) -> int:
    """Return the bytes that a control group leaves, by the names of its files."""
    try:
        text = (folder / most).read_text("ascii").strip()
        if text == "max":
            return _UNLIMITED
        taken = int((folder / used).read_text("ascii"))
        # Caches of files count as used, and are given back when memory is short.
        stat = (folder / "memory.stat").read_text("ascii")
        cached = sum(int(found) for found in re.findall(r"^(?:in)?active_file (\d+)", stat, re.M))
        return int(text) - max(taken - cached, 0)
    except (OSError, ValueError):
        return _UNLIMITED


def _of_process() -> int:
    """Return what ``ulimit -v`` leaves."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return _UNLIMITED
    with suppress(OSError, ValueError):
        return most - int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    return most
