"""TensorFlow and JAX programs, as XLA HLO text: one file, the module that all devices run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.convert.converted import Converted
from armillary.convert.hlo.converted import check_options, converted
from armillary.convert.hlo.parse import parse
from armillary.convert.hlo.source import read


def convert(
    inputs: Sequence[Path],
    *,
    ranks: int | None = None,
    unroll: int = 200_000,
    trips: int = 1,
    in_order: bool = False,
) -> Converted:
    """Convert a module to a graph for each rank; rank = replica · partitions + partition.

    Computations get FLOPs (``num_ops``) and bytes (``tensor_size``), which the roofline model times.

    Args:
        inputs: one file of HLO text.
        ranks: Number of devices, a multiple of the module's partitions; by default partitions times replicas.
        unroll: Maximum instructions of an unrolled loop; a longer one is its body once, with its total cost.
        trips: Iterations of loops whose number the module does not state.
        in_order: Run everything in the module's order, except asynchronous operations (-start … -done).

    Raises:
        InputError: the file is not HLO text, contradicts itself, or does not fit the number of ranks.
    """
    check_options(inputs, unroll, trips)
    return converted(parse(read(inputs[0])), ranks, unroll=unroll, trips=trips, in_order=in_order)
