"""Writes the traces of a sweep, with a manifest that describes each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.files import filling, write_text
from armillary.convert.groups import Groups
from armillary.trace import write_trace
from armillary.workload.micro.cases import Case
from armillary.workload.micro.collectives import COLLECTIVES, blocks

FORMAT = "armillary-micro-1"
MANIFEST = "manifest.json"


def check_new(folder: Path) -> None:
    """Refuse a folder that is not empty: left-over files of further ranks would become part of a trace.

    Raises:
        InputError: it is not empty, or a file.
    """
    if folder.exists() and (not folder.is_dir() or next(folder.iterdir(), None)):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise InputError(f"{folder}: {what}, expected a new or an empty folder")


def write_cases(folder: Path, cases: Iterable[Case]) -> Path:
    """Write ``<case>.<rank>.et`` for all cases, the groups that they use, and ``manifest.json``; return that.

    A group file has the form of ASTRA-sim's; the traces define their groups themselves, too.

    Raises:
        InputError: the folder is not empty, or cannot be written.
    """
    check_new(folder)
    with filling(folder) as filled:
        rows = []
        files: dict[int, str] = {}
        for case in cases:
            write_trace(filled / case.name, case.trace())
            row = {"prefix": case.name, **case.facts()}
            # Groups of all ranks are the world and need no file.
            if case.test in COLLECTIVES and case.members < case.npus:
                row["group_file"] = files.setdefault(case.members, f"groups_{case.members}.json")
            rows.append(row)
        for members, name in files.items():
            groups = Groups(rows[0]["npus"])
            table = {str(groups.number(ranks)): ranks for ranks in blocks(rows[0]["npus"], members)}
            write_text(filled / name, json.dumps(table))
        manifest = filled / MANIFEST
        write_text(manifest, json.dumps({"format": FORMAT, "cases": rows}, indent=1) + "\n")
    return folder / MANIFEST
