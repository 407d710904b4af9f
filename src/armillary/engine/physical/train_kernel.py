"""Trains: the chunks of a collective of one phase, which follow one another through the same ports.

A lane serves them in their order and keeps its rate from one to the next, so when each is through follows from when
the rate changes. There is one event for a whole train. As long as the rate has never changed the train is whole, and
its rows follow from its start and its rate; once it has, rows are written chunk by chunk.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner
from armillary.engine.physical import layout as lk

comms, item_state, items, lanes = accessors(lk.COMMS, lk.ITEM_STATE, lk.ITEMS, lk.LANES)
line_members, lines, members, phases = accessors(lk.LINES, lk.LINE_ROWS, lk.MEMBERS, lk.PHASES)
plan_chunks, plans, rows, trains = accessors(lk.CHUNKS, lk.PLANS, lk.ROWS, lk.TRAINS)


@inner
def phase_of(prog, plan, chunk):
    """Return the phase of a chunk of a plan of one phase."""
    return plan_chunks.phase(prog, plans.chunks(prog, plan) + chunk)


@inner
def ticks_of(volume, rate):
    """Return how long a volume takes."""
    return (max(volume, 0) + rate - 1) // rate


@inner
def rest(prog, st, lane, rate):
    """Return how long the chunks behind the head of a train take at a rate."""
    plan = items.plan(prog, lanes.item(st, lane))
    last = lanes.chunks(st, lane) - 1
    head = lanes.head(st, lane)
    bigger = max(0, plans.bigger(prog, plan) - head - 1)
    ticks = (last - head - bigger) * ticks_of(phases.volume(prog, phase_of(prog, plan, last)), rate)
    if bigger > 0:
        ticks += bigger * ticks_of(phases.volume(prog, phase_of(prog, plan, 0)), rate)
    return ticks


@inner
def advance_train(prog, st, lane, tick):
    """Write down which chunks of a train were through by a tick, and what is left of its head."""
    rate = lanes.rate(st, lane)
    since = lanes.since(st, lane)
    lanes.set_since(st, lane, tick)
    if rate == 0:
        return
    item = lanes.item(st, lane)
    plan = items.plan(prog, item)
    last = lanes.chunks(st, lane) - 1
    row = items.row(prog, item)
    chunk = lanes.head(st, lane)
    end = since + ticks_of(lanes.remaining(st, lane), rate)
    while chunk < last and end <= tick:
        rows.set_end(st, row + chunk, end + phases.latency(prog, phase_of(prog, plan, chunk)))
        chunk += 1
        rows.set_start(st, row + chunk, end)
        lanes.set_remaining(st, lane, phases.volume(prog, phase_of(prog, plan, chunk)))
        since = end
        end += ticks_of(lanes.remaining(st, lane), rate)
    lanes.set_head(st, lane, chunk)
    lanes.add_remaining(st, lane, -rate * (tick - since))


@inner
def end_train(prog, st, lane, tick):
    """Note when the chunks of a train went; returns the tick at which the last of them has arrived."""
    item = lanes.item(st, lane)
    plan = items.plan(prog, item)
    last = lanes.chunks(st, lane) - 1
    bigger = plans.bigger(prog, plan)
    done = tick + phases.latency(prog, phase_of(prog, plan, last))
    line = lanes.line(st, lane)
    comm = items.comm(prog, item)
    member = comms.items(prog, comm) + item_state.instance(st, item) * comms.reps(prog, comm)
    whole = lanes.queue(st, lane) == lk.WHOLE
    row = items.row(prog, item)
    if whole:
        rate = lanes.rate(st, lane)
        begun = lanes.since(st, lane)
        if bigger > 0:
            # What a bigger chunk reduces may take a little longer.
            phase = phase_of(prog, plan, 0)
            through = begun + bigger * ticks_of(phases.volume(prog, phase), rate)
            done = max(done, through + phases.latency(prog, phase))
    else:
        advance_train(prog, st, lane, tick)
        rows.set_end(st, row + last, done)
        if bigger > 0:
            done = max(done, rows.end(st, row + bigger - 1))
    for i in range(lines.members(prog, line)):
        other = members.item(st, member + line_members.local(prog, lines.local(prog, line) + i))
        if whole:
            trains.set_start(st, other, begun)
            trains.set_rate(st, other, rate)
        elif other != item:
            own = items.row(prog, other)
            for chunk in range(last + 1):
                rows.set_start(st, own + chunk, rows.start(st, row + chunk))
                rows.set_end(st, own + chunk, rows.end(st, row + chunk))
    return done
