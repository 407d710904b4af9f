"""Inputs of trace commands: files, and prefixes of the files of all ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from armillary.base.errors import InputError
from armillary.trace.files import SUFFIXES, StrPath, load_trace, rank_files, read_graph
from armillary.trace.trace import Trace

_RANK_FILE = re.compile(r"(.+)\.\d+(?:" + "|".join(map(re.escape, SUFFIXES)) + ")")


@dataclass(frozen=True)
class Input:
    """A trace and its name."""

    name: str
    trace: Trace
    whole: bool
    """Whether it is the trace of all ranks instead of one file."""


def read_input(path: StrPath) -> Input:
    """Read a file, or all ranks where `path` is the prefix of ``<prefix>.<rank>.et``.

    Raises:
        InputError: it is neither, or cannot be read.
    """
    name = os.fspath(path)
    # A prefix may also be the name of a folder, which is not a file to read.
    if name.endswith(SUFFIXES) or (Path(name).exists() and not Path(name).is_dir()):
        return Input(name, Trace.replicate(read_graph(name), 1), whole=False)
    return Input(name, load_trace(name), whole=True)


def read_inputs(paths: Sequence[StrPath]) -> list[Input]:
    """Read several; two or more files that are all those of a prefix are read as that prefix."""
    names = [os.fspath(path) for path in paths]
    matches = {name: match[1] for name in names if (match := _RANK_FILE.fullmatch(name))}
    # The shell expands run.*.et to files; together they mean the whole trace `run`.
    whole = {prefix for prefix in set(matches.values()) if _is_whole(prefix, matches)}
    asked = [matches[name] if matches.get(name) in whole else name for name in names]
    # In order, each prefix once.
    return [read_input(name) for name in dict.fromkeys(asked)]


def _is_whole(prefix: str, matches: dict[str, str]) -> bool:
    given = {name for name, of in matches.items() if of == prefix}
    folder, stem = os.path.split(prefix)
    try:
        files = rank_files(folder, stem, None)
    except InputError:
        return False
    return len(given) > 1 and given == {f"{folder}/{name}" if folder else name for name in files}
