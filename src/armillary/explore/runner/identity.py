"""What the result of a point depends on, as a hash: what is equal is the same work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from armillary.base import VERSION

if TYPE_CHECKING:
    from armillary.explore.sweep.point import Point
    from armillary.explore.sweep.sweep import Sweep

READ_WHOLE = 64 * 2**20
"""Bytes up to which a file is known by its content; a larger one by its size and when it was written."""


class Identity(NamedTuple):
    """What a result is of.

    Attributes:
        work: Hash of the study, the files that it names, costs, tokens, and the sources of this program.
        rules: Hash of the constraints and of the values that they speak of; empty if there are none.
    """

    work: str
    rules: str


class Identities:
    """Gives points of a sweep their identities; objectives, limits and names of the axes do not matter."""

    def __init__(self, sweep: Sweep) -> None:
        data = sweep.document.data
        self._folder = sweep.folder
        self._files: dict[str, str] = {}
        # `rules` hashes only values that the constraints name: other axes may change without evaluating anew.
        self._where = [constraint.text for constraint in sweep.constraints]
        names = [constraint.names for constraint in sweep.constraints]
        self._names = sorted(frozenset[str]().union(*names)) if names else []
        # Costs and tokens change measures; objectives and limits do not.
        common = {name: data[name] for name in ("costs", "tokens") if data.get(name) is not None}
        self._common = digest([sources(), common, self._named(common)])

    def of(self, point: Point) -> Identity:
        """Return the identity of a point."""
        # A point whose document cannot be built has the problem instead.
        problem = getattr(point, "problem", "")
        work = digest([self._common, point.key, problem, self._named(point.document)])
        # Without constraints rules have no effect, whatever the values.
        if not self._where:
            return Identity(work, "")
        values = {name: point.values[name] for name in self._names if name in point.values}
        return Identity(work, digest([self._where, values]))

    def _named(self, value: Any) -> list[str]:
        """Return the hashes of all files that a document names; which name is whose, the document says."""
        found = set()
        for text in _texts(value):
            # Cached by name: a sweep names the same trace for thousands of points.
            if text not in self._files:
                self._files[text] = _file(self._folder, text)
            found.add(self._files[text])
        return sorted(found - {""})


def sweep_digest(sweep: Sweep) -> str:
    """Return a hash of what a sweep asks for: its file, and the study in it."""
    return digest([sweep.document.data, sweep.base.data])


@cache
def sources() -> str:
    """Return a hash of the version and of all sources on which a result can depend."""
    whole = hashlib.sha256(VERSION.encode())
    home = Path(__file__).parents[2]
    # What prints, runs and judges results does not change them: edits there must not make a store stale.
    apart = {home / "cli", home / "report", home / "explore" / "runner", home / "evidence"}
    for path in sorted(home.rglob("*")):
        # Data files (devices, presets, fits) count as sources.
        if path.suffix in (".py", ".yaml", ".json", ".csv") and apart.isdisjoint(path.parents):
            whole.update(path.relative_to(home).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()[:32]


def digest(value: Any) -> str:
    """Return a hash of what JSON can say; dates and the like by their text."""
    # sort_keys: the order of a mapping in a file has no meaning.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def named_files(folder: Path, value: Any) -> list[str]:
    """Return the hashes of all files below a folder that the texts of a document name."""
    return sorted({_file(folder, text) for text in set(_texts(value))} - {""})


def _texts(value: Any) -> list[str]:
    """Return all texts in a document, keys left out."""
    found, left = [], [value]
    while left:
        each = left.pop()
        # type() first: most values are plain text, and this runs for every point.
        if type(each) is str:
            found.append(each)
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
        # Mappings of other kinds, tested last because isinstance with an ABC is slow.
        elif isinstance(each, Mapping):
            left += each.values()
    return found


def _file(folder: Path, text: str) -> str:
    """Return a hash of the file of that name, or of the traces with that prefix; empty if there are none."""
    # Not a file name; a NUL would raise, and . and .. are folders.
    if not text or len(text) > 1000 or "\0" in text or text in (".", ".."):
        return ""
    path = folder / text
    try:
        if path.is_file():
            files = [path]
        # A prefix of traces; what glob would take for a pattern is none.
        elif path.name and not any(letter in path.name for letter in "*?[") and path.parent.is_dir():
            files = sorted(path.parent.glob(f"{path.name}.*.et*"))
        else:
            files = []
        return digest([text, [[each.name, _content(each)] for each in files]]) if files else ""
    except OSError:
        return ""


def _content(path: Path) -> str:
    about = path.stat()
    # Reading gigabytes for each run would take longer than looking up its results.
    if about.st_size > READ_WHOLE:
        return f"{about.st_size} {about.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()
