"""Checks that a kind of memory fulfils its contract, to be called from the tests of the package that provides it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import ArmillaryError
from armillary.engine import simulate
from armillary.platform.memory import RemoteMemory
from armillary.platform.memory_model import MemoryModel, memory_model
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.trace import GraphBuilder, Trace

# One byte, an odd size, a page, and large ones.
SIZES = (1, 63, 4096, 10**6, 10**9)
"""Sizes of accesses to try, in bytes."""
NPUS = 8


def check_memory(memory: RemoteMemory, npus: int = NPUS) -> None:
    """Check a memory outside the NPUs, of a kind that is built in or installed.

    Accesses must end, a larger one no earlier; two in a row end no earlier than one, all NPUs together no earlier than
    one alone; ranks that behave alike may be simulated once; the same runs take the same time. Of a kind without
    stages, `MemoryModel.durations` must give every access its time whatever is asked beside it, and leave its
    arguments alone.

    Args:
        memory: E.g. ``RemoteMemory("mine", options={"rate": "50 GB/s"})``.
        npus: NPUs of the machine to try it on.

    Raises:
        AssertionError: it does not; the message says in what.
        InputError: there is no such kind, or its options are wrong.
    """
    # Hierarchical memories have no durations of single accesses: their transfers share links.
    if memory.kind != "hierarchical":
        _check_durations(memory.kind, memory_model(memory, npus))
    for store in (False, True):
        # In order of size, so that each is compared with the one before.
        before = 0
        for size in SIZES:
            what = f"{memory.kind}: a {'store' if store else 'load'} of {size} bytes"
            alone = _ticks(memory, npus, size, store, (0,))
            assert alone >= before, f"{what} takes {alone} ns, one of fewer bytes {before} ns"
            twice = _ticks(memory, npus, size, store, (0,), times=2)
            assert twice >= alone, f"{what} takes {alone} ns, two in a row {twice} ns"
            together = _ticks(memory, npus, size, store, range(npus))
            assert together >= alone, f"{what} takes {alone} ns, one of every NPU at once {together} ns"
            # fold=False simulates every rank: folding must not change a tick.
            unfolded = _ticks(memory, npus, size, store, range(npus), fold=False)
            assert unfolded == together, (
                f"{what} of every NPU takes {together} ns where ranks fold, {unfolded} ns where they do not"
            )
            before = alone


def _ticks(
    memory: RemoteMemory, npus: int, size: int, store: bool, ranks: range | tuple[int, ...], times: int = 1,
    fold: bool = True,
) -> int:  # fmt: skip
    """Return the ticks in which some ranks access `size` bytes each, one access after the other."""
    platform = Platform((Dimension("d", "Switch", npus, 100.0, 500.0),), remote_memory=memory)
    # All ranks have a graph, also those that do not access.
    builders = [GraphBuilder(rank=rank) for rank in range(npus)]
    for rank, b in enumerate(builders):
        for number in range(times if rank in ranks else 0):
            (b.memory_store if store else b.memory_load)(f"access {number}", size)
        # Ends every rank with a node, so that none has an empty graph.
        b.compute("done", duration_micros=0)
    trace = Trace.from_ranks([builder.graph() for builder in builders])
    try:
        return simulate(trace, platform, fold=fold).total_ticks
    except ArmillaryError as error:
        raise AssertionError(f"{memory.kind}: {error}") from error


def _check_durations(kind: str, model: MemoryModel) -> None:
    # Each size as a load and as a store; 0 between them.
    size = np.array([*SIZES, 0, *SIZES], np.int64)
    store = np.arange(len(size)) > len(SIZES)
    given = size.copy(), store.copy()
    whole = _asked(kind, model, size, store)
    assert (size == given[0]).all() and (store == given[1]).all(), f"{kind}: durations changes its arguments"
    assert len(_asked(kind, model, size[:0], store[:0])) == 0, f"{kind}: gives times for no accesses"
    # copy(): a reversed view has negative strides, which compiled code may refuse.
    turned = _asked(kind, model, size[::-1].copy(), store[::-1].copy())[::-1]
    assert (whole == turned).all(), f"{kind}: times depend on the order of accesses"
    for at in range(len(size)):
        alone = _asked(kind, model, size[at : at + 1], store[at : at + 1])[0]
        what = f"{kind}: a {'store' if store[at] else 'load'} of {size[at]} bytes"
        assert alone == whole[at], f"{what} takes {whole[at]:g} ns beside others and {alone:g} ns alone"


def _asked(
    kind: str, model: MemoryModel, size: NDArray[np.int64], store: NDArray[np.bool_]
) -> NDArray[np.float64]:
    ns = model.durations(size, store)
    assert isinstance(ns, np.ndarray) and ns.shape == size.shape, (
        f"{kind}: durations gives {ns!r:.60}, expected an array of {len(size)} times"
    )
    assert ns.dtype.kind in "iuf", f"{kind}: durations gives {ns.dtype}, expected integers or floats"
    assert (ns >= 0).all() and np.isfinite(ns).all(), (
        f"{kind}: durations gives {ns.min():g} ns, expected 0 or more"
    )
    return ns.astype(np.float64)
