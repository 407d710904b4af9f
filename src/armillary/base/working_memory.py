"""Working memory of kernels: flat arrays of integers that grow when a kernel asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.base.errors import ShortageError
from armillary.base.jit import Mode, is_checking


def room(size: int, mode: Mode) -> Any:
    """Return `size` integers of working memory.

    Raises:
        ShortageError: there is not as much.
    """
    try:
        return np.zeros(size, np.int64) if mode == "compiled" else [0] * size
    except MemoryError:
        raise ShortageError(
            f"moving every message of these collectives takes {size * 8 / 2**30:.3g} GiB of working memory, more than "
            "there is; expected fewer NPUs, or fewer chunks that are active at a time"
        ) from None


def at_least(array: Any, size: int, mode: Mode) -> Any:
    """Return working memory with the contents of `array` and room for at least `size` integers.

    Where kernels are checked it has exactly `size`, so that use beyond what was asked for is found.
    """
    whole = array
    # A checked array is a view of a longer one: grow that.
    if is_checking() and mode == "compiled" and array.base is not None:
        whole = array.base
    if len(whole) < size:
        # At least twice as long, so that all copies together cost as much as the last.
        longer = room(max(size, 2 * len(whole)), mode)
        longer[: len(whole)] = whole
        whole = longer
    if is_checking() and mode == "compiled":
        return whole[:size]
    if is_checking():
        del whole[size:]
    return whole
