"""Read logs of nccl-tests: the participating ranks, then a table of times over sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from armillary.base.csv_text import number_in
from armillary.base.errors import InputError
from armillary.evidence.calibrate.samples import Sample

PROGRAMS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "sendrecv": "send",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""Name of the program without ``_perf`` -> operation."""

# Prefixes of mpirun's --tag-output and of srun's -l.
_PREFIX = re.compile(r"^(\[\d+,\d+\]<std\w+>:?|\d+:)\s*")
_PROGRAM = re.compile(r"\b(" + "|".join(PROGRAMS) + r")_perf\b")
# "#  Rank  0 Group  0 Pid … on HOST device  0 [0x1b] NVIDIA H100": rank, host and device.
_RANK = re.compile(r"#\s+Rank\s+(\d{1,18})\s.*\bon\s+(\S+)\s+device\s+\d+\s+\[\S+\]\s*(.*\S)?")
# Third word of a row, by which it is told from other lines of numbers.
_TYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
    "f8e4m3",
    "f8e5m2",
    "fp8_e4m3",
    "fp8_e5m2",
)
# 18 digits: Python refuses to read thousands.
_SIZE = re.compile(r"\d{1,18}")
_ROUNDED = 0.011
"""GB/s that a rate of two digits after the point may be off by, and a little more."""


def contradicts(stated: float, rate: float) -> bool:
    """Tell whether a stated rate in GB/s cannot be that of bytes and time.

    Versions of 2018 count what is moved, of two ranks half of the bytes; a wrong unit is off by a thousand. A rate of 0
    is none: it stands where nobody computed it.
    """
    return stated != 0 and not rate / 3 - _ROUNDED <= stated <= 3 * rate + _ROUNDED


def program_of(text: str) -> str:
    """Return the operation of a program's name such as ``all_reduce_perf`` anywhere in `text`, or empty."""
    found = _PROGRAM.findall(text)
    # The last one: a path may hold the name of another program before it.
    return PROGRAMS[found[-1]] if found else ""


def read_log(path: Path, text: str, operation: str = "", per_node: int | None = None) -> list[Sample]:
    """Read the out-of-place times of a log, which may hold several runs.

    Args:
        path: For errors, and for the operation where neither the text nor `operation` says it.
        text: The log.
        operation: Instead of what the log says.
        per_node: GPUs in a node, where the log does not list its ranks.

    Raises:
        InputError: It is no such log, or it does not say the operation or who takes part.
    """
    named = operation or _named_by_file(path)
    samples: list[Sample] = []
    ranks: dict[int, tuple[str, str]] = {}
    gpus, names = 0, list[str]()
    program = ""
    # A log may hold several runs: ranks and programs hold until the next ones are printed.
    for number, line in _lines(text):
        if (rank := _RANK.search(line)) is not None:
            # Rank 0 begins the list of a new run.
            if int(rank[1]) == 0:
                ranks = {}
            ranks[int(rank[1])] = (rank[2], rank[3] or "")
        elif (header := re.search(r"#\s+nThread\s+(\d{1,18})\s+nGpus\s+(\d{1,18})\b", line)) is not None:
            # Without a list of ranks, threads times GPUs take part.
            ranks, gpus = {}, int(header[1]) * int(header[2])
        elif line.startswith("#") and {"time", "size"} <= {*(found := line.lstrip("# ").split())}:
            names = found
        elif names and (size_ns := _row(f"{path}:{number}", line, names)) is not None:
            # What the user says wins; then the line of the program, any mention, and the name of the file.
            what = operation or program or program_of(text[:200_000]) or named
            if not what:
                raise InputError(
                    f"{path}: neither the log nor its name says which program of nccl-tests ran; name it by --operation"
                )
            members, nodes, device = _who(path, number, ranks, gpus, per_node)
            samples.append(Sample(device, what, members, nodes, *size_ns))
        # A row of the table never names a program; the command line above it does.
        if "_perf" in line:
            program = program_of(line) or program
    if not samples:
        raise InputError(
            f"{path}: no times found, expected a log of nccl-tests, with a line '# size count type … time' and a "
            "row for each size, or a CSV file with one of the known headers"
        )
    return samples


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        # Line numbers are those of the file, for errors.
        yield number, _PREFIX.sub("", line).strip()


def _row(where: str, line: str, names: list[str]) -> tuple[int, float] | None:
    """Return (bytes, ns) of a row of the table, or None for any other line and for a size of no bytes.

    Raises:
        InputError: it is cut short, its time and its rate disagree, or what it computed was wrong.
    """
    words = line.split()
    # The out-of-place time, the first: versions of nccl-tests have columns before it.
    column = names.index("time")
    # Sizes are plain integers in the first column.
    if len(words) < 2 or not _SIZE.fullmatch(words[0]):
        return None
    whole = column + sum(name in names[column + 1 : column + 3] for name in ("algbw", "busbw")) + 1
    # A log that was cut off, by a full disk or the end of a job, may end within a word.
    begun = words[1].isdecimal() and (len(words) == 2 or any(name.startswith(words[2]) for name in _TYPES))
    if len(words) < whole and begun:
        raise InputError(
            f"{where}: the row has {len(words)} values, expected at least {whole}, up to {names[whole - 1]}: it is cut "
            "short; leave the line out"
        )
    if len(words) < whole or words[2] not in _TYPES:
        return None
    try:
        # Out-of-place: "N/A" where a test has none.
        microseconds = float(words[column])
    except ValueError:
        return None
    size = int(words[0])
    # Rows of size 0 have no bandwidth.
    if size <= 0 or not microseconds > 0:
        return None
    rest = dict(zip(names[column + 1 : column + 4], words[column + 1 : column + 4], strict=False))
    rate = size / microseconds / 1e3
    stated = number_in(rest.get("algbw"))
    if stated is not None and contradicts(stated, rate):
        raise InputError(
            f"{where}: {size:,} bytes in {words[column]} us are {rate:.4g} GB/s, but algbw says {stated:g}; expected "
            "times in us, as nccl-tests prints them"
        )
    if number_in(rest.get("#wrong")):
        raise InputError(
            f"{where}: #wrong: got {rest['#wrong']}, expected 0: what was moved is wrong, so its time means nothing"
        )
    return size, microseconds * 1e3


def _who(
    path: Path, line: int, ranks: dict[int, tuple[str, str]], gpus: int, per_node: int | None
) -> tuple[int, int, str]:
    """Return (members in a node, nodes, device)."""
    if ranks:
        hosts = {host for host, _ in ranks.values()}
        # Uneven groups would need a model of their own.
        if len(ranks) % len(hosts):
            raise InputError(
                f"{path}:{line}: {len(ranks)} ranks on {len(hosts)} hosts, expected as many on each"
            )
        return len(ranks) // len(hosts), len(hosts), ranks[0][1] if 0 in ranks else ""
    if not gpus:
        raise InputError(
            f"{path}:{line}: does not say who takes part, expected lines '# Rank 0 … on HOST device 0'"
        )
    # GPUs in all, over nodes of per_node each.
    if per_node is not None and gpus > per_node:
        return per_node, gpus // per_node, ""
    return gpus, 1, ""


def _named_by_file(path: Path) -> str:
    # Longest name first: "all_reduce" contains "reduce".
    names = sorted(PROGRAMS, key=len, reverse=True)
    plain = path.name.lower().replace("-", "_").replace("all_to_all", "alltoall")
    return next((PROGRAMS[name] for name in names if name in plain), "")
