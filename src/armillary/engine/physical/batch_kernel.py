"""The ends of chunk batches. Those that have their ports to themselves take one event.

Tensor parallelism makes most collectives of a step, and mostly within a node whose links nothing else crosses then. A
chunk batch that finds all its ports idle keeps its rate until another chunk flow comes to one of them. So its end is
known when it starts, and one event stands for the end of its volume, its way off the ports and its arrival. It counts
on its ports, but is in none of their lists. If another comes before its volume has passed, it becomes a chunk flow like
others (`admit`), and its event is void. The result is the same, to the tick.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner, use
from armillary.engine.physical import layout as lk

share = use("armillary.engine.physical.share_kernel")
advance_chunk_batch, join, rate_of = share.advance_chunk_batch, share.join, share.rate_of
room_to_join = share.room_to_join
phase_of, rest, schedule, ticks_of = share.phase_of, share.rest, share.schedule, share.ticks_of
chunk_batches, chunk_flows, comms, item_state = accessors(
    lk.CHUNK_BATCHES, lk.CHUNK_FLOWS, lk.COMMS, lk.ITEM_STATE
)
items, line_members, line_ports, lines = accessors(lk.ITEMS, lk.LINES, lk.LINE_PORTS, lk.LINE_ROWS)
members, phases, plans, port_state = accessors(lk.MEMBERS, lk.PHASES, lk.PLANS, lk.PORT_STATE)
rows = accessors(lk.ROWS)


@inlined
def holds(st, chunk_flow, version):
    """Tell whether the end of a volume that was scheduled still holds; else its rate has changed since."""
    return chunk_flows.version(st, chunk_flow) == version and chunk_flows.head(st, chunk_flow) >= 0


@inlined
def arrival(prog, st, chunk_flow, tick):
    """Return when the last chunk of a chunk batch has arrived that kept its rate and has passed its ports by a tick."""
    plan = items.plan(prog, chunk_flows.item(st, chunk_flow))
    done = tick + phases.latency(prog, phase_of(prog, plan, chunk_flows.chunks(st, chunk_flow) - 1))
    bigger = plans.bigger(prog, plan)
    if bigger == 0:
        return done
    # What a bigger chunk reduces may take a little longer.
    phase = phase_of(prog, plan, 0)
    ticks = bigger * ticks_of(phases.volume(prog, phase), chunk_flows.rate(st, chunk_flow))
    return max(done, chunk_flows.since(st, chunk_flow) + ticks + phases.latency(prog, phase))


@inlined
def end_chunk_batch(prog, st, chunk_flow, tick):
    """Record the times of a chunk batch; returns the tick at which the last chunk arrives."""
    item = chunk_flows.item(st, chunk_flow)
    plan = items.plan(prog, item)
    last = chunk_flows.chunks(st, chunk_flow) - 1
    line = chunk_flows.line(st, chunk_flow)
    comm = items.comm(prog, item)
    member = comms.items(prog, comm) + item_state.instance(st, item) * comms.reps(prog, comm)
    if chunk_flows.queue(st, chunk_flow) == lk.WHOLE:
        rate = chunk_flows.rate(st, chunk_flow)
        begun = chunk_flows.since(st, chunk_flow)
        done = arrival(prog, st, chunk_flow, tick)
    else:
        advance_chunk_batch(prog, st, chunk_flow, tick)
        done = tick + phases.latency(prog, phase_of(prog, plan, last))
        row = items.row(prog, item)
        rows.set_end(st, row + last, done)
        bigger = plans.bigger(prog, plan)
        if bigger > 0:
            done = max(done, rows.end(st, row + bigger - 1))
        return done
    # Each member of a whole batch has two numbers; a broken one has the rows of the first.
    for i in range(lines.members(prog, line)):
        other = members.item(st, member + line_members.local(prog, lines.local(prog, line) + i))
        chunk_batches.set_start(st, other, begun)
        chunk_batches.set_rate(st, other, rate)
    return done


@inlined
def may_be_alone(prog, st, chunk_flow):
    """Tell whether a chunk flow is a chunk batch and all its ports are idle."""
    if chunk_flows.chunks(st, chunk_flow) == 0 or prog[lk.Z_POLICY] != lk.FAIR:
        return False
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    others = 0
    for i in range(lines.port_count(prog, line)):
        others += port_state.count(st, line_ports.port(prog, first + i))
    return others == 0


@inlined
def start_alone(prog, st, heap, chunk_flow, tick):
    """Start a chunk batch on idle ports."""
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    for i in range(lines.port_count(prog, line)):
        port = line_ports.port(prog, first + i)
        port_state.set_alone(st, port, chunk_flow + 1)
        port_state.add_count(st, port, line_ports.weight(prog, first + i))
    rate = rate_of(prog, st, chunk_flow)
    chunk_flows.set_rate(st, chunk_flow, rate)
    chunk_flows.set_reset(st, chunk_flow, 0)
    through = tick + ticks_of(chunk_flows.remaining(st, chunk_flow), rate) + rest(prog, st, chunk_flow, rate)
    chunk_flows.set_through(st, chunk_flow, through)
    version = chunk_flows.add_version(st, chunk_flow, 1)
    schedule(st, heap, arrival(prog, st, chunk_flow, through), lk.EV_ALONE, chunk_flow, version)


@inner
def clear(prog, st, chunk_flow):
    """Take a chunk flow off the ports on which it is alone."""
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    for i in range(lines.port_count(prog, line)):
        port = line_ports.port(prog, first + i)
        port_state.set_alone(st, port, 0)
        port_state.add_count(st, port, -line_ports.weight(prog, first + i))


@inlined
def end_alone(prog, st, chunk_flow):
    """End the volume of a chunk batch that has arrived."""
    # Its end and its arrival would be two events.
    st[lk.V_EVENTS] += 1
    line = chunk_flows.line(st, chunk_flow)
    # Another may have come meanwhile to ports that it had passed, on all of which it then was cleared.
    if (
        lines.port_count(prog, line) > 0
        and port_state.alone(st, line_ports.port(prog, lines.ports(prog, line))) == chunk_flow + 1
    ):
        clear(prog, st, chunk_flow)
    end_chunk_batch(prog, st, chunk_flow, chunk_flows.through(st, chunk_flow))
    chunk_flows.set_head(st, chunk_flow, -1)


@inner
def admit(prog, st, mem, heap, chunk_flow, tick):
    """Let those that are alone on the ports of a chunk flow share them with it, or leave them if they have passed."""
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    for i in range(lines.port_count(prog, line)):
        other = port_state.alone(st, line_ports.port(prog, first + i)) - 1
        if other < 0:
            continue
        clear(prog, st, other)
        through = chunk_flows.through(st, other)
        if through <= tick:
            continue
        # Its event is void from now on, and would not have been made.
        st[lk.V_EVENTS] -= 1
        version = chunk_flows.add_version(st, other, 1)
        if chunk_flows.since(st, other) == tick:
            # Both start at this tick: as if neither had a rate yet.
            chunk_flows.set_rate(st, other, 0)
            chunk_flows.set_reset(st, other, 1)
        else:
            # Its rate may stay as it is, where another port allows less.
            schedule(st, heap, through, lk.EV_VOLUME, other, version)
        join(prog, st, mem, other)


@inlined
def put_on_ports(prog, st, mem, heap, chunk_flow, tick):
    """Let a chunk flow begin to use its ports; returns whether there was room for that."""
    if not room_to_join(prog, st, mem, heap, chunk_flow):
        return False
    if may_be_alone(prog, st, chunk_flow):
        start_alone(prog, st, heap, chunk_flow, tick)
        return True
    admit(prog, st, mem, heap, chunk_flow, tick)
    join(prog, st, mem, chunk_flow)
    return True
