"""PyTorch: joined traces (`armillary trace link`), host or Kineto traces alone, or a folder of pairs or of Kineto's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.garbage import uncollected
from armillary.convert.converted import Converted
from armillary.convert.pytorch.device import read_device
from armillary.convert.pytorch.host import read_host
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link import Linked, link
from armillary.convert.pytorch.link_files import read_linked
from armillary.convert.pytorch.records import read_text


@uncollected()
def convert(inputs: Sequence[Path]) -> Converted:
    """Convert one file for each rank, or folders: ``host_<rank>.json`` and ``device_<rank>.json``, or Kineto's alone.

    Raises:
        InputError: a file is not what it should be, or the traces of a pair are of different runs.
    """
    traces: list[Linked] = []
    for path in inputs:
        traces += _of_folder(path) if path.is_dir() else [read_linked(path)]
    return convert_job(traces)


def _of_folder(folder: Path) -> list[Linked]:
    found = _sides(folder)
    # Files named as a pair's want their other half; Kineto's own names (*.pt.trace.json) stand alone.
    if found["device"] and not found["host"] and not any(map(_of_pair, found["device"].values())):
        return [read_linked(path) for _, path in sorted(found["device"].items())]
    return [link(read_host(h), read_device(d)) for h, d in pairs(folder)]


def pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Return (host, device) of every rank in a folder, plain or gzip.

    ``host_3.json`` belongs to ``device_3.json``; where there is none of these, files are told apart by what is in
    them, and the k-th host trace in the order of the numbers in their names belongs to the k-th device trace.

    Raises:
        InputError: there is no pair, or a half of one.
    """
    found = _sides(folder)
    for side, other in (("host", "device"), ("device", "host")):
        for rank in sorted(found[side].keys() - found[other].keys()):
            raise InputError(
                f"{folder}: {found[side][rank].name} has no {other} trace, expected {other}_{rank}.json beside it"
            )
    if not found["host"]:
        raise InputError(
            f"{folder}: no traces, expected host_<rank>.json and device_<rank>.json of every rank, or Kineto's "
            "traces alone (*.pt.trace.json)"
        )
    return [(path, found["device"][rank]) for rank, path in sorted(found["host"].items())]


def _sides(folder: Path) -> dict[str, dict[int, Path]]:
    """Return the host and the device traces of a folder, by rank or order."""
    names = [
        path
        for path in sorted(folder.iterdir())
        if re.fullmatch(r"[^.].*\.json(\.gz)?", path.name) and path.is_file()
    ]
    found: dict[str, dict[int, Path]] = {"host": {}, "device": {}}
    for path in names:
        if match := _of_pair(path):
            found[match[1]].setdefault(int(match[2]), path)  # of .json and .json.gz: .json
    if not found["host"] and not found["device"]:
        # No file has our names: the content tells the side, and the numbers in the name give the order (10 after 9).
        for path in sorted(names, key=_numbers):
            kind = _kind(path)
            if kind:
                found[kind][len(found[kind])] = path
    return found


def _of_pair(path: Path) -> re.Match[str] | None:
    return re.fullmatch(r"(host|device)_(\d+)\.json(\.gz)?", path.name)


def _numbers(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", path.name)], path.name


def _kind(path: Path) -> str:
    """Return whether a file is a host or a device trace, "" for neither."""
    text = read_text(path)
    if '"traceEvents"' in text:
        return "device"
    return "host" if '"nodes"' in text and '"schema"' in text else ""
