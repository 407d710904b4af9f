"""Times of the compute nodes of rank graphs: equal kernels go to the model once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.compute.find import make_model
from armillary.compute.model import Device, Floats, Times, Work
from armillary.compute.overrides import idle, overridden
from armillary.compute.roofline import Roofline, with_endless_memory
from armillary.platform.kernels import COMPUTE_MODELS
from armillary.platform.model import Platform
from armillary.trace.attention import ATTENTION, to_attention
from armillary.trace.columns import NodeType, distinct_columns
from armillary.trace.gemm import GEMM, SCALING, to_gemms
from armillary.trace.graph import Graph
from armillary.trace.templates import PackedGraph

Row = tuple[str, int, int, str, tuple[int, ...], int, tuple[int, ...], str]
"""A kernel: name, operations, bytes, precision, GEMMs, recorded ns, attention, recipe of its operands."""


class KernelTimes:
    """How long every compute node on an NPU takes, by the model of a platform.

    Attributes:
        warnings: What a person should know of them.
    """

    def __init__(self, platform: Platform, graphs: Iterable[Graph], *, fill: bool = True) -> None:
        """Ask the model for the kernels of `graphs`; see `ask` for `fill`.

        Raises:
            InputError: the model, its options or a node is wrong.
        """
        self.platform = platform
        self.warnings: list[str] = []
        self._known: dict[Row, int] = {}
        self._of: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._used: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        """Kernels of the nodes of each graph, and of how many nodes each of these is."""
        chosen = platform.compute
        for graph in graphs:
            # By identity: graphs are large, and shared between ranks.
            self._of[id(graph)] = nodes, kernels = self._read(graph)
            copies = graph.times[nodes] if isinstance(graph, PackedGraph) else np.ones(len(nodes), np.int64)
            self._used.append((kernels, copies))
        work = _work(self._known)
        times = ask(platform, work, modelled=chosen.modelled, fill=fill)
        self._ns = times.ns
        self.warnings = [
            f"compute model {chosen.model or 'roofline'}: {note}"
            for note in (*times.notes, *idle(work, chosen.overrides))
        ]
        self._warn_of_extrapolation(work, times)

    def of(self, graph: Graph) -> tuple[NDArray[np.int64], Floats]:
        """Return positions of nodes of a graph that was read, and ns; nodes that are not there take recorded times."""
        nodes, kernels = self._of[id(graph)]
        known = ~np.isnan(self._ns[kernels])
        return nodes[known], self._ns[kernels[known]]

    def _read(self, graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the compute nodes of a graph, and the number of the kernel of each."""
        # CPU operators have no kernel on the NPU.
        which = (graph.types == NodeType.COMP_NODE) & (graph.ints("is_cpu_op", 0) == 0)
        nodes = np.flatnonzero(which)
        names: dict[str, int] = {}
        all_names = graph.names()
        name = np.array([names.setdefault(all_names[node], len(names)) for node in nodes.tolist()], np.int64)
        precision, precisions = graph.strings("precision")
        scaling, scalings = graph.strings(SCALING)
        gemm, lists = graph.int_lists(GEMM)
        attention, shapes = graph.int_lists(ATTENTION)
        recorded = graph.duration_micros[nodes].astype(np.int64) * 1000
        # `duration_ns` is exact where a trace has it; else whole µs.
        exact = graph.ints("duration_ns", -1)[nodes]
        columns = np.stack(
            [
                name, graph.ints("num_ops", -1)[nodes], graph.ints("tensor_size", -1)[nodes], precision[nodes],
                gemm[nodes], np.where(exact >= 0, exact, recorded), attention[nodes], scaling[nodes],
            ]
        )  # fmt: skip
        # -1 stands for absent, so a negative value in the file must be refused and not be taken for it.
        for row, what in ((1, "num_ops"), (2, "tensor_size")):
            bad = np.flatnonzero((columns[row] < 0) & graph.has(what)[nodes])
            if len(bad):
                raise InputError(
                    f"{graph.node(int(nodes[bad[0]]))} has a negative {what}; expected 0 or more"
                )
        # Millions of nodes have few different kernels: only these are parsed.
        first, inverse = distinct_columns(columns)
        known = list(names)
        # Kernels are numbered over all graphs, so each goes to the model once.
        numbers = []
        for at, (word, operations, size, code, shape, took, fused, scaled) in zip(
            first.tolist(), columns[:, first].T.tolist(), strict=True
        ):
            numbers_of = lists[shape] if shape >= 0 else ()
            try:
                to_gemms(numbers_of)
            except ValueError as error:
                raise InputError(f"{graph.node(int(nodes[at]))}: attribute '{GEMM}': {error}") from None
            attends = shapes[fused] if fused >= 0 else ()
            try:
                to_attention(attends)
            except ValueError as error:
                raise InputError(f"{graph.node(int(nodes[at]))}: attribute '{ATTENTION}': {error}") from None
            row_of = (
                known[word],
                operations,
                size,
                precisions[code] if code >= 0 else "bf16",
                numbers_of,
                took,
                attends,
                scalings[scaled] if scaled >= 0 else "",
            )
            numbers.append(self._known.setdefault(row_of, len(self._known)))
        return nodes, np.array(numbers, np.int64)[inverse]

    def _warn_of_extrapolation(self, work: Work, times: Times) -> None:
        if times.beyond is None or not (times.beyond > 1).any():
            return
        outside = times.beyond > 1
        nodes = sum(int((outside[kernels] * copies).sum()) for kernels, copies in self._used)
        worst = int(np.argmax(times.beyond))
        shape = ", ".join(map(str, work.gemms[worst][:2]))
        self.warnings.append(
            f"compute model {self.platform.compute.model}: {int(outside.sum())} of {len(work)} different kernels "
            f"({nodes} nodes) lie outside of what it knows, '{work.names[worst]}' ({shape}) by a factor of "
            f"{times.beyond[worst]:.3g}: their times are extrapolated"
        )


def ask(platform: Platform, work: Work, *, modelled: bool = True, fill: bool = True) -> Times:
    """Return the times of kernels by the model of a platform, the roofline model where it does not know, and overrides.

    Args:
        platform: The machine.
        work: The kernels.
        modelled: False: by their recorded durations, but for overrides.
        fill: Where they are not modelled, let the roofline model time those that have no recorded duration.

    Raises:
        InputError: the model or its options are wrong, or a kernel cannot be timed.
    """
    device, chosen = Device.of(platform), platform.compute
    times = Times(np.full(len(work), np.nan), ("",) * len(work))
    if modelled:
        model = make_model(platform)
        try:
            with COMPUTE_MODELS.guard(chosen.model):
                found = model.durations(work)
            times = _checked(found, work, chosen.model)
        except InputError as error:
            raise InputError(f"{chosen.source}: {error}" if chosen.source else str(error)) from error
        # Closed after an error, too: a model may hold a process.
        finally:
            model.close()
    missing = np.isnan(times.ns)
    if not modelled:  # those that nothing else times, see `armillary.engine.common.nodes`
        missing &= (work.recorded == 0) & ((work.operations > 0) | (work.size > 0))
    # The roofline model itself has already said that it does not know these.
    if missing.any() and (modelled or fill) and not (modelled and chosen.model == "roofline"):
        other = Roofline(device if modelled else with_endless_memory(device)).durations(_some(work, missing))
        ns, words = times.ns.copy(), np.array(times.bound or ("",) * len(work), object)
        ns[missing], words[missing] = other.ns, other.bound
        times = Times(ns, tuple(words), times.beyond, times.notes)
    return overridden(work, times, chosen.overrides, device) if chosen.overrides else times


def _some(work: Work, which: NDArray[np.bool_]) -> Work:
    """Return some of the kernels."""
    at = np.flatnonzero(which).tolist()
    return Work(
        tuple(work.names[i] for i in at), work.operations[which], work.size[which],
        tuple(work.precisions[i] for i in at), tuple(work.gemms[i] for i in at), work.recorded[which],
    )  # fmt: skip


def _work(rows: Iterable[Row]) -> Work:
    # No kernel at all: eight empty columns.
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * 8
    names, operations, size, precisions, shapes, recorded, attention, scalings = columns
    return Work(
        names, np.array(operations, np.int64), np.array(size, np.int64), precisions,
        tuple(map(to_gemms, shapes)), np.array(recorded, np.int64), tuple(map(to_attention, attention)), scalings,
    )  # fmt: skip


def _checked(times: Times, work: Work, name: str) -> Times:
    """Refuse what a model must not return.

    Raises:
        InputError: no times, too few or too many, or one that is negative or infinite.
    """
    if (
        not isinstance(times, Times)
        or not isinstance(times.ns, np.ndarray)
        or times.ns.dtype.kind not in "iuf"
    ):
        raise InputError(
            f"compute model '{name}' gave {show(getattr(times, 'ns', times))}, expected Times with ns as an array"
        )
    # An empty `bound` counts as complete.
    lengths = {len(times.ns), len(times.bound) or len(work), len(work)}
    if times.beyond is not None:
        lengths.add(len(times.beyond))
    if len(lengths) > 1:
        raise InputError(
            f"compute model '{name}' gave {len(times.ns)} times, expected {len(work)}, one per kernel"
        )
    bad = np.flatnonzero((times.ns < 0) | np.isinf(times.ns))
    if len(bad):
        at = int(bad[0])
        raise InputError(
            f"compute model '{name}' gave {times.ns[at]:g} ns for '{work.names[at]}', expected a time of 0 ns or more"
        )
    return times
