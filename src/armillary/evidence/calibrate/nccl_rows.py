"""Times of many measured rows at once, for many sets of constants: what a fit asks for again and again.

`spent` of `armillary.collective.fitted.mechanism` is the same for one row, in plain numbers; both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.base import portable
from armillary.collective.fitted import mechanism as m
from armillary.collective.fitted.mechanism import Mechanism, Work
from armillary.collective.fitted.tuning import LL, LL128, SIMPLE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Key = tuple[str, str]
"""Part and name of a constant, see `nccl_mechanism.constants_of`."""


class Row(NamedTuple):
    """What was measured.

    Attributes:
        operation: Its operation.
        members: Of all nodes.
        nodes: Their number.
        runs: What may run: the shortest does.
        ns: How long it took.
    """

    operation: str
    members: int
    nodes: int
    runs: tuple[Work, ...]
    ns: float


class _Columns:
    """Where the constants of a mechanism stand: those that vary first, then all others, then what follows from both."""

    def __init__(self, start: Mechanism, keys: Sequence[Key]) -> None:
        self.start = start
        self.at: dict[Key, int] = {key: number for number, key in enumerate(keys)}
        self.fixed: list[float] = []
        self.derived: list[Callable[[Floats], Floats]] = []
        self.slower_at: dict[tuple[str, int], int] = {}
        self._varying = len(keys)

    def constant(self, part: str, name: str, value: float) -> int:
        """Return the column of a constant, which has a value where it does not vary."""
        if (part, name) not in self.at:
            self.at[part, name] = self._varying + len(self.fixed)
            self.fixed.append(value)
        return self.at[part, name]

    def line(self, line: str, name: str) -> int:
        """Return the column of a constant within a node."""
        return self.constant(f"lines {line}", name, getattr(self.start.lines[line], name))

    def outer(self, line: str, name: str) -> int:
        """Return the column of a constant between nodes, -1: the bandwidth of LL128, which follows from another."""
        if (line, name) == (LL128, "bandwidth"):
            return -1
        return self.constant(f"network {line}", name, getattr(self.start.network[line], name))

    def all(self, name: str) -> int:
        """Return the column of a constant that all lines share."""
        return self.constant("all", name, getattr(self.start, name))

    def slower(self, line: str, operation: str, members: int) -> Callable[[Floats], Floats]:
        """Return what gives the factor of `Mechanism.slower` of each set of constants."""
        found = self.start.sharer(line, operation)
        known = self.start.sharing.get(found) if found else None
        if not known:
            return lambda table: np.ones(len(table))
        below, above, part = m.around(known, members)
        first, second = (self.constant(f"sharing {found}", str(n), known[n]) for n in (below, above))
        if part is None:
            return lambda table: table[:, first]
        return lambda table: (
            portable.power(table[:, first], 1 - part) * portable.power(table[:, second], part)
        )


class Rows:
    """Rows of one device, as arrays."""

    def __init__(self, rows: Sequence[Row], start: Mechanism, keys: Sequence[Key]) -> None:
        """Lay out rows.

        Args:
            rows: What was measured.
            start: What constants are that do not vary.
            keys: Those that do.
        """
        runs = [(row, each) for row in rows for each in row.runs]
        self._first = np.cumsum([0, *(len(row.runs) for row in rows[:-1])])[: len(rows)]
        self._columns = columns = _Columns(start, keys)
        self._ring_bandwidth = columns.outer(SIMPLE, "bandwidth") if SIMPLE in start.network else -1
        self._numbers = {
            name: np.array([float(getattr(each, name)) for _, each in runs])
            for name in ("hops", "across", "sent", "own", "nic", "peers")
        }
        self._line = {
            name: np.array([columns.line(each.line, name) for _, each in runs])
            for name in ("overhead", "hop", "bandwidth")
        }
        self._own = np.array(
            [columns.constant("own", row.operation, start.own.get(row.operation, 0.0)) for row, _ in runs]
        )
        kinds = [(each.line, row.operation, row.members // row.nodes) for row, each in runs]
        distinct = list(dict.fromkeys(kinds))
        self._slower = [columns.slower(*kind) for kind in distinct]
        self._slower_at = np.array([distinct.index(kind) for kind in kinds])
        names = np.array([each.line for _, each in runs])
        self._low = np.flatnonzero(names == m.MESSAGE_LL)
        self._message_bandwidth = columns.line(m.MESSAGE, "bandwidth") if len(self._low) else -1
        self._saturates = np.flatnonzero(np.isin(names, m.SATURATES))
        self._whole = np.flatnonzero(names == m.MESSAGE)
        self._channels = np.array([float(max(m.CHANNELS // row.members, 1)) for row, _ in runs])
        self._ll = np.flatnonzero(names == LL)
        self._copies = np.array([float(row.operation == "all-gather") for row, _ in runs])
        self._messages = np.flatnonzero(np.isin(names, (m.MESSAGE, m.MESSAGE_LL)))
        self._all = {name: columns.all(name) for name in ("saturation", "ramp", "gather", "peer", "channel")}
        self._inside = np.flatnonzero([row.nodes == 1 for row, _ in runs])
        self._between = np.flatnonzero([row.nodes > 1 for row, _ in runs])
        far = [m.outer_of(each.line, row.operation, row.members) for row, each in runs if row.nodes > 1]
        self._outer = {
            name: np.array([columns.outer(line, name) for line in far], np.int64)
            for name in ("step", "hop", "bandwidth")
        }

    def times(self, values: Floats) -> Floats:
        """Return (sets, rows) the ns of each row, of (sets, constants that vary)."""
        sets = len(values)
        if not len(self._first):
            return np.zeros((sets, 0))
        fixed = np.broadcast_to(np.array(self._columns.fixed), (sets, len(self._columns.fixed)))
        # The last column is that of LL128 between nodes: its words of 128 bytes hold 120 of data.
        last = (
            np.zeros(sets)
            if self._ring_bandwidth < 0
            else np.hstack([values, fixed])[:, self._ring_bandwidth]
        )
        table = np.hstack([values, fixed, (last * m.LL128_DATA)[:, None]])
        numbers, one = self._numbers, {name: table[:, [at]] for name, at in self._all.items()}
        slower = np.stack([each(table) for each in self._slower], axis=1)[:, self._slower_at]
        sent = numbers["sent"] + numbers["own"] * table[:, self._own]
        bandwidth = table[:, self._line["bandwidth"]]
        inside = slower * sent / bandwidth
        if len(low := self._low):
            at_link = (
                slower[:, low]
                * 2
                * sent[:, low]
                * numbers["peers"][low]
                / table[:, [self._message_bandwidth]]
            )
            inside[:, low] = np.maximum(sent[:, low] / bandwidth[:, low], at_link)
        if len(some := self._saturates):
            inside[:, some] *= 1 + np.sqrt(one["saturation"] / sent[:, some])
        if len(some := self._whole):
            part = sent[:, some] / numbers["peers"][some]
            channels = np.maximum(self._channels[some], part / m.CHANNEL_BYTES)
            inside[:, some] = np.maximum(inside[:, some], part / (one["channel"] * channels))
        overhead = table[:, self._line["overhead"]]
        if len(some := self._ll):
            copied = one["gather"] * numbers["hops"][some] * self._copies[some]
            overhead[:, some] += (one["ramp"] + copied) * sent[:, some] / (sent[:, some] + m.RAMPED)
        if len(some := self._messages):
            overhead[:, some] += one["peer"] * (numbers["peers"][some] - 1)
        found = np.empty_like(inside)
        if len(some := self._inside):
            waited = table[:, self._line["hop"][some]] * numbers["hops"][some]
            latency = overhead[:, some] + m.joined(waited, inside[:, some], m.OVERLAP) - inside[:, some]
            found[:, some] = latency + inside[:, some]
        if len(some := self._between):
            outer = {name: table[:, at] for name, at in self._outer.items()}
            at_nic = numbers["nic"][some] / outer["bandwidth"]
            transfer = np.maximum(inside[:, some], at_nic)
            transfer *= m.joined(np.ones(1), np.minimum(inside[:, some], at_nic) / transfer, m.SHARP)
            latency = (
                overhead[:, some]
                + outer["step"] * numbers["hops"][some]
                + outer["hop"] * numbers["across"][some]
            )
            found[:, some] = latency + transfer
        shortest: Floats = np.minimum.reduceat(found, self._first, axis=1)
        return shortest
