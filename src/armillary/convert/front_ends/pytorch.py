"""PyTorch: joined traces (`armillary trace link`), host traces alone, or a folder of host and device pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from armillary.convert.converted import Converted
from armillary.convert.pytorch.device import read_device
from armillary.convert.pytorch.host import read_host
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link import Linked, link
from armillary.convert.pytorch.link_files import read_linked
from armillary.convert.pytorch.records import uncollected
from armillary.errors import InputError


@uncollected()
def convert(inputs: Sequence[Path]) -> Converted:
    """Convert one file for each rank, or folders with ``host_<rank>.json`` and ``device_<rank>.json``.

    Raises:
        InputError: a file is not what it should be, or the traces of a pair are of different runs.
    """
    traces: list[Linked] = []
    for path in inputs:
        traces += (
            [link(read_host(h), read_device(d)) for h, d in pairs(path)]
            if path.is_dir()
            else [read_linked(path)]
        )
    return convert_job(traces)


def pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Return (host, device) of every rank in a folder: ``host_3.json`` and ``device_3.json``, plain or ``.gz``.

    Raises:
        InputError: there is no pair, or a half of one.
    """
    found: dict[str, dict[int, Path]] = {"host": {}, "device": {}}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"(host|device)_(\d+)\.json(\.gz)?", path.name)
        if match:
            found[match[1]].setdefault(int(match[2]), path)
    for side, other in (("host", "device"), ("device", "host")):
        for rank in sorted(found[side].keys() - found[other].keys()):
            raise InputError(f"{folder}: {found[side][rank].name} has no {other}_{rank}.json, expected both")
    if not found["host"]:
        raise InputError(
            f"{folder}: no traces, expected host_<rank>.json and device_<rank>.json of every rank"
        )
    return [(path, found["device"][rank]) for rank, path in sorted(found["host"].items())]
