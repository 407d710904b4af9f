"""Check that every send meets a receive, and every receive a send."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from armillary.base.units import format_bytes
from armillary.trace.communication import I64, Communication, name_of
from armillary.trace.structure import Diagnostic
from armillary.trace.trace import Trace

_SHOWN = 3
_KINDS = {
    "size": "message{s} that the receiver awaits with another size",
    "sent": "message{s} that no rank receives",
    "awaited": "receive{s} of a message that no rank sends",
    "range": "message{s} from or to a rank that is not there",
    "self": "message{s} of a rank with itself",
    "own": "message{s} that name another rank than the one that runs them",
}


@dataclass
class _Findings:
    """Findings by kind: how often, and a few examples."""

    counts: Counter[str]
    texts: dict[str, list[str]]

    def add(self, kind: str, count: int, text: Callable[[], str]) -> None:
        self.counts[kind] += count
        if len(self.texts[kind]) < _SHOWN:
            self.texts[kind].append(text())

    def diagnostics(self) -> Iterator[Diagnostic]:
        for kind, count in self.counts.items():
            texts = self.texts[kind]
            more = "; …" if count > len(texts) else ""
            what = _KINDS[kind].format(s="s" * (count > 1))
            yield Diagnostic("error", None, f"{count} {what}: {'; '.join(texts)}{more}")


@dataclass(frozen=True)
class _Meeting:
    """Messages of one tag and size between the ranks that run one graph and those that run another."""

    sender: Communication
    receiver: Communication
    tag: int
    size: int
    sends: dict[int, int]
    """Sends of every sending rank, by receiving rank."""
    receives: dict[int, int]
    """Receives of every receiving rank, by sending rank."""

    def surplus(self) -> tuple[int, int]:
        """Return the numbers of unmatched sends and of unmatched receives over all pairs of ranks."""
        sent, awaited = self._multiplicities()
        # Every sending rank meets every receiving rank, so multiplicities multiply.
        pairs = [(s - a, n * m) for s, n in sent.items() for a, m in awaited.items()]
        return sum(n * d for d, n in pairs if d > 0), sum(-n * d for d, n in pairs if d < 0)

    def _multiplicities(self) -> tuple[Counter[int], Counter[int]]:
        sent, awaited = Counter(self.sends.values()), Counter(self.receives.values())
        # Ranks without an entry send, or await, none; the unary plus drops counts of 0.
        sent[0] += len(self.receiver.ranks) - len(self.sends)
        awaited[0] += len(self.sender.ranks) - len(self.receives)
        return +sent, +awaited

    def lost_send(self) -> str:
        """Describe a send that meets no receive."""
        to = max(self.sends, key=self.sends.__getitem__)
        source, met = _least(self.sender.ranks, self.receives)
        node = self._node(self.sender, to, met, send=True)
        return f"rank {source} sends {format_bytes(self.size)} to rank {to} with tag {self.tag} ({node})"

    def lost_receive(self) -> str:
        """Describe a receive that meets no send."""
        source = max(self.receives, key=self.receives.__getitem__)
        to, met = _least(self.receiver.ranks, self.sends)
        node = self._node(self.receiver, source, met, send=False)
        return f"rank {to} awaits {format_bytes(self.size)} from rank {source} with tag {self.tag} ({node})"

    def _node(self, of: Communication, peer: int, number: int, *, send: bool) -> str:
        m = of.messages
        same = (m.send == send) & (m.peer == peer) & (m.tag == self.tag) & (m.size == self.size)
        return name_of(of.graph, int(m.position[np.flatnonzero(same)[number]]))


def check_messages(trace: Trace, communication: list[Communication]) -> list[Diagnostic]:
    """Return the findings.

    A send of rank r to p meets a receive of p from r with the same tag and size. A graph stands for all ranks
    that run it, so the cost grows with the distinct graphs, not with the ranks.
    """
    findings = _Findings(Counter(), defaultdict(list))
    for found in communication:
        _check_ends(found, trace.n_ranks, findings)
    lost: dict[tuple[int, int, int], list[_Meeting]] = defaultdict(list)
    for key, meeting in _unequal(trace, communication):
        lost[key].append(meeting)
    for meetings in lost.values():
        surplus = np.array([meeting.surplus() for meeting in meetings])
        sent, awaited = surplus.sum(axis=0).tolist()
        sending = [m for m, (count, _) in zip(meetings, surplus, strict=True) if count]
        awaiting = [m for m, (_, count) in zip(meetings, surplus, strict=True) if count]
        # Both left over for one tag: most likely one message with two sizes.
        if sent and awaited:
            one, other = sending[0], awaiting[0]
            findings.add("size", min(sent, awaited), partial(_two, one, other))
        if sent > awaited:
            findings.add("sent", sent - awaited, sending[-1].lost_send)
        elif awaited > sent:
            findings.add("awaited", awaited - sent, awaiting[-1].lost_receive)
    return list(findings.diagnostics())


def _two(sending: _Meeting, awaiting: _Meeting) -> str:
    return f"{sending.lost_send()}, but {awaiting.lost_receive()}"


def _least(ranks: I64, counts: dict[int, int]) -> tuple[int, int]:
    """Return the rank with the lowest count, 0 where it has none."""
    rank = min(ranks.tolist(), key=lambda rank: counts.get(rank, 0))
    return rank, counts.get(rank, 0)


def _check_ends(found: Communication, n_ranks: int, findings: _Findings) -> None:
    m, ranks = found.messages, found.ranks
    # A graph of several ranks must not name its own end: it would be wrong for all but one.
    own = (m.own >= 0) & ((m.own != ranks[0]) | (len(ranks) > 1))
    for kind, wrong in (
        ("range", (m.peer < 0) | (m.peer >= n_ranks)),
        ("self", np.isin(m.peer, ranks)),
        ("own", own),
    ):
        at = np.flatnonzero(wrong)
        if len(at):
            findings.add(kind, len(at), partial(_wrong_end, found, int(at[0]), kind))


def _wrong_end(found: Communication, at: int, kind: str) -> str:
    m, ranks = found.messages, found.ranks.tolist()
    peer, own = int(m.peer[at]), int(m.own[at])
    rank = peer if kind == "self" else ranks[-1] if own == ranks[0] else ranks[0]
    says = f" as rank {own}" if kind == "own" else ""
    verb = "sends to" if m.send[at] else "receives from"
    return f"rank {rank}{says} {verb} rank {peer} ({name_of(found.graph, int(m.position[at]))})"


def _unequal(
    trace: Trace, communication: list[Communication]
) -> Iterator[tuple[tuple[int, int, int], _Meeting]]:
    """Yield (sending graph, receiving graph, tag) and the messages that do not all meet."""
    rows = np.concatenate([_rows(trace, g, found) for g, found in enumerate(communication)], axis=1)
    rows = rows[:, np.lexsort(rows[::-1])]
    starts = _starts(rows)
    counts = np.diff(np.append(starts, rows.shape[1]))
    # Equal rows are one; `counts` keeps how many.
    rows = rows[:, starts]  # sender, receiver, tag, size, side, peer; once each
    first = _starts(rows[:4])
    ends = np.append(first, rows.shape[1])
    if not len(first):
        return
    runs = np.bincount(trace.rank_graph, minlength=len(trace.graphs))
    receives = np.add.reduceat(rows[4], first)
    sends = np.diff(ends) - receives
    low, high = np.minimum.reduceat(counts, first), np.maximum.reduceat(counts, first)
    # All messages meet if every pair of ranks is there, with one count for all of them; only
    # other keys need the exact, slower comparison.
    fine = (sends == runs[rows[1, first]]) & (receives == runs[rows[0, first]]) & (low == high)
    for at in np.flatnonzero(~fine).tolist():
        part = slice(int(ends[at]), int(ends[at + 1]))
        sender, receiver, tag, size = rows[:4, ends[at]].tolist()
        by_side: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for side, peer, count in zip(
            rows[4, part].tolist(), rows[5, part].tolist(), counts[part].tolist(), strict=True
        ):
            by_side[side][peer] = count
        meeting = _Meeting(communication[sender], communication[receiver], tag, size, *by_side)
        yield (sender, receiver, tag), meeting


def _rows(trace: Trace, graph: int, found: Communication) -> I64:
    m = found.messages
    keep = (m.peer >= 0) & (m.peer < trace.n_ranks) & ~np.isin(m.peer, found.ranks)
    send, peer = m.send[keep], m.peer[keep]
    other = trace.rank_graph[peer]
    sender, receiver = np.where(send, graph, other), np.where(send, other, graph)
    return np.stack([sender, receiver, m.tag[keep], m.size[keep], ~send, peer]).astype(np.int64)


def _starts(rows: I64) -> NDArray[np.intp]:
    """Return the indices of columns that differ from the column before; the rows are sorted."""
    change = np.ones(rows.shape[1], dtype=np.bool_)
    change[1:] = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    return np.flatnonzero(change)
