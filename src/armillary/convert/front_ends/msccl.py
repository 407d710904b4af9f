"""MSCCL XML: a collective algorithm as the sends, receives and additions of every GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.convert.converted import Converted

MOST_CHECKED = 2_000_000
"""Chunk moves up to which the algorithm is executed on numbers to check its result; that many take a few seconds."""


def convert(
    inputs: Sequence[Path], *, size: str = "1 MiB", memory_bandwidth: str = "50 GB/s", element_bytes: int = 4
) -> Converted:
    """Return one graph per GPU, the one that a custom collective of `size` bytes runs.

    Args:
        inputs: one file.
        size: Bytes of the collective, as in comm_size: the contribution of one rank to an all-gather, all of
            its data for other operations; "1 MiB".
        memory_bandwidth: Bandwidth of an addition or copy, which passes through memory three times.
        element_bytes: Bytes of one element, to count the additions.

    Raises:
        InputError: the file cannot be read or is no such algorithm; names the line.
    """
    from armillary.base.units import parse_bandwidth, parse_bytes
    from armillary.collective.msccl import read_msccl, to_graphs
    from armillary.collective.msccl_check import CHECKED, check_result
    from armillary.trace import Trace

    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} MSCCL files, expected one: it holds the programs of all GPUs")
    path = inputs[0]
    # Whichever option is being parsed when ValueError is raised; the message names it.
    option = "--size"
    try:
        count = parse_bytes(size)
        option = "--memory-bandwidth"
        bandwidth = parse_bandwidth(memory_bandwidth)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
    if element_bytes < 1:
        raise InputError(f"--element-bytes: got {element_bytes}, expected at least 1")
    algo = read_msccl(path)
    graphs = to_graphs(algo, count, bandwidth, element_bytes)
    warnings = []
    # A chunk is size × over ÷ under bytes.
    over, under = algo.parts
    if count * over % under:
        warnings.append(
            f"{path}: {count} bytes do not divide into {under} chunks: {count * over % under} bytes are not moved"
        )
    # Work of the check: the initial chunks of all GPUs, and one move for each chunk of each action.
    moved = algo.n * algo.chunks + sum(action.count for action in algo.actions)
    if algo.operation in CHECKED and moved <= MOST_CHECKED:
        try:
            check_result(algo)
        except InputError as error:
            warnings.append(str(error))
    facts = {"algorithm": algo.name, "operation": algo.operation, "chunk_bytes": count * over // under}
    return Converted(Trace.from_ranks(graphs), warnings=tuple(warnings), facts=facts)
