"""The file of process groups that ASTRA-sim reads beside a trace."""

from __future__ import annotations

import json

from armillary.base.errors import InputError
from armillary.base.files import write_text
from armillary.trace.families import Families
from armillary.trace.files import StrPath
from armillary.trace.process_groups import WORLD, read_groups
from armillary.trace.trace import Trace


def groups_of(trace: Trace) -> dict[int, list[int]]:
    """Return the ranks of every group of a trace by number, without the group of all ranks.

    Raises:
        InputError: a definition cannot be read.
    """
    if trace.grid is not None:
        families = Families(trace).all[1:]
        return {f.base + i: ranks for f in families for i, ranks in enumerate(f.members.tolist())}
    groups, findings = read_groups(trace)
    if findings:
        raise InputError(findings[0].message)
    return {number: ranks.tolist() for number, ranks in groups.items() if number != WORLD}


def write_group_file(path: StrPath, trace: Trace) -> None:
    """Write the groups of a trace as ``{"1": [ranks], ...}``; those of `write_trace` have the same numbers.

    Raises:
        InputError: a definition cannot be read, or the file not be written.
    """
    rows = (f'"{number}": {json.dumps(ranks)}' for number, ranks in groups_of(trace).items())
    write_text(path, "{" + ",\n ".join(rows) + "}\n")
