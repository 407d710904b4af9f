"""Which format a file has that is no Chakra trace, so that an error can name the command that reads it."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from armillary.base.errors import InputError
from armillary.base.packing import beginning
from armillary.base.reading import StrPath, open_file

_HEAD = 1 << 16
"""Bytes that are looked at. Kineto describes its GPUs before its events, in some KiB."""


class Format(NamedTuple):
    """A format: the front end that reads it, what it is called, and how its files begin."""

    name: str
    title: str
    begins: re.Pattern[bytes]


def _format(name: str, title: str, begins: str) -> Format:
    return Format(name, title, re.compile(begins.encode("latin-1"), re.DOTALL))


_SPACE = r"(?>\s|//[^\n]*\n|/\*.*?\*/)*+"
# The first that fits. Groups are atomic: what a stranger writes cannot make a search try all ways to split it.
FORMATS = (
    _format("nsight", "an SQLite database, as Nsight Systems exports it", "SQLite format 3\0"),
    _format("goal", "a GOAL schedule", rf"\x7f\x10\0{{6}}|{_SPACE}num_ranks\s+\d"),
    _format("hlo", "a program in XLA's HLO", rf"{_SPACE}HloModule\s"),
    _format("stablehlo", "a StableHLO program", r"ML\xefR|(?>\s|//[^\n]*\n|#[^\n]*\n)*+module\s[^\n]*\{"),
    _format("msccl", "an MSCCL algorithm", r"(?>\s|<\?xml[^>]*>|<!--.*?-->)*+<algo\s"),
    _format("flexflow", "a task graph of FlexFlow", r"\s*+digraph taskgraph\b"),
    _format("text", "a text workload of ASTRA-sim 1.0", r"\s*+(MICRO|DATA|MODEL|HYBRID_\w+)\b[^\n]*\n\s*+\d+\s*\n"),
    _format("triosim", "operators as TrioSim traces them", r"[^\n]*\bOperatorName\b[^\n]*\bOperator_input\b"),
    _format("rocprof", "a profile of rocprofv3", r'\s*+\{.*?"rocprofiler-sdk-tool"\s*:'),
    _format("mscclpp", "an execution plan of MSCCL++", r'\s*+\{(?=.*"collective"\s*:)(?=.*"protocol"\s*:).*"gpus"\s*:'),
    _format("nccl", "records of NCCL's inspector", r'\s*+[\[{].*?"coll_msg_size_bytes"\s*:'),
    _format("pytorch", "a trace of PyTorch", r'\s*+\{.*?"traceEvents"\s*:'),
    _format("pytorch", "a trace of PyTorch", r'\s*+\{\s*+"schema"\s*+:\s*+"\d[^"]*".*"nodes"\s*:'),
)  # fmt: skip


def other_format(path: StrPath) -> Format | None:
    """Return the format of a file, by how it begins, unpacked; None for any other, and for what is no file."""
    head = _head(path)
    return next((each for each in FORMATS if each.begins.match(head)), None)


def refuse_other(path: StrPath, expected: str) -> None:
    """Refuse a file of another format.

    Args:
        path: The file; what cannot be read is left to the reader.
        expected: What it should have been, e.g. ``a study file``.

    Raises:
        InputError: names the format and the commands that take it.
    """
    found = other_format(path)
    if found is None:
        return
    at = os.fspath(path)
    converts = f"`armillary trace convert --from {found.name} {at} -o PREFIX` makes Chakra traces of it"
    replays = f", `armillary run --pytorch {at}` replays it" if found.name == "pytorch" else ""
    raise InputError(f"{at}: {found.title}, expected {expected}; {converts}{replays}")


def _head(path: StrPath) -> bytes:
    # A pipe could be read once only.
    if not os.path.isfile(path):  # noqa: PTH113
        return b""
    try:
        descriptor = open_file(path)
    except (OSError, InputError):
        return b""
    try:
        head = os.read(descriptor, _HEAD)
    finally:
        os.close(descriptor)
    return beginning(head, _HEAD).removeprefix(b"\xef\xbb\xbf")
