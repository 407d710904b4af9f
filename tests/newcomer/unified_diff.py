"""Unified diffs applied to a folder, without git or patch: lines may have moved, but must not have changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FILE = re.compile(r"^--- (?:a/)?(\S+).*\n\+\+\+ (?:b/)?(\S+).*\n", re.M)
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*\n", re.M)


class DoesNotFit(Exception):
    """A hunk has no place in its file: names the diff, the hunk and the file."""


class Hunk(NamedTuple):
    """What `old` lines, in about the line `first` (from 1), become."""

    first: int
    old: list[str]
    new: list[str]


def read(text: str) -> Iterator[tuple[str, bool, list[Hunk]]]:
    """Yield (path, whether it is a new file, hunks) of every file of a diff."""
    heads = list(_FILE.finditer(text))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        body = text[head.end() : after.start() if after else len(text)]
        parts = list(_HUNK.finditer(body))
        hunks = []
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            lines = body[part.end() : following.start() if following else len(body)].splitlines()
            # What belongs to the head of the next file begins with a word.
            lines = [line or " " for line in lines if line[:1] in ("", " ", "+", "-")]
            old = [line[1:] for line in lines if line[0] in " -"]
            hunks.append(Hunk(int(part[1]), old, [line[1:] for line in lines if line[0] in " +"]))
        yield head[2], head[1] == "/dev/null", hunks


def apply(diff: Path, root: Path) -> list[Path]:
    """Change the files below `root` as a diff says, and return their paths; a link is replaced by a file.

    Raises:
        DoesNotFit: the lines around a change are not those of the diff.
    """
    touched = []
    for name, new, hunks in read(diff.read_text()):
        path = root / name
        if path.exists() == new:
            raise DoesNotFit(f"{diff.name}: {name} is {'there already' if new else 'not there'}")
        lines = [] if new else path.read_text().splitlines()
        moved = 0
        for number, hunk in enumerate(hunks, start=1):
            at = _place(lines, hunk.old, max(hunk.first - 1, 0) + moved)
            if at is None:
                raise DoesNotFit(f"{diff.name}: hunk {number} of {name} fits nowhere")
            lines[at : at + len(hunk.old)] = hunk.new
            moved = at - (hunk.first - 1) + len(hunk.new) - len(hunk.old)
        path.unlink(missing_ok=True)
        path.write_text("\n".join(lines) + "\n")
        touched.append(path)
    return touched


def _place(lines: list[str], old: list[str], expected: int) -> int | None:
    """Return where `old` stands in a file, next to where it is expected; None: nowhere."""
    places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
    return min(places, key=lambda at: abs(at - expected), default=None)
