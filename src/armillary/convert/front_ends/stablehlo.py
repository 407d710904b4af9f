"""StableHLO programs, before XLA partitions them: one file of MLIR, text or bytecode, which all devices run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.reading import decoded, read_plain
from armillary.convert.converted import Converted
from armillary.convert.hlo.converted import check_options, converted
from armillary.convert.hlo.source import Source


def convert(
    inputs: Sequence[Path],
    *,
    ranks: int | None = None,
    unroll: int = 200_000,
    trips: int = 1,
) -> Converted:
    """Convert a program to a graph for each rank; rank = replica · partitions + partition.

    Computations get FLOPs (``num_ops``) and bytes (``tensor_size``), which the roofline model times; element-wise
    operations are fused with what takes them. What has the shapes of the whole program is shared evenly, with a line
    that says so.

    Args:
        inputs: one file of StableHLO: text; with JAX also a portable artifact or what `jax.export` serializes.
        ranks: Number of devices, a multiple of the program's partitions; by default partitions times replicas.
        unroll: Maximum instructions of an unrolled loop; a longer one is its body once, with its total cost.
        trips: Iterations of loops whose number the program does not state.

    Raises:
        InputError: the file is not StableHLO, contradicts itself, or does not fit the number of ranks.
    """
    from armillary.convert.stablehlo.module import Program

    check_options(inputs, unroll, trips)
    program = Program(_read(inputs[0]))
    statements = []
    if program.shared:
        statements.append(
            f"before partitioning: {len(program.shared)} operations have the shapes of all {program.share} partitions, "
            "which are taken to share them evenly; collectives that the partitioner adds are missing (--from hlo has "
            "them, of the compiled program)"
        )
    return converted(
        program.module, ranks, unroll=unroll, trips=trips, in_order=False, shared=program.shared,
        statements=tuple(statements),
    )  # fmt: skip


def _read(path: Path) -> Source:
    from armillary.convert.stablehlo.bytecode import is_bytecode, text_of

    expected = "expected StableHLO as text: what jax.jit(f).lower(…).as_text() returns"
    try:
        data = read_plain(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, {expected}") from error
    if is_bytecode(data):
        return Source(text_of(data, path), str(path))
    try:
        text = decoded(data, path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not text, {expected}") from error
    if "HloModule" in text[:4096]:
        raise InputError(f"{path}: is HLO text, which is compiled already; `--from hlo` reads it, {expected}")
    return Source(text, str(path))
