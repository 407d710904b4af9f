"""Read records of NCCL's inspector, and traces of its example profiler (Chrome's format).

The inspector writes one JSON object per collective and communicator, a line each or one after the other. Sizes are
``coll_msg_size_bytes``, which of an all-gather and a reduce-scatter is one rank's part (its own bandwidth tells it).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from armillary.base.counts import MOST_RECORDED, check_count
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.json_text import check_json
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_TEXT, check_depth, decoded
from armillary.trace import CollectiveType
from armillary.trace.graph import LIMIT

OPERATIONS = {
    "allreduce": CollectiveType.ALL_REDUCE, "allgather": CollectiveType.ALL_GATHER,
    "reducescatter": CollectiveType.REDUCE_SCATTER, "broadcast": CollectiveType.BROADCAST,
    "reduce": CollectiveType.REDUCE, "alltoall": CollectiveType.ALL_TO_ALL, "gather": CollectiveType.GATHER,
    "scatter": CollectiveType.SCATTER,
}  # fmt: skip
# Of these the recorded size is one rank's part of what all ranks have together.
_PARTS = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
_BYTES = {"int8": 1, "char": 1, "uint8": 1, "float8e4m3": 1, "float8e5m2": 1, "half": 2, "float16": 2, "bfloat16": 2,
          "int32": 4, "int": 4, "uint32": 4, "float": 4, "float32": 4, "int64": 8, "uint64": 8, "double": 8,
          "float64": 8}  # fmt: skip
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Call:
    """A collective as one process recorded it.

    Attributes:
        comm: Of its communicator: the same text on all ranks.
        rank: Of the process within it.
        ranks: How many it has; 0: the record does not say.
        operation: What it computes.
        number: Of the call among those of its communicator.
        size: Bytes, as ``comm_size`` of Chakra counts them.
        ns: How long it took.
        start: When it began, ns of the process's clock; None: not recorded.
    """

    comm: str
    rank: int
    ranks: int
    operation: CollectiveType
    number: int
    size: int
    ns: int
    start: int | None = None


@dataclass
class Process:
    """The calls of one process, in the order in which they were recorded; `other` counts what is no collective."""

    name: str
    calls: list[Call] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)


def read_records(path: Path) -> list[Process]:
    """Return the processes of a file.

    Raises:
        InputError: it cannot be read, or is neither; names the record and the key.
    """
    try:
        data = bytes(read_unpacked(path, MOST_TEXT))
        text = decoded(data, path)
    except OSError as error:
        raise InputError(
            f"{path}: {(error.strerror or str(error)).lower()}, expected records of NCCL"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: byte {error.start} is not UTF-8") from None
    documents = list(_documents(text, path))
    if len(documents) == 1 and isinstance(documents[0], dict) and "traceEvents" in documents[0]:
        documents = [documents[0]["traceEvents"]]
    if len(documents) == 1 and isinstance(documents[0], list):
        found = documents[0]
        if any(isinstance(each, dict) and "ph" in each for each in found):
            return [_profiled(path, found)]
        documents = found
    if not documents:
        raise InputError(f"{path}: is empty, expected records of NCCL's inspector or profiler")
    processes: dict[str, Process] = {}
    check_count(len(documents), MOST_RECORDED, f"{path}: records", "shorter files")
    for number, record in enumerate(documents, 1):
        _inspected(f"{path}: record {number}", record, processes, path.name)
    return list(processes.values())


def _documents(text: str, path: Path) -> Iterator[Any]:
    """Yield JSON values that stand one after the other."""
    check_json(text, path)
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at == len(text):
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except RecursionError:
            raise InputError(f"{path}: nested too deeply, expected records of NCCL") from None
        except ValueError as error:
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            raise InputError(
                f"{path}:{line}: not valid JSON: {getattr(error, 'msg', 'a long number')}"
            ) from None
        check_depth(value, path)
        yield value


class _Record:
    """An object of a file, whose values are checked as they are taken."""

    def __init__(self, where: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: got {show(value)}, expected an object")
        self.where, self.value = where, value

    def part(self, key: str) -> _Record:
        return _Record(f"{self.where}: {key}", self.value.get(key))

    def text(self, key: str) -> str:
        found = self.value.get(key)
        if not isinstance(found, str | int) or isinstance(found, bool) or found == "":
            self._wrong(key, found, "a text")
        return str(found)

    def whole(self, key: str, low: int = 0, high: int = LIMIT - 1) -> int:
        found = self.value.get(key)
        # NCCL's profiler writes some counts as texts.
        if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 20:
            found = int(found)
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            self._wrong(key, found, f"a whole number from {low} to {high}")
        return found

    def ns(self, key: str) -> int:
        """Return a time that is given in µs."""
        found = self.value.get(key)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < LIMIT / 1000:
            self._wrong(key, found, "a time in µs")
        return round(found * 1000)

    def _wrong(self, key: str, found: object, expected: str) -> NoReturn:
        raise InputError(f"{self.where}: {key}: got {show(found)}, expected {expected}")


def _inspected(where: str, value: Any, processes: dict[str, Process], file: str) -> None:
    record = _Record(where, value)
    about = record.value.get("metadata")
    name = file
    if isinstance(about, Mapping) and "pid" in about:
        name = f"{str(about.get('hostname', ''))[:80]} process {str(about['pid'])[:80]}"
    process = processes.setdefault(name, Process(name))
    if "coll_perf" not in record.value:
        process.other["p2p" if "p2p_perf" in record.value else "record without coll_perf"] += 1
        return
    header, call = record.part("header"), record.part("coll_perf")
    kind = OPERATIONS.get(call.text("coll").lower())
    if kind is None:
        process.other[call.text("coll")] += 1
        return
    ranks = header.whole("n_ranks", 1, _MOST_RANKS)
    size, ns = call.whole("coll_msg_size_bytes"), call.ns("coll_exec_time_us")
    if kind in _PARTS and not _whole_message(call.value, size, ns, ranks):
        size = size * ranks if kind == CollectiveType.REDUCE_SCATTER else size
    elif kind == CollectiveType.ALL_GATHER:
        size //= ranks
    start = _started(call)
    if size >= LIMIT:
        raise InputError(f"{where}: coll_msg_size_bytes: {size} bytes in all, expected less than {LIMIT}")
    comm, rank = header.text("id"), header.whole("rank", 0, ranks - 1)
    process.calls.append(Call(comm, rank, ranks, kind, call.whole("coll_sn"), size, ns, start))


def _whole_message(call: Mapping[str, Any], size: int, ns: int, ranks: int) -> bool:
    """Return whether the size is that of all ranks together: then bytes over time are the stated bandwidth."""
    rate = call.get("coll_algobw_gbs")
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not size or not ns or ranks == 1:
        return False
    # GB/s are bytes per ns. One part is `ranks` times less: between both is their geometric mean.
    return bool(rate * ns < size * ranks**0.5)


def _started(call: _Record) -> int | None:
    traced = call.value.get("event_trace_ts")
    if not isinstance(traced, Mapping) or "coll_start_ts" not in traced:
        return None
    return call.part("event_trace_ts").ns("coll_start_ts")


def _profiled(path: Path, events: list[Any]) -> Process:
    """Return the collectives of a trace: pairs of events of category COLL."""
    process, open_calls = Process(path.name), dict[str, _Record]()
    for number, value in enumerate(events, 1):
        if not isinstance(value, Mapping) or value.get("cat") != "COLL":
            if isinstance(value, Mapping) and value.get("cat") == "P2P" and value.get("ph") == "b":
                process.other["p2p"] += 1
            continue
        event = _Record(f"{path}: event {number}", value)
        # Events of one call share their id.
        key = f"{value.get('pid')} {value.get('id')}"
        if value.get("ph") == "b":
            open_calls[key] = event
            continue
        begin = open_calls.pop(key, None)
        if value.get("ph") != "e" or begin is None:
            raise InputError(
                f"{event.where}: ph {show(value.get('ph'))} without its beginning, expected b and then e"
            )
        call = _of_events(begin, event, process)
        if call is not None:
            process.calls.append(call)
    if open_calls:
        process.other["collective without an end"] += len(open_calls)
    return process


def _of_events(begin: _Record, end: _Record, process: Process) -> Call | None:
    name, about = begin.text("name"), begin.part("args")
    kind = OPERATIONS.get(name.lower().removeprefix("nccl"))
    if kind is None:
        process.other[name] += 1
        return None
    dtype = about.text("Datatype").lower().removeprefix("nccl")
    if dtype not in _BYTES:
        raise InputError(f"{about.where}: Datatype: got {show(dtype)}, expected one of {', '.join(_BYTES)}")
    start, stop = begin.ns("ts"), end.ns("ts")
    if stop < start:
        raise InputError(
            f"{end.where}: ts: got {stop / 1000:g} µs, expected no less than {start / 1000:g}, its beginning"
        )
    size = about.whole("Count", 0, LIMIT // 8 - 1) * _BYTES[dtype]
    comm, rank = about.text("CommHash"), about.whole("Rank", 0, _MOST_RANKS)
    return Call(comm, rank, 0, kind, about.whole("SeqNum"), size, stop - start, start)
