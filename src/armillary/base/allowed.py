"""Permissions that only the user can give, not a file: to start programs, and to exceed the limits.

This module limits memory (`require`): work that needs more than there is, is refused before it begins. It limits time,
too (`Pace`). A file of a few hundred bytes can ask for hours: a collective of thousands of NPUs whose messages share
links, or routes between all of them. How many events that are is known before; how long one takes depends on how many
messages meet, and is known only while it runs. So loops tell a `Pace` how far they are. It tells whoever listens, and
ends work at the limit, or as soon as its own pace forecasts twice that. The limit is on processor time, because other
work on the machine is no fault of the file. `armillary.base.reading` and `armillary.base.counts` state the other
limits. All of them are multiplied by one factor:
``ARMILLARY_LIMITS=4``, ``armillary --limits 4``, or `allow` in Python.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

from armillary.base.errors import InputError, ShortageError
from armillary.base.units import format_bytes, format_count

FACTOR = "ARMILLARY_LIMITS"
"""Environment variable: how many times the limits are."""
MOST_MEMORY = 8e9
"""Bytes that work may take by its estimate, however much there is."""
SIMULATED = 1200
"""Bytes that a node of a simulated rank takes at the peak: 1,130 measured for steps of Llama 2 7B, physical, folded."""
_UNLIMITED = 1 << 62
SMALL = 1 << 26
"""Bytes that are never refused: to ask takes longer than to use them."""
MOST_SECONDS = 2400.0
"""Seconds of processor time that one simulation may take, and the search for its routes: 40 minutes."""
FIRST_WORD, NEXT_WORD = 2.0, 1.0
"""Seconds before it is said how far the work is, and between two such words."""
SURE = 30.0
"""Seconds of work after which its pace is believed."""
DOUBT = 2.0
"""Work is ended early where its pace forecasts so many times the limit, since estimates are rough."""
FIRST_SLICE, LEAST_SLICE = 1 << 15, 64
LONG_SLICE = 0.5
"""Seconds that compiled code may run between two looks at the clock, about: until then no interrupt is seen either."""

Tell = Callable[[str], None]
_listener: ContextVar[Tell | None] = ContextVar("listener", default=None)


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


@contextmanager
def listening(tell: Tell | None) -> Iterator[None]:
    """Have it told how far long work is, or None: nobody listens, for the duration of the context."""
    token = _listener.set(tell)
    try:
        yield
    finally:
        _listener.reset(token)


class _Aside(threading.local):
    seconds = begun = 0.0
    depth = 0


_aside = _Aside()
"""Processor time of a thread that is not of its work, and how far in compilations it is."""


@cache
def leave_out_compiler() -> None:
    """Leave Numba's processor time out of the pace of all work: a first call of a kernel compiles it."""
    from numba.core import event

    class Compiler(event.Listener):
        def on_start(self, event: object) -> None:
            if not _aside.depth:
                _aside.begun = time.thread_time()
            _aside.depth += 1

        def on_end(self, event: object) -> None:
            _aside.depth -= 1
            if not _aside.depth:
                _aside.seconds += time.thread_time() - _aside.begun

    event.register("numba:compile", Compiler())  # type: ignore[no-untyped-call]


def _clock() -> float:
    return time.thread_time() - _aside.seconds


class Pace:
    """How far one piece of work is."""

    def __init__(self, what: str, total: float, unit: str, change: str) -> None:
        """Begin.

        Args:
            what: The work, for texts: "network model flow".
            total: How many steps it has, by an estimate.
            unit: What these are: "events".
            change: What would make it shorter.
        """
        self._what, self._total, self._unit, self._change = what, total, unit, change
        self._begun = self._looked = _clock()
        self._word = FIRST_WORD
        self._slice = FIRST_SLICE

    def slice(self, most: int) -> int:
        """Return how many steps to take before `at` is called again."""
        return min(most, self._slice)

    def at(self, done: int) -> None:
        """Note that so many steps are done.

        Raises:
            InputError: the work takes too long.
        """
        now = _clock()
        took, self._looked = now - self._looked, now
        # Steps of one kind of work differ by a factor of a thousand, from place to place.
        if took < LONG_SLICE / 2:
            self._slice = min(2 * self._slice, 1 << 40)
        elif took > 2 * LONG_SLICE:
            self._slice = max(self._slice // 4, LEAST_SLICE)
        spent = now - self._begun
        if spent < self._word:
            return
        self._word = spent + NEXT_WORD
        whole = spent * max(self._total / max(done, 1), 1.0)
        most = limit(MOST_SECONDS)
        if spent > most or (spent > SURE and whole > DOUBT * most):
            raise InputError(
                f"{self._what}: {'about ' if whole > spent else ''}{_shown(whole)} of processor time by its pace "
                f"({self._far(done)} took {_shown(spent)}), expected at most {_shown(most)}: {self._change} "
                f"({how_to_raise(max(whole, 1.5 * spent) / most)})"
            )
        if tell := _listener.get():
            tell(f"{self._what}: {self._far(done)} after {_shown(spent)}, about {_shown(whole - spent)} more")

    def _far(self, done: int) -> str:
        of = f"{format_count(done)} of " if done < self._total else ""
        return f"{of}about {format_count(int(max(self._total, done)))} {self._unit}"


def _shown(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


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
