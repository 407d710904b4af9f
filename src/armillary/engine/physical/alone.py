"""Collectives that meet nobody on their ports: they take a known time, so they run as kernels do.

Tensor parallelism makes most collectives of a step, and mostly within a node whose links nothing else crosses then.
Such a collective is a chunk batch of one class of ranks, and it begins when its node starts. If it has its ports for
itself to the end it lasts as long as its chunks one after the other: three steps of the event loop, two of them with
ports to be shared anew, become one event.

Only collectives of the ranks of a class, and messages from and to them, use the ports of that class. Collectives of one
slot (stream) never meet, as a slot runs one node at a time. Those of other slots that come before or after all of them
in the program, such as the sum of a gradient norm, mostly do not meet them either, but that is seen only when the run
is over (`Alone.is_true`): if none did, the event loop would have done the same at every tick until the first that had;
else the program runs again without this. What the loop would have written is filled in afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.lowered import Run, Simulated
from armillary.engine.physical import layout as lk
from armillary.trace.columns import distinct_columns

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
LEAST_SHARE = 0.5
"""Share of all collectives that must be lone: if they are few, a run that is in vain costs more than they can save."""


class _Calls(NamedTuple):
    """All collectives of a program: their items, rows, nodes among those of all ranks, and uses."""

    items: Ints
    rows: Ints
    state: Ints
    use: Ints


class _Uses(NamedTuple):
    """The collectives of one plan and one slot of a rank, side by side: the first and the last node."""

    plan: Ints
    slot: Ints
    rank: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True, eq=False)
class Alone:
    """Tables in which lone collectives are nodes of fixed duration, and what is to be filled in after the run.

    Attributes:
        tables: Of the program, with NODES, PACES and RANKS of their own.
        lone: Which of the collectives are.
        rate: At which rate the collectives move if they are, units/tick.
        early, late: Uses of which the first must be over before the second begins.
    """

    tables: dict[str, Ints]
    calls: _Calls
    lone: Mask
    rate: Ints
    early: Ints
    late: Ints

    def is_true(self, run: Run) -> bool:
        """Tell whether none of them has met another collective on its ports."""
        start, end = (run.table(name)[self.calls.state] for name in ("NODE_START", "NODE_END"))
        count = int(self.calls.use.max(initial=-1)) + 1
        begin, over = np.full(count, lk.NEVER), np.full(count, -1)
        begun = start >= 0
        np.minimum.at(begin, self.calls.use[begun], start[begun])
        # What has begun and is not over is in the way of all that begins later.
        np.maximum.at(over, self.calls.use[begun], np.where(end < 0, lk.NEVER - 1, end)[begun])
        return bool((over[self.early] <= begin[self.late]).all())

    def fill(self, run: Run) -> None:
        """Write what the event loop writes of a chunk batch: start, rate, place among its calls, events."""
        items, rows, state, _ = self.calls
        start = run.table("NODE_START")[state]
        begun = start >= 0
        which = self.lone & begun
        _write(run, "CHUNK_BATCH_START", items[which], start[which])
        _write(run, "CHUNK_BATCH_RATE", items[which], self.rate[which])
        # The calls of a rank in a communicator are numbered by their starts.
        ordinal = rows[:, lk.I_ORDINAL]
        which = np.isin(ordinal, ordinal[self.lone]) & begun
        # Rows of a rank ascend, so a stable sort leaves the lower of two nodes of one start first.
        order = np.flatnonzero(which)[np.lexsort((start[which], ordinal[which]))]
        joined = np.bincount(ordinal[order])
        first = np.cumsum(joined) - joined
        _write(run, "ITEM_INSTANCE", items[order], np.arange(len(order)) - first[ordinal[order]])
        counters = np.flatnonzero(joined)
        _write(run, "ORDINALS", counters, joined[counters])
        # The end of the volume of a chunk batch is an event, too.
        run.state[lk.V_EVENTS] += int((self.lone & begun).sum())


def _write(run: Run, name: str, at: Ints, values: Ints) -> None:
    place = run.place[name]
    if isinstance(run.state, np.ndarray):
        run.state[place][at] = values
        return
    for where, value in zip((at + place.start).tolist(), values.tolist(), strict=True):
        run.state[where] = value


def alone(program: Simulated) -> Alone | None:
    """Return the collectives of a program that should be alone on their ports, None if there are none."""
    tables, comms = program.tables, _rows(program.tables, "COMMS", lk.CO_COLUMNS)
    plans = _rows(tables, "PLANS", lk.PL_COLUMNS)
    batches = (plans[:, lk.PL_CHUNK_BATCH] > 0) & (plans[:, lk.PL_LINES] == 1)
    if not batches.any() or not (comms[:, lk.CO_REPS] == 1).any():
        return None
    ranks, nodes = _rows(tables, "RANKS", lk.R_COLUMNS), _rows(tables, "NODES", lk.N_COLUMNS)
    items = np.flatnonzero(program.is_collective)
    rows = program.items[items]
    rank = rows[:, lk.I_RANK]
    row = ranks[rank, lk.R_NODES] + rows[:, lk.I_NODE]
    slot = ranks[rank, lk.R_SLOT] + nodes[row, lk.N_SLOT]
    uses, use = _uses(rows, slot)
    calls = _Calls(items, rows, ranks[rank, lk.R_STATE] + rows[:, lk.I_NODE], use)
    # Every call of the communicator must be a batch: the others are numbered while they run.
    within = comms[:, lk.CO_REPS] == 1
    within[rows[~batches[rows[:, lk.I_PLAN]], lk.I_COMM]] = False
    of_plan = np.zeros(len(plans), np.int64)
    of_plan[rows[:, lk.I_PLAN]] = rows[:, lk.I_COMM]
    rate, ticks, crosses, with_messages = _ports(program, plans)
    # Slot 0 of a rank never is busy.
    lone = (batches & (rate > 0) & within[of_plan])[uses.plan] & (uses.slot > ranks[uses.rank, lk.R_SLOT])
    lone &= ~(crosses[uses.plan] & with_messages[uses.rank]).any(axis=1)
    lone, early, late = _ordered(uses, crosses, lone)
    chosen = lone[use]
    # Ranks of one graph share rows: a node is of fixed duration for all of them, or for none.
    many, few = (np.bincount(row[each], minlength=len(nodes)) for each in (slice(None), chosen))
    chosen &= many[row] == few[row]
    if int(chosen.sum()) <= LEAST_SHARE * len(chosen):
        return None
    own, changed = ranks.copy(), nodes.copy()
    spans = zip(ranks[:, lk.R_PACE].tolist(), ranks[:, lk.R_COUNT].tolist(), strict=True)
    paces = np.concatenate([tables["PACES"][at : at + count] for at, count in spans])
    # Ranks of one pace have lone collectives of their own.
    own[:, lk.R_PACE] = ranks[:, lk.R_STATE]
    paces[calls.state[chosen]] = ticks[rows[chosen, lk.I_PLAN]]
    changed[row[chosen], lk.N_KIND] = lk.FIXED
    tables = {**tables, "NODES": changed.ravel(), "PACES": paces, "RANKS": own.ravel()}
    return Alone(tables, calls, chosen, rate[rows[:, lk.I_PLAN]], early, late)


def _rows(tables: Mapping[str, Ints], name: str, columns: int) -> Ints:
    return tables[name].reshape(-1, columns)


def _uses(rows: Ints, slot: Ints) -> tuple[_Uses, Ints]:
    """Return the uses of collectives, given their rows and slots, and which use each is."""
    first, use = distinct_columns(np.stack([rows[:, lk.I_PLAN], slot]))
    last = np.zeros(len(first), np.int64)
    # Of equal places the last assignment stays, and nodes of a rank ascend.
    last[use] = rows[:, lk.I_NODE]
    of = rows[first]
    return _Uses(of[:, lk.I_PLAN], slot[first], of[:, lk.I_RANK], of[:, lk.I_NODE], last), use


def _ordered(uses: _Uses, crosses: Mask, lone: Mask) -> tuple[Mask, Ints, Ints]:
    """Return which uses are lone, and pairs of uses of which the first must be over before the second begins.

    Of the uses of a rank that cross the same dimension, those of other slots come before or after a lone one.
    """
    order = np.argsort(uses.rank, kind="stable")
    counts = np.bincount(uses.rank)
    # All pairs of a lone use and a use of the same rank.
    one = np.flatnonzero(lone)
    begin = (np.cumsum(counts) - counts)[uses.rank[one]]
    other = order[_side_by_side(begin, counts[uses.rank[one]])]
    one = np.repeat(one, counts[uses.rank[one]])
    meets = (uses.slot[one] != uses.slot[other]) & (crosses[uses.plan[one]] & crosses[uses.plan[other]]).any(
        axis=1
    )
    one, other = one[meets], other[meets]
    before, after = uses.last[other] < uses.first[one], uses.last[one] < uses.first[other]
    lone = lone.copy()
    lone[one[~before & ~after]] = False
    before, after = before & lone[one], after & lone[one]
    early = np.concatenate([other[before], one[after]])
    return lone, early, np.concatenate([one[before], other[after]])


def _ports(program: Simulated, plans: Ints) -> tuple[Ints, Ints, Mask, Mask]:
    """Return of plans what their ports allow.

    The rate of every plan that has its ports for itself, 0 where it has more than one line or ports of other kinds; how
    long it then takes; which dimensions every plan crosses, (plans, dimensions); and which dimensions messages of every
    rank cross, (ranks, dimensions).
    """
    tables, dimensions = program.tables, max(program.sizes["dimensions"], 1)
    phases, lines = _rows(tables, "PHASES", lk.PH_COLUMNS), _rows(tables, "LINE_ROWS", lk.LN_COLUMNS)
    used, chunks = _rows(tables, "LINE_PORTS", lk.LP_COLUMNS), tables["CHUNKS"]
    network = 2 * dimensions * program.sizes["ranks"]
    rate, ticks = np.zeros((2, len(plans)), np.int64)
    crosses = np.zeros((len(plans), dimensions), np.bool_)
    with_messages = np.zeros((program.sizes["ranks"], dimensions), np.bool_)
    port = used[_ports_of(lines[lines[:, lk.LN_MEMBERS] == 0])[0], lk.LP_PORT]
    port = port[port < network] // 2
    with_messages[port // dimensions, port % dimensions] = True
    some = np.diff(np.append(plans[:, lk.PL_CHUNKS], len(chunks))) > 0
    with_phases = np.flatnonzero((plans[:, lk.PL_PHASES] > 0) & some)
    # The phases of a plan stand side by side, those of its first chunk first; all lines of a phase cross the same.
    begin = chunks[plans[with_phases, lk.PL_CHUNKS]]
    of_phase = np.repeat(np.arange(len(with_phases)), np.diff(np.append(begin, len(phases))))
    at, of = _ports_of(lines[phases[:, lk.PH_FIRST]])
    plan, port = of_phase[of], used[at, lk.LP_PORT]
    inside = port < network
    crosses[with_phases[plan[inside]], port[inside] // 2 % dimensions] = True
    # From here on plans of one phase: of any other the rate stays 0.
    single = np.flatnonzero(np.bincount(plan[~inside], minlength=len(with_phases)) == 0)
    single = single[(plans[with_phases[single]][:, [lk.PL_PHASES, lk.PL_LINES]] == 1).all(axis=1)]
    if not len(single):
        return rate, ticks, crosses, with_messages
    at, of = _ports_of(lines[phases[begin[single], lk.PH_FIRST]])
    row, plan = used[at], with_phases[single]
    each = tables["PORTS"][row[:, lk.LP_PORT]] // (row[:, lk.LP_FACTOR] * row[:, lk.LP_WEIGHT])
    least = np.full(len(plan), lk.NEVER)
    np.minimum.at(least, of, np.maximum(each, 1))
    # A port that a line uses twice is shared by these two.
    key = np.sort(of * len(tables["PORTS"]) + row[:, lk.LP_PORT])
    least[key[1:][key[1:] == key[:-1]] // len(tables["PORTS"])] = 0
    first = plans[plan, lk.PL_CHUNKS]
    count = np.append(plans[1:, lk.PL_CHUNKS], len(chunks))[plan] - first
    one, last = phases[chunks[first]], phases[chunks[first + count - 1]]
    by = np.maximum(least, 1)
    # As in `share_kernel`: a sum of rounded times, and what a bigger chunk reduces may take longer.
    bigger = plans[plan, lk.PL_BIGGER]
    through = bigger * -(-one[:, lk.PH_VOLUME] // by)
    end = through + (count - bigger) * -(-last[:, lk.PH_VOLUME] // by) + last[:, lk.PH_LATENCY]
    rate[plan] = np.where(least < lk.NEVER, least, 0)
    ticks[plan] = np.maximum(end, np.where(bigger > 0, through + one[:, lk.PH_LATENCY], 0))
    return rate, ticks, crosses, with_messages


def _ports_of(lines: Ints) -> tuple[Ints, Ints]:
    """Return the rows of LINE_PORTS of lines, one line after the other, and which line each is of."""
    counts = lines[:, lk.LN_PORT_COUNT]
    return _side_by_side(lines[:, lk.LN_PORTS], counts), np.repeat(np.arange(len(lines)), counts)


def _side_by_side(first: Ints, counts: Ints) -> Ints:
    """Return the numbers `first` to `first` + `counts` - 1 of each, one after the other."""
    found: Ints = np.arange(int(counts.sum())) + np.repeat(first - np.cumsum(counts) + counts, counts)
    return found
