"""A corpus: traces as tokens with their conditions, in parts that are written whole and never twice."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.files import check_folder, replacing, write_text
from armillary.base.json_text import parse_json
from armillary.base.packing import check_members
from armillary.base.pool import process_pool
from armillary.base.reading import MOST_FILE, check_size
from armillary.lab.learned.records import Record, arrays_of, record_of, records_of
from armillary.lab.learned.requests import Request, draw, read_request
from armillary.lab.learned.vocabulary import COLUMNS, Vocabulary
from armillary.trace import load_trace

FORMAT = "armillary corpus 2"
PART = 16
"""Traces of a part, if they are generated."""
FILES = "files-"
"""Prefix of the names of parts that were read from files."""


@dataclass(eq=False)
class Corpus:
    """All traces, over one vocabulary."""

    vocabulary: Vocabulary
    records: list[Record]
    sources: list[str] = field(default_factory=list)
    digest: str = ""


def write_corpus(
    folder: Path,
    prefixes: Sequence[str],
    plans: Sequence[Path],
    *,
    jobs: int = 1,
    told: Callable[[int, int], None] = lambda done, all_parts: None,
) -> int:
    """Write the missing parts, and return the number of traces that the corpus has then.

    Args:
        folder: Folder of the corpus.
        prefixes: Prefixes of traces in files, as `load_trace` takes them.
        plans: Files of requests, see `requests`.
        jobs: Number of processes.
        told: Called with the number of parts that are done and of all parts.

    Raises:
        InputError: a trace or a plan cannot be read, or the folder has another corpus.
    """
    requests = [(path.name, read_request(path)) for path in plans]
    wanted: dict[str, Callable[[], bytes]] = {}
    there = {_of_files(file): file for file in _parts(folder) if file.startswith(FILES)}
    for prefix in prefixes:
        name = name_of(prefix)
        # The hash tells whether a part of this name is of this prefix or of another, which is refused.
        file = f"{FILES}{name}-{hashlib.sha256(os.fsencode(prefix)).hexdigest()[:12]}.npz"
        if there.setdefault(name, file) != file:
            raise InputError(
                f"{folder}: two traces of files are called '{name}', the second is {prefix}; expected different names"
                " of prefixes, or of the folders of prefixes 'rank'"
            )
        wanted[file] = partial(_read_part, prefix, name)
    for name, request in requests:
        # The text of the request is part of the name: a changed plan gives new parts, an unchanged one finds its own.
        tag = hashlib.sha256(request.text.encode()).hexdigest()[:8]
        for part in range(-(-request.count // PART)):
            count = min(PART, request.count - part * PART)
            wanted[f"{Path(name).stem}-{tag}-{part:05d}.npz"] = partial(
                _drawn_part, name, request, part, count
            )
    if not wanted:
        raise InputError("no trace is asked for, expected --from TRACES or --generate PLAN.yaml")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file, expected a folder for the corpus")
    # Made with the first part: a trace that cannot be read leaves no empty folder.
    check_folder("corpus", folder)
    missing = {name: made for name, made in wanted.items() if not (folder / name).exists()}
    told(len(wanted) - len(missing), len(wanted))
    for done, (name, data) in enumerate(_each(missing, jobs), len(wanted) - len(missing) + 1):
        # Whole or not at all: an interrupted run leaves no part that the next one would take for done.
        with replacing(folder / name) as temporary:
            temporary.write_bytes(data)
        told(done, len(wanted))
    write_text(
        folder / "corpus.json", json.dumps({"format": FORMAT, "parts": sorted(_parts(folder))}, indent=1)
    )
    return len(read_corpus(folder).records)


def _each(missing: dict[str, Callable[[], bytes]], jobs: int) -> Iterator[tuple[str, bytes]]:
    if jobs == 1 or len(missing) < 2:
        for name, made in missing.items():
            yield name, made()
        return
    with process_pool(jobs) as pool:
        futures = {pool.submit(made): name for name, made in missing.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def name_of(prefix: str) -> str:
    """Return the name of a trace in a corpus: the last part of its prefix, but DIR of the usual DIR/rank."""
    path = Path(prefix)
    return path.resolve().parent.name if path.name == "rank" else path.name


def _of_files(file: str) -> str:
    """Return the name of the trace of a part that was read from files."""
    return file.removeprefix(FILES).rpartition("-")[0]


def _read_part(prefix: str, name: str) -> bytes:
    trace, vocabulary = load_trace(prefix), Vocabulary()
    return _encoded([record_of(trace, {"trace": name, "ranks": trace.n_ranks}, name, vocabulary)], vocabulary)


def _drawn_part(name: str, request: Request, part: int, count: int) -> bytes:
    vocabulary = Vocabulary()
    records = [
        record_of(trace, wished.condition, name, vocabulary) for wished, trace in draw(request, part, count)
    ]
    return _encoded(records, vocabulary)


def _encoded(records: Sequence[Record], vocabulary: Vocabulary) -> bytes:
    arrays, header = arrays_of(records)
    header |= {"format": FORMAT, "columns": COLUMNS, "symbols": vocabulary.to_json()}
    out = io.BytesIO()
    np.savez_compressed(out, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return out.getvalue()


def _parts(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.npz")]


def read_corpus(folder: Path) -> Corpus:
    """Read all parts of a corpus; a condition that was drawn twice has one record.

    Raises:
        InputError: the folder is no corpus, or a part is damaged.
    """
    names = sorted(_parts(folder)) if folder.is_dir() else []
    if not names:
        raise InputError(
            f"{folder}: no corpus, expected a folder that `armillary generate learn corpus` wrote"
        )
    corpus, seen, digest = Corpus(Vocabulary(), []), set(), hashlib.sha256()
    for name in names:
        for record in _decoded(folder / name, corpus.vocabulary, digest):
            key = json.dumps(record.condition, sort_keys=True)
            if key not in seen:
                seen.add(key)
                corpus.records.append(record)
    corpus.sources = sorted({record.source for record in corpus.records})
    corpus.digest = digest.hexdigest()[:16]
    return corpus


def _decoded(path: Path, vocabulary: Vocabulary, digest: Any) -> list[Record]:
    try:
        check_size(path, MOST_FILE)
        with np.load(path, allow_pickle=False) as found:
            check_members(found.zip, path)
            arrays = {name: found[name] for name in found.files}
        header = parse_json(arrays["header"].tobytes(), path)
        if header["format"] != FORMAT or tuple(header["columns"]) != COLUMNS:
            raise ValueError(header["format"])
        # The contents, not the bytes of the file, which depend on the compressor.
        digest.update(arrays["header"].tobytes())
        digest.update(np.ascontiguousarray(arrays["rows"]).tobytes())
        symbols = Vocabulary.from_json(header["symbols"], str(path)).symbols
        # Every part numbers its symbols from 0; here they get those of the whole corpus.
        place = np.array([vocabulary.number(symbol) for symbol in symbols], np.int64)
        return records_of(arrays, header, place)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: no part of a corpus of this version ({FORMAT}), expected one to be made again"
        ) from error
