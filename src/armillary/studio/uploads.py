"""Files that the page sends: they lie in a folder of the studio until it ends, or newer ones need the room.

What a file is called is said with each question; where it lies depends on nothing that a request says.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from armillary.base.allowed import limit
from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.reading import too_large
from armillary.base.text import COMMANDS
from armillary.trace.json_layout import FORMAT

MOST_FILE = 1 << 29
"""Bytes of a file: traces of a rank that we know have up to 0.9 GB unpacked, a tenth of that packed."""
MOST_FILES = 1 << 30
"""Bytes of all files together, those that are being sent included."""
MOST_RANKS = 1024
"""Files of a question."""
_NAME = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,199}")
_ID = re.compile(r"[0-9a-f]{32}")


class Kept(NamedTuple):
    """A file that was sent: where it lies, its bytes, and whether it is JSON in the layout of Chakra's graphs."""

    path: Path
    size: int
    graph: bool


class Uploads:
    """The files that a studio was sent, by what they hold."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="armillary-studio-")
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._arriving = self._count = 0

    async def keep(self, name: str, pieces: AsyncIterator[bytes]) -> dict[str, Any]:
        """Keep a file, and return its name, its `id` by which questions name it, and its bytes.

        Raises:
            InputError: its name is no plain one, it is empty, or it is too large.
        """
        _check_name(name)
        self._count += 1
        path = Path(self._folder.name) / str(self._count)
        digest, size, head = hashlib.sha256(), 0, b""
        try:
            with replacing(path, private=True) as temporary, temporary.open("wb") as stream:
                async for piece in pieces:
                    size += len(piece)
                    self._arriving += len(piece)
                    if size > limit(MOST_FILE):
                        too_large(name, size, limit(MOST_FILE))
                    self._make_room(name)
                    digest.update(piece)
                    head = (head + piece)[:200] if len(head) < 200 else head
                    await asyncio.to_thread(stream.write, piece)
                if not size:
                    raise InputError(f"{name}: is empty, expected a trace")
        finally:
            self._arriving -= size
        key = digest.hexdigest()[:32]
        if key in self._kept:
            path.unlink()
        else:
            self._kept[key] = Kept(path, size, FORMAT.encode() in head)
        self._kept.move_to_end(key)
        return {"name": name, "id": key, "bytes": size}

    def _make_room(self, name: str) -> None:
        """Remove the files that were not asked about for longest, as long as all are too much."""
        most = limit(MOST_FILES)
        while self._arriving + sum(each.size for each in self._kept.values()) > most:
            if not self._kept:
                too_large(name, self._arriving, most)
            self._kept.popitem(last=False)[1].path.unlink(missing_ok=True)

    def found(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return a question in which each file of its trace is [name, path, whether it is Chakra's].

        Raises:
            InputError: a file is not there, or not named as it should be.
        """
        if "trace" not in question:
            return dict(question)
        document, given = Document("question", dict(question)), question["trace"]
        if not isinstance(given, list) or not 0 < len(given) <= MOST_RANKS:
            document.reject(("trace",), given, f"a list of 1 to {MOST_RANKS} files, each {{name, id}}")
        files: dict[str, tuple[str, bool]] = {}
        for each in given:
            if not isinstance(each, dict) or each.keys() != {"name", "id"}:
                document.reject(("trace",), each, "a file, {name, id}")
            name, key = each["name"], each["id"]
            _check_name(name)
            if not isinstance(key, str) or not _ID.fullmatch(key) or key not in self._kept:
                raise InputError(f"{name}: is not with the studio any more, drop it once more")
            if name in files:
                raise InputError(f"{name}: is given twice, expected one file of each name")
            self._kept.move_to_end(key)
            kept = self._kept[key]
            files[name] = str(kept.path), kept.graph or not name.endswith((".json", ".json.gz"))
        return {**question, "trace": [[name, *about] for name, about in files.items()]}

    def close(self) -> None:
        """Remove all files."""
        self._folder.cleanup()


def _check_name(name: object) -> None:
    # As a file of that name is made, and shown in a command line.
    if (
        not isinstance(name, str)
        or not _NAME.fullmatch(name)
        or COMMANDS.search(name)
        or len(name.encode()) > 240
    ):
        raise InputError(f"file {name!r:.60}: expected a plain name of at most 200 characters")
