"""A corpus: traces as tokens with their conditions, in parts that are written whole and never twice."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files import replacing, write_text
from armillary.trace import Trace, load_trace
from armillary.workload.learned.conditions import Value
from armillary.workload.learned.packed import Packed, pack
from armillary.workload.learned.requests import Request, draw, read_request
from armillary.workload.learned.tokens import tokens_of
from armillary.workload.learned.vocabulary import COLUMNS, Vocabulary

FORMAT = "armillary corpus 1"
PART = 16
"""Traces of a part that are generated."""


@dataclass(frozen=True, eq=False)
class Record:
    """A trace of a corpus.

    Attributes:
        condition: What it was made for; of a trace in files its name and the number of its ranks.
        classes: Tokens of each of its graphs.
        ranks: How many ranks run each.
        source: Where it comes from.
        rank_graph: Of a trace that was read from files: the graph of every rank; empty for others.
    """

    condition: dict[str, Value]
    classes: tuple[Packed, ...]
    ranks: tuple[int, ...]
    source: str
    rank_graph: tuple[int, ...] = ()


@dataclass(eq=False)
class Corpus:
    """All traces, over one vocabulary."""

    vocabulary: Vocabulary
    records: list[Record]
    sources: list[str] = field(default_factory=list)
    digest: str = ""


def record_of(trace: Trace, condition: dict[str, Value], source: str, vocabulary: Vocabulary) -> Record:
    """Return a trace as a record.

    Raises:
        InputError: tokens cannot say something of it.
    """
    classes = tuple(pack(tokens_of(graph, vocabulary)) for graph in trace.graphs)
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    listed = () if trace.grid is not None else tuple(trace.rank_graph.tolist())
    return Record(condition, classes, tuple(ranks), source, listed)


def write_corpus(
    folder: Path,
    prefixes: Sequence[str],
    plans: Sequence[Path],
    *,
    jobs: int = 1,
    told: Callable[[int, int], None] = lambda done, all_parts: None,
) -> int:
    """Write the parts that are missing, and return how many traces the corpus has then.

    Args:
        folder: Where to.
        prefixes: Of traces in files, as `load_trace` takes them.
        plans: Files of what to generate, see `requests`.
        jobs: Processes.
        told: Called with the parts that are done and all parts.

    Raises:
        InputError: a trace or a plan cannot be read, or the folder has another corpus.
    """
    requests = [(path.name, read_request(path)) for path in plans]
    wanted: dict[str, Callable[[], bytes]] = {}
    for prefix in prefixes:
        name = f"{hashlib.sha256(str(prefix).encode()).hexdigest()[:12]}.npz"
        wanted[f"files-{name}"] = partial(_read_part, str(prefix))
    for name, request in requests:
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
    folder.mkdir(parents=True, exist_ok=True)
    missing = {name: made for name, made in wanted.items() if not (folder / name).exists()}
    told(len(wanted) - len(missing), len(wanted))
    for done, (name, data) in enumerate(_each(missing, jobs), len(wanted) - len(missing) + 1):
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
    with ProcessPoolExecutor(jobs) as pool:
        futures = {pool.submit(made): name for name, made in missing.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _read_part(prefix: str) -> bytes:
    trace, vocabulary = load_trace(prefix), Vocabulary()
    return _encoded(
        [record_of(trace, {"trace": Path(prefix).name, "ranks": trace.n_ranks}, prefix, vocabulary)],
        vocabulary,
    )


def _drawn_part(name: str, request: Request, part: int, count: int) -> bytes:
    vocabulary = Vocabulary()
    records = [
        record_of(trace, wished.condition, name, vocabulary) for wished, trace in draw(request, part, count)
    ]
    return _encoded(records, vocabulary)


def _encoded(records: Sequence[Record], vocabulary: Vocabulary) -> bytes:
    arrays: dict[str, Any] = {}
    listed = []
    classes = [each for record in records for each in record.classes]
    for record in records:
        listed.append([record.condition, record.ranks, record.source, record.rank_graph, len(record.classes)])
    for name in ("rows", "row", "reference", "labels"):
        parts = [getattr(each, name) for each in classes]
        arrays[name] = np.concatenate(parts, axis=1 if name == "labels" else 0)
        arrays[f"{name}_size"] = np.array(
            [part.shape[-1] if name == "labels" else len(part) for part in parts]
        )
    references = [each.references for each in classes]
    header = {
        "format": FORMAT, "columns": COLUMNS, "symbols": vocabulary.to_json(), "records": listed,
        "references": references,
    }  # fmt: skip
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _parts(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.npz")]


def read_corpus(folder: Path) -> Corpus:
    """Read all parts of a corpus; what was drawn twice is there once.

    Raises:
        InputError: the folder is none, or a part is damaged.
    """
    names = sorted(_parts(folder)) if folder.is_dir() else []
    if not names:
        raise InputError(f"{folder}: no corpus, expected a folder that `armillary learn corpus` wrote")
    corpus, seen, digest = Corpus(Vocabulary(), []), set(), hashlib.sha256()
    for name in names:
        for record in _decoded(folder / name, corpus.vocabulary, digest):
            key = json.dumps(record.condition, sort_keys=True) + (record.source if record.rank_graph else "")
            if key not in seen:
                seen.add(key)
                corpus.records.append(record)
    corpus.sources = sorted({record.source for record in corpus.records})
    corpus.digest = digest.hexdigest()[:16]
    return corpus


def _decoded(path: Path, vocabulary: Vocabulary, digest: Any) -> list[Record]:
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        header = json.loads(arrays["header"].tobytes())
        if header["format"] != FORMAT or tuple(header["columns"]) != COLUMNS:
            raise ValueError(header["format"])
        digest.update(arrays["header"].tobytes())
        digest.update(np.ascontiguousarray(arrays["rows"]).tobytes())
        symbols = Vocabulary.from_json(header["symbols"], str(path)).symbols
        place = np.array([vocabulary.number(symbol) for symbol in symbols], np.int64)
        ends = {
            name: np.cumsum(arrays[f"{name}_size"])[:-1] for name in ("rows", "row", "reference", "labels")
        }
        split = {name: np.split(arrays[name], ends[name], axis=1 if name == "labels" else 0) for name in ends}
        classes = []
        for at, lists in enumerate(header["references"]):
            rows = split["rows"][at].copy()
            rows[:, 0] = place[rows[:, 0]]
            references = tuple(
                tuple((form, int(place[named]) if named >= 0 else -1, count) for form, named, count in each)
                for each in lists
            )
            classes.append(
                Packed(rows, split["row"][at], references, split["reference"][at], split["labels"][at])
            )
        records, at = [], 0
        for condition, ranks, source, listed, many in header["records"]:
            records.append(
                Record(condition, tuple(classes[at : at + many]), tuple(ranks), source, tuple(listed))
            )
            at += many
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: no part of a corpus of this version ({FORMAT}), expected one to be made again"
        ) from error
    return records
