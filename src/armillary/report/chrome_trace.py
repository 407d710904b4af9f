"""Chrome trace events as JSON text: what ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from armillary.base.files import replacing

_EXACT_IN_JSON = 2**53
_BATCH = 10_000


def write(path: str | os.PathLike[str], about: Mapping[str, Any], events: Iterable[str]) -> None:
    """Write events, each a JSON object, as a trace file, compressed if `path` ends in ``.gz``.

    Raises:
        InputError: the file cannot be written; then there is none.
    """
    with replacing(path) as temporary, temporary.open("wb") as raw:
        if str(path).endswith(".gz"):
            # No time stamp and no name, so that the same events give the same file.
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=3, mtime=0) as packed:
                _write(packed, about, events)
        else:
            _write(raw, about, events)


def _write(stream: BinaryIO | gzip.GzipFile, about: Mapping[str, Any], events: Iterable[str]) -> None:
    stream.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'.encode())
    # JSON allows no trailing comma, so each batch but the first begins with one.
    before = ""
    batch: list[str] = []
    for event in events:
        batch.append(event)
        if len(batch) == _BATCH:
            stream.write((before + ",\n".join(batch)).encode())
            before, batch = ",\n", []
    if batch:
        stream.write((before + ",\n".join(batch)).encode())
    stream.write(b"\n]}\n")


def metadata(pid: int, tid: int, name: str, args: Mapping[str, Any]) -> str:
    """Return an event that names or orders a process or thread."""
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{name}","args":{json.dumps(args)}}}'


def slice_(pid: int, tid: int, begin: int, end: int, rest: str) -> str:
    """Return an event that lasts from `begin` to `end` in ns; `rest` is the text that the function `rest` returns."""
    # A complete event (X) in one object, instead of a begin and an end event.
    return f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{micros(begin)},"dur":{micros(end - begin)},{rest}}}'


def rest(name: str, category: str, args: Mapping[str, Any]) -> str:
    """Return the part of an event apart from time and thread, as JSON text without braces."""
    return f'"name":{json.dumps(name)},"cat":"{category}","args":{json.dumps(args)}'


def identifier(number: int) -> int | str:
    """Return a node id as a number, or as text if readers of JSON would round it."""
    return number if number <= _EXACT_IN_JSON else str(number)


def micros(ns: int) -> str:
    """Return a time in ns as text in µs, the unit of the format, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"
