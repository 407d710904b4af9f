"""The two flat integer arrays of a run, from named tables; as NumPy arrays or, for the interpreter, lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.checked import before_table
from armillary.base.jit import Mode
from armillary.engine.common import layout_kernel as lk

Ints = NDArray[np.int64]
Table = Ints | Callable[[int], Ints]


def flat_program(
    tables: Mapping[str, Table], mode: Mode, scalars: Mapping[int, int] | None = None, layout: Any = lk
) -> tuple[Any, dict[str, int]]:
    """Lay the tables of a program out in one array; returns it and the address of each table.

    A table may be a function that returns it for the address at which it will stand. `layout` is the
    module that names the tables.
    """
    head = np.zeros(layout.PROGRAM_HEAD, np.int64)
    for place, value in (scalars or {}).items():
        head[place] = value
    parts, base, at = [head], {}, len(head)
    for name, table in tables.items():
        at += len(before_table())
        base[name] = head[getattr(layout, name)] = at
        part = np.ravel(table(at) if callable(table) else table)
        parts += [before_table(part.size), part]
        at += part.size
    flat = np.concatenate([*parts, before_table()])
    return (flat if mode == "compiled" else flat.tolist()), base


def flat_state(
    sizes: Mapping[str, int], filled: Mapping[str, Ints], mode: Mode, layout: Any = lk
) -> tuple[Any, dict[str, slice]]:
    """Lay out the state: `sizes` of tables that start at zero, and `filled` ones; returns where each is."""
    sizes = {**sizes, **{name: len(values) for name, values in filled.items()}}
    at, place = layout.STATE_HEAD, {}
    for name, size in sizes.items():
        at += len(before_table())
        place[name] = slice(at, at + size)
        at += size
    state = np.zeros(at + len(before_table()), np.int64)  # zero pages take no memory until they are written
    for after in [*place.values(), slice(len(state), len(state))]:
        if len(words := before_table(after.stop - after.start)):
            state[after.start - len(words) : after.start] = words
    for name, where in place.items():
        state[getattr(layout, name)] = where.start
        if name in filled:
            state[where] = filled[name]
    return (state if mode == "compiled" else state.tolist()), place
