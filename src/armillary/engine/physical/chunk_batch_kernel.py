"""Chunk batches: the chunks of a collective of one phase, which follow one another through the same ports.

A chunk flow serves them in order and keeps its rate from one to the next. So changes of the rate alone decide when each
chunk ends, and one event stands for the whole batch. Until the rate first changes, the rows of the chunks follow from
start and rate and are not written (WHOLE); from then on they are written chunk by chunk (BROKEN). The result is that of
single chunks, to the tick. The bigger of two chunk sizes come first.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner
from armillary.engine.physical import layout as lk

comms, item_state, items, chunk_flows = accessors(lk.COMMS, lk.ITEM_STATE, lk.ITEMS, lk.CHUNK_FLOWS)
line_members, lines, members, phases = accessors(lk.LINES, lk.LINE_ROWS, lk.MEMBERS, lk.PHASES)
plan_chunks, plans, rows, chunk_batches = accessors(lk.CHUNKS, lk.PLANS, lk.ROWS, lk.CHUNK_BATCHES)


@inner
def phase_of(prog, plan, chunk):
    """Return the phase of a chunk of a plan of one phase."""
    return plan_chunks.phase(prog, plans.chunks(prog, plan) + chunk)


@inner
def ticks_of(volume, rate):
    """Return the ticks that a volume takes at a rate, rounded up."""
    return (max(volume, 0) + rate - 1) // rate


@inner
def rest(prog, st, chunk_flow, rate):
    """Return the ticks that the chunks behind the head of a chunk batch take at a rate."""
    plan = items.plan(prog, chunk_flows.item(st, chunk_flow))
    last = chunk_flows.chunks(st, chunk_flow) - 1
    head = chunk_flows.head(st, chunk_flow)
    # Bigger chunks that are still to come.
    bigger = max(0, plans.bigger(prog, plan) - head - 1)
    # Each chunk ends at a whole tick: a sum of rounded times, not a rounded sum. Two products, as there are
    # two sizes.
    ticks = (last - head - bigger) * ticks_of(phases.volume(prog, phase_of(prog, plan, last)), rate)
    if bigger > 0:
        ticks += bigger * ticks_of(phases.volume(prog, phase_of(prog, plan, 0)), rate)
    return ticks


@inner
def advance_chunk_batch(prog, st, chunk_flow, tick):
    """Write the rows of the chunks that ended by a tick at the former rate, and what is then left of the head."""
    rate = chunk_flows.rate(st, chunk_flow)
    since = chunk_flows.since(st, chunk_flow)
    chunk_flows.set_since(st, chunk_flow, tick)
    # Nothing has moved since; the first start or a wait behind others in the global order.
    if rate == 0:
        return
    item = chunk_flows.item(st, chunk_flow)
    plan = items.plan(prog, item)
    last = chunk_flows.chunks(st, chunk_flow) - 1
    row = items.row(prog, item)
    chunk = chunk_flows.head(st, chunk_flow)
    end = since + ticks_of(chunk_flows.remaining(st, chunk_flow), rate)
    # A chunk that ends exactly now still ends at the former rate. The last one ends with its event, in
    # `end_chunk_batch`.
    while chunk < last and end <= tick:
        rows.set_end(st, row + chunk, end + phases.latency(prog, phase_of(prog, plan, chunk)))
        chunk += 1
        rows.set_start(st, row + chunk, end)
        chunk_flows.set_remaining(st, chunk_flow, phases.volume(prog, phase_of(prog, plan, chunk)))
        since = end
        end += ticks_of(chunk_flows.remaining(st, chunk_flow), rate)
    chunk_flows.set_head(st, chunk_flow, chunk)
    # Of the head, only what has moved since it began.
    chunk_flows.add_remaining(st, chunk_flow, -rate * (tick - since))


@inner
def end_chunk_batch(prog, st, chunk_flow, tick):
    """Record the times of a chunk batch for all its members; returns the tick at which the last chunk arrives."""
    item = chunk_flows.item(st, chunk_flow)
    plan = items.plan(prog, item)
    last = chunk_flows.chunks(st, chunk_flow) - 1
    bigger = plans.bigger(prog, plan)
    done = tick + phases.latency(prog, phase_of(prog, plan, last))
    line = chunk_flows.line(st, chunk_flow)
    comm = items.comm(prog, item)
    member = comms.items(prog, comm) + item_state.instance(st, item) * comms.reps(prog, comm)
    whole = chunk_flows.queue(st, chunk_flow) == lk.WHOLE
    row = items.row(prog, item)
    if whole:
        rate = chunk_flows.rate(st, chunk_flow)
        begun = chunk_flows.since(st, chunk_flow)
        if bigger > 0:
            # What a bigger chunk reduces may take a little longer.
            phase = phase_of(prog, plan, 0)
            through = begun + bigger * ticks_of(phases.volume(prog, phase), rate)
            done = max(done, through + phases.latency(prog, phase))
    else:
        advance_chunk_batch(prog, st, chunk_flow, tick)
        rows.set_end(st, row + last, done)
        if bigger > 0:
            done = max(done, rows.end(st, row + bigger - 1))
    # Members of a line share all times. A whole batch needs two numbers for each, a broken one its rows.
    for i in range(lines.members(prog, line)):
        other = members.item(st, member + line_members.local(prog, lines.local(prog, line) + i))
        if whole:
            chunk_batches.set_start(st, other, begun)
            chunk_batches.set_rate(st, other, rate)
        elif other != item:
            own = items.row(prog, other)
            for chunk in range(last + 1):
                rows.set_start(st, own + chunk, rows.start(st, row + chunk))
                rows.set_end(st, own + chunk, rows.end(st, row + chunk))
    return done
