"""Chakra files of schema 0.0.1 (.eg, early 2023), one per rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.reading import read_bytes
from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path], *, cycle: str = "1 ns", groups: Path | None = None) -> Converted:
    """Return the same nodes in today's schema.

    Args:
        inputs: the files in rank order, or named ``PREFIX.RANK.eg`` in any order; or one PREFIX.
        cycle: Time of one cycle, the unit of those files; "1 us" for files of the PyTorch converter.
        groups: Ranks of every communicator id, as JSON: {"1": [0, 1]}; by default all ranks for each.

    Raises:
        InputError: a file cannot be read or is not of that schema; names the byte.
    """
    from armillary.base.document import read_document
    from armillary.base.units import parse_time
    from armillary.convert.eg_nodes import Meaning, graph_of_rank
    from armillary.platform.collectives import read_groups
    from armillary.trace import Graph, Trace

    try:
        ns = parse_time(cycle)
    except ValueError as error:
        raise InputError(f"--cycle: {error}") from error
    if ns <= 0:
        raise InputError(f"--cycle: got {cycle!r}, expected a time above 0")
    paths = _in_rank_order(inputs)
    known = None
    if groups is not None:
        document = read_document(groups, "communicator-group file", "json")
        known = read_groups(document, (), document.data, len(paths))
    meaning = Meaning(ns, len(paths), known)
    # Files of equal bytes become one graph object, which the trace stores once.
    shared: dict[bytes, Graph] = {}
    graphs = []
    for path in paths:
        try:
            data = bytes(read_bytes(path))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}, expected a readable .eg file") from error
        if data not in shared:
            shared[data] = graph_of_rank(data, str(path), meaning)
        graphs.append(shared[data])
    return Converted(Trace.from_ranks(graphs), meaning.groups.ranks, meaning.warnings())


def _in_rank_order(inputs: Sequence[Path]) -> Sequence[Path]:
    """Return the files by the rank in their names; a prefix stands for its files, other names keep their order."""
    if len(inputs) == 1 and not inputs[0].exists():
        prefix = inputs[0]
        pattern = re.compile(re.escape(prefix.name) + r"\.\d+\.eg")
        folder = prefix.parent
        inputs = (
            [path for path in folder.iterdir() if pattern.fullmatch(path.name)] if folder.is_dir() else []
        )
        if not inputs:
            raise InputError(
                f"{prefix}: no such file, and no file {prefix.name}.<rank>.eg, expected one of them"
            )
    found = {path: re.search(r"\.(\d{1,9})\.eg$", path.name) for path in inputs}
    # One file whose name has a rank makes all names count: a rank without a file is then an error.
    ranks = {int(match[1]): path for path, match in found.items() if match}
    if not ranks:
        return inputs
    for rank in range(len(inputs)):
        if rank not in ranks:
            shown = ", ".join(path.name for path in inputs[:4])
            raise InputError(
                f"no file for rank {rank} of {len(inputs)} files, expected <prefix>.{rank}.eg: {shown}"
            )
    return [ranks[rank] for rank in range(len(inputs))]
