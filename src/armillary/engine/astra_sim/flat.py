"""The two flat integer arrays of a run of profile `astra-sim`; as NumPy arrays or, for the interpreter, lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.jit import Mode
from armillary.base.tables import Part
from armillary.engine.astra_sim import layout as lk

Ints = NDArray[np.int64]


def flat_program(
    tables: Mapping[str, Part], mode: Mode, scalars: Mapping[int, int] | None = None
) -> tuple[Any, dict[str, int]]:
    """Lay the tables of a program out in one array; returns it and the address of each table."""
    return lk.PROGRAM.program(tables, mode, scalars)


def flat_state(
    sizes: Mapping[str, int], filled: Mapping[str, Ints], mode: Mode
) -> tuple[Any, dict[str, slice]]:
    """Lay out the state: `sizes` of tables that start at zero, and `filled` ones; returns where each is."""
    return lk.STATE.lay_out({**sizes, **{name: len(values) for name, values in filled.items()}}, filled, mode)
