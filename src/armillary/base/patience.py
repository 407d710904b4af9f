"""How long a kernel is interpreted before its machine code takes over.

Both give the same ticks, so only time matters. Cached machine code takes `LINKING`, or `LOADING` where it needs Numba,
and `COMPILING` without a cache; the duration of a run is known only afterwards. So a run begins interpreted, and
switches to machine code once it has taken as long as loading costs, or half as long as compiling. Earlier interpreted
runs of the process count, too, and a file next to the machine code keeps the time of earlier processes that had no
machine code.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.files import write_text
from armillary.base.jit import Mode, cache_folder, is_checking, is_loaded
from armillary.base.kernel_files import SUFFIX

LINKING, LOADING, COMPILING = 0.1, 0.7, 5.0
"""Seconds of processor time; linking takes 0.05 to 0.1 for each engine with the hash of its sources, loading 0.6 to 0.9
with the import of Numba, compiling 10 to 25."""
SLICE = 50
"""Events that are interpreted between two looks at the clock."""
_spent: dict[str, float] = {}
"""Kernel -> seconds that this process has interpreted it."""


class Patience:
    """The mode of a kernel in a run, which may change once.

    Attributes:
        mode: The mode now.
    """

    def __init__(self, name: str, variant: str, mode: Mode | None, work: float) -> None:
        """Begin a run.

        Args:
            name: Module of the kernel.
            variant: Its variant.
            mode: The only mode; None: whichever finishes sooner.
            work: An estimate of what an interpreted run takes, in s.
        """
        self._name, self._variant = name, variant
        self._open = mode is None and not is_checking()
        if mode is None:
            long = work >= LINKING and (is_checking() or work + self._before >= self._limit)
            mode = "compiled" if long or is_loaded(name, "compiled", variant) else "interpreted"
        self.mode: Mode = mode
        self._begun = time.thread_time()

    def events(self, most: int) -> int:
        """Return how many events a kernel may process before `is_over` is asked."""
        return SLICE if self._open and self.mode == "interpreted" else most

    def is_over(self) -> bool:
        """Return True, once, when the rest should run as machine code."""
        if not self._open or self.mode == "compiled":
            return False
        own = time.thread_time() - self._begun
        # The limit is looked up once there is something to gain.
        if own + _spent.get(self._name, 0.0) < LINKING or own + self._before < self._limit:
            return False
        self.end()
        self.mode = "compiled"
        return True

    def end(self) -> None:
        """Note the time of what was interpreted."""
        if not self._open or self.mode == "compiled":
            return
        own = time.thread_time() - self._begun
        _spent[self._name] = _spent.get(self._name, 0.0) + own
        # Less does not matter to later processes, and the file takes time, too.
        if own >= LOADING and self._limit == COMPILING:
            with suppress(InputError):
                write_text(self._file, f"{own + self._before:.1f}\n")

    @cached_property
    def _limit(self) -> float:
        name = self._name.rpartition(".")[2]
        if any(self._folder.glob(f"{name}.*{SUFFIX}")):
            return LINKING
        # Perhaps for another version of Numba: then it is compiled early.
        return LOADING if any(self._folder.glob(f"*/{name}.*.nbc")) else COMPILING

    @cached_property
    def _before(self) -> float:
        """Seconds of earlier runs; of other processes while there was no machine code."""
        before = _spent.get(self._name, 0.0)
        with suppress(OSError, ValueError):
            if self._limit == COMPILING:
                before = max(before, float(self._file.read_text(encoding="utf-8")))
        return before

    @cached_property
    def _folder(self) -> Path:
        return cache_folder() / self._variant

    @property
    def _file(self) -> Path:
        return self._folder / f"{self._name.rpartition('.')[2]}.seconds"


def as_arrays(*lists: Any) -> tuple[Any, ...]:
    """Return the working memory of an interpreted run as machine code takes it."""
    return tuple(np.asarray(each, np.int64) for each in lists)
