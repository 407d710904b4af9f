"""What was captured, as classes of ranks that do the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.capture.kinds import Kind
from armillary.capture.log import COMMUNICATION, HOST, JOIN, OPERATOR, Communication, Ints, Log
from armillary.capture.mesh import Mesh, mesh_of
from armillary.capture.rank_files import short_ranks
from armillary.capture.values import EVEN

MOST_LISTED = 1024
"""Largest group whose ranks a JSON file lists; of a larger one it has the rule, where there is one."""

MOST_RUN = 256
"""Ranks of which each is run, where nothing follows from the others."""
WHOLE, EXACT, WORK = range(3)
"""What ranks are compared by: all; all between the first and the last GEMM; GEMMs, attention and communications."""
WITNESSES = 3
"""Ranks of a place that have to do the same where one of it differs."""


@dataclass(frozen=True)
class RankClass:
    """Ranks that do the same, apart from which ranks their groups have, and uneven shards.

    Attributes:
        ranks: All of them, as far as they follow from those that were run.
        run: Those that were run.
        log: Of the first of these.
        uneven: Operators of which some ranks that were run have other sizes: shards that do not divide evenly.
    """

    ranks: tuple[int, ...]
    run: tuple[int, ...]
    log: Log
    uneven: int = 0


def classes(logs: Sequence[Log], mesh: Mesh | None = None) -> list[RankClass]:
    """Return the classes of ranks, in the order of their first rank that was run.

    A rank that was not run is in the class of those at its place in the pipeline, if they all do the same but for the
    first or last one; without a mesh, or where they differ, it is in none. Where some were not run, shards of gradients
    and of the optimizer may be of more or fewer pieces, and the one with most operators stands for the others. So it is
    where there are too many ranks to run all, and they have the same GEMMs, operations of attention and
    communications: in a ring, each rank cuts and copies other parts of the keys.

    Args:
        logs: Of the ranks that were run.
        mesh: As `mesh_of` finds it; None: it is asked.
    """
    logs = sorted(logs, key=lambda each: each.rank)
    mesh = mesh or mesh_of(logs)
    all_run = len(logs) == logs[0].ranks
    found = _classes(logs, mesh, all_run, what=EXACT)
    if sum(len(each.ranks) for each in found) < logs[0].ranks and logs[0].ranks > MOST_RUN:
        rough = _classes(logs, mesh, all_run, what=WORK)
        if sum(len(each.ranks) for each in rough) == logs[0].ranks:
            return rough
    return found


def _classes(logs: Sequence[Log], mesh: Mesh | None, all_run: bool, what: int) -> list[RankClass]:
    alike: dict[str, list[Log]] = {}
    for log in logs:
        alike.setdefault(structure(log, mesh, WHOLE if all_run else what), []).append(log)
    found = list(alike.values())
    ranks = {at: [log.rank for log in each] for at, each in enumerate(found)}
    if mesh is not None and not all_run:
        number = {log.rank: at for at, each in enumerate(found) for log in each}
        place = _places(mesh, logs)
        one = np.full(int(place.max()) + 1, -1, np.int64)
        for where in np.unique(place[list(number)]).tolist():
            there = np.flatnonzero(place == where)
            one[where] = _usual({rank: number[rank] for rank in there.tolist() if rank in number}, there)
        of_rank = one[place]
        of_rank[list(number)] = list(number.values())
        ranks = {at: np.flatnonzero(of_rank == at).tolist() for at in range(len(found))}
    return [
        RankClass(tuple(ranks[at]), tuple(log.rank for log in each), max(each, key=_operators), _uneven(each))
        for at, each in enumerate(found)
    ]


def witnesses(logs: Sequence[Log], per_host: int) -> set[int]:
    """Return ranks that tell, when they are run too, whether only the first or the last one of a place differs.

    Of each place whose ranks that were run differ: the second and third, the one before the last, and the first of
    the second host of `per_host` ranks, as each host may have one that writes a log.
    """
    mesh, found = mesh_of(logs), set[int]()
    if mesh is None:
        return found
    number = {log.rank: structure(log, mesh, WORK if logs[0].ranks > MOST_RUN else EXACT) for log in logs}
    place = _places(mesh, logs)
    for where in np.unique(place[list(number)]).tolist():
        there = np.flatnonzero(place == where)
        run = [rank for rank in there.tolist() if rank in number]
        if len({number[rank] for rank in run}) > 1:
            host = int(np.searchsorted(there, there[0] + per_host))
            found |= {int(there[at]) for at in (1, 2, host, -2) if -len(there) <= at < len(there)}
    return found - number.keys()


def _places(mesh: Mesh, logs: Sequence[Log]) -> Ints:
    """Return the place of each rank in the pipeline, (ranks,)."""
    place = np.zeros(mesh.ranks, np.int64)
    for axis in mesh.stages(logs):
        here = np.arange(mesh.ranks) // mesh.strides[axis] % mesh.sizes[axis]
        place = place * mesh.sizes[axis] + here
    return place


def _usual(run: dict[int, int], there: Ints) -> int:
    """Return the class of the ranks of a place that were not run; -1: nobody knows.

    One that alone differs, the first or the last of its place, is the one that writes the log of the program, and reads
    the loss for it. That the others do not is known where enough of them do the same.
    """
    kinds = Counter(run.values())
    for rank in (int(there[0]), int(there[-1])):
        if len(kinds) > 1 and rank in run and kinds[run[rank]] == 1:
            del kinds[run[rank]]
    [(found, count), *others] = kinds.most_common()
    return found if not others and (count == len(run) or count >= WITNESSES) else -1


def structure(log: Log, mesh: Mesh | None, by: int = WHOLE) -> str:
    """Return a digest of what a rank does: operators, streams, events and communications in order.

    GEMMs and attention count with their shapes, communications with their bytes and with the axes of their groups and
    messages; all other operators by their names, as shards may be uneven. Unless it is `by` the whole, those before the
    first and after the last GEMM do not count, and the host waits once where it does so several times in a row: an
    optimizer whose shards are cut from one buffer works on as many pieces as there are parameters in a rank's part of
    it. By its work, attention counts with its operations, and operators do not count that are neither.
    """
    kind, what, stream, place, _ = log.columns
    products = np.array([each.products for each in log.kinds], np.bool_)
    operator, call = kind == OPERATOR, kind == COMMUNICATION
    counted = np.ones(len(kind), np.bool_)
    if by != WHOLE and (at := np.flatnonzero(operator)[products[what[operator]]]).size:
        counted[: at[0]][operator[: at[0]]] = counted[at[-1] + 1 :][operator[at[-1] + 1 :]] = False
    if by == WORK:
        counted[operator] &= products[what[operator]]
    groups = [(mesh.group(ranks) if mesh else "") or len(ranks) for ranks in log.groups]
    # What each row is of: numbers in the order of first rows, and what they stand for.
    meant = what.copy()
    meant[operator], kinds = _in_order(
        what[operator], counted[operator], [_kind(each, by) for each in log.kinds]
    )
    different, which = log.different()
    ends = [
        (each.type, each.input, each.output, groups[each.group], each.own_stream, _end(log, each, mesh))
        for each in different
    ]
    meant[call], calls = _in_order(which[what[call]], counted[call], ends)
    event = ~operator & ~call & (kind != JOIN)
    meant[event], _ = _in_order(what[event], counted[event])
    module, modules = _in_order(place, counted, [each.module for each in log.places])
    rows = np.stack([kind, meant, stream, module])[:, counted]
    if by != WHOLE and rows.shape[1]:
        # Optimizers may read a number for each piece.
        again = (rows[0] == HOST) & np.append(False, (rows[:, 1:] == rows[:, :-1]).all(axis=0))
        rows = rows[:, ~again]
    digest = hashlib.sha256(repr((kinds, calls, modules)).encode())
    digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()


def _kind(kind: Kind, by: int) -> tuple[Any, ...]:
    """Return what counts of an operator."""
    # Half of the queries with all of the keys, or all of them with half of the keys: the same work.
    shapes = kind.flops if by == WORK and kind.family == "attention" else kind.inputs
    return kind.name, shapes if kind.products else ""


def _in_order(
    of: Ints, counted: NDArray[np.bool_], values: Sequence[Any] | None = None
) -> tuple[Ints, list[Any]]:
    """Return numbers of the values of rows in the order in which they are first counted, and the values.

    Args:
        of: Which value each row has.
        counted: Which rows count; the numbers of others mean nothing.
        values: Of which some may be equal; None: they are numbers, and all differ.
    """
    if values is None:
        _, of = np.unique(of, return_inverse=True)
    else:
        number: dict[Any, int] = {}
        of = np.array([number.setdefault(each, len(number)) for each in values], np.int64)[of]
    many = int(of.max()) + 1 if len(of) else 0
    first = np.full(many, len(of))
    at = np.flatnonzero(counted)[::-1]
    first[of[at]] = at
    order = np.argsort(first, kind="stable")[: int((first < len(of)).sum())]
    found = np.full(many, -1)
    found[order] = np.arange(len(order))
    return found[of], [] if values is None else [list(number)[each] for each in order.tolist()]


def _end(log: Log, each: Communication, mesh: Mesh | None) -> Any:
    """Return where the other end of a message is, or the root of a collective, in a way that equal ranks share."""
    if each.peer < 0:
        return None
    if each.type in ("send", "recv"):
        return (mesh.way(log.rank, each.peer) if mesh else None) or each.peer - log.rank
    return log.groups[each.group].index(each.peer) if each.peer in log.groups[each.group] else each.peer


def _operators(log: Log) -> int:
    return len(log.of_kind(OPERATOR))


def _times(log: Log) -> dict[int, int]:
    """Return how often each operator ran, by its number in `Log.kinds`, in the order of first rows."""
    return Counter(log.of_kind(OPERATOR).columns[1].tolist())


def _uneven(logs: Sequence[Log]) -> int:
    number: dict[Any, int] = {}
    rows = [
        np.array([number.setdefault(kind.inputs, len(number)) for kind in log.kinds], np.int64)[
            log.of_kind(OPERATOR).columns[1]
        ]
        for log in logs
    ]
    if len(set(map(len, rows))) == 1:
        return int((np.stack(rows) != rows[0]).any(axis=0).sum())
    counts = [np.bincount(each, minlength=len(number)) for each in rows]
    longest = counts[max(range(len(rows)), key=lambda at: len(rows[at]))]
    return max(int(np.maximum(longest - each, 0).sum()) for each in counts)


def flops(log: Log) -> dict[str, int]:
    """Return the operations of a rank: GEMMs and convolutions, attention, and all others."""
    found = {"gemm": 0, "attention": 0, "other": 0}
    for at, times in _times(log).items():
        kind = log.kinds[at]
        name = "attention" if kind.family == "attention" else "gemm" if kind.products else "other"
        found[name] += kind.flops * times
    return found


def streams(log: Log) -> set[int]:
    """Return the streams that something ran on, below 0 those that groups have to themselves."""
    return {log.stream_of(row) for row, _ in log.issued()} | set(log.of_kind(OPERATOR).columns[2].tolist())


def unknown(log: Log) -> dict[str, int]:
    """Return operators that no rule knows, and how often they ran."""
    found: Counter[str] = Counter()
    for at, times in _times(log).items():
        if not log.kinds[at].family:
            found[log.kinds[at].name] += times
    return dict(found)


def assumptions(logs: Sequence[Log]) -> list[str]:
    """Return sentences: which values of tensors were assumed, and that experts are."""
    assumed = Counter[str]()
    for each in logs:
        assumed |= Counter(each.assumed)
    found = []
    if assumed:
        place, count = assumed.most_common(1)[0]
        found.append(f"values of tensors: {assumed.total()}, most at {place or 'PyTorch'} ({count})")
    return found + [EVEN] * any(EVEN in each.notes for each in logs)


def collectives(log: Log) -> list[dict[str, Any]]:
    """Return collectives and messages in the order in which the host issued them, as plain JSON values.

    ``bytes`` is the whole vector: what an all-gather has afterwards, what a reduce-scatter begins with. A ``stream``
    below 0 is a group's own.
    """
    found = []
    groups = [list(ranks) if len(ranks) <= MOST_LISTED else short_ranks(ranks) for ranks in log.groups]
    for row, each in log.issued():
        place = log.places[row.place]
        entry: dict[str, Any] = {
            "type": each.type, "bytes": each.bytes, "input_bytes": each.input, "output_bytes": each.output,
            "group": groups[each.group], "stream": log.stream_of(row), "module": place.module,
            "line": place.line, "backward": place.backward,
        }  # fmt: skip
        found.append(entry | ({"peer": each.peer} if each.peer >= 0 else {}))
    return found


def document(logs: Sequence[Log]) -> dict[str, Any]:
    """Return what was captured as plain JSON values, bytes and operations per rank."""
    first = logs[0]
    return {
        "script": first.script, "ranks": first.ranks, "device": first.device, "torch": first.torch, "step": first.step,
        "classes": [
            {
                "ranks": list(each.ranks), "run": list(each.run), "representative": each.log.rank,
                "operators": _operators(each.log), "flops": sum(flops(each.log).values()),
                "flops_by_kind": flops(each.log), "peak_bytes": each.log.peak_bytes,
                "reserved_bytes": each.log.reserved_bytes, "uneven": each.uneven,
                "streams": len(streams(each.log)),
                "unknown": unknown(each.log), "assumed": dict(each.log.assumed), "notes": list(each.log.notes),
                "collectives": collectives(each.log),
            }
            for each in classes(logs)
        ],
    }  # fmt: skip
