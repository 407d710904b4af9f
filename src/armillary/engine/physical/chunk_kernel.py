"""Chunks of collectives that move from phase to phase, and the order in which a chunk flow serves them.

A phase of a chunk waits until every member of its line is ready for it (`arrive`). Then it is one volume in the list of
its chunk flow (`insert`), sorted by the order within a dimension. When it has arrived, all members are ready for the
next phase at once (`phase_done`).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.physical import layout as lk

choice = use("armillary.engine.physical.choice_kernel")
phase_row, must_ask, choose_all = choice.phase_row, choice.must_ask, choice.choose_all
share = use("armillary.engine.physical.share_kernel")
touch_chunk_flow, phase_of = share.touch_chunk_flow, share.phase_of
complete_node = use("armillary.engine.physical.rank_kernel").complete_node
arrivals, asking, comms, item_state = accessors(lk.ARRIVALS, lk.ASKING, lk.COMMS, lk.ITEM_STATE)
items, chunk_flows, line_members, lines = accessors(lk.ITEMS, lk.CHUNK_FLOWS, lk.LINES, lk.LINE_ROWS)
members, phases, plans, ring_entries = accessors(lk.MEMBERS, lk.PHASES, lk.PLANS, lk.RING_ENTRY)
rows = accessors(lk.ROWS)


@inner
def order_of(prog, tick):
    """Return the place of what comes at a tick, among what is as urgent: the lowest is served first."""
    # `tick + 1`, because 0 stands for no place.
    return prog[lk.Z_SIGN] * (tick + 1)


@inner
def before(st, first, a, b, steps):
    """Tell whether a volume comes before another in the list of its chunk flow: by place, then phase, then chunk.

    `first` is the first row of their item, `steps` how many phases a chunk has.
    """
    one = rows.place(st, first + a)
    other = rows.place(st, first + b)
    if one != other:
        return one < other
    # A row is chunk * steps + phase.
    if a % steps != b % steps:
        return a % steps < b % steps
    return a < b


@inner
def insert(prog, st, chunk_flow, item, key, steps, place):
    """Insert a waiting volume into a chunk flow's list.

    Of equal places, the earliest phase comes first, because other dimensions wait for it. With the lowest chunk
    first, a faster dimension could return chunks so early that they delay those that have not left yet.
    """
    first = items.row(prog, item)
    # 0 stands there already: memory that nobody writes to takes no room.
    if place != 0:
        rows.set_place(st, first + key, place)
    # A sorted singly linked list through the rows. Linear insertion is rare, see the tail below.
    at = chunk_flows.queue(st, chunk_flow)
    if at < 0 or before(st, first, key, at, steps):
        rows.set_next(st, first + key, at)
        chunk_flows.set_queue(st, chunk_flow, key)
        if at < 0:
            chunk_flows.set_tail(st, chunk_flow, key)
        return
    tail = chunk_flows.tail(st, chunk_flow)
    if before(st, first, tail, key, steps):
        # As a rule, what comes last is served last.
        rows.set_next(st, first + tail, key)
        rows.set_next(st, first + key, -1)
        chunk_flows.set_tail(st, chunk_flow, key)
        return
    behind = rows.next(st, first + at)
    while behind >= 0 and before(st, first, behind, key, steps):
        at = behind
        behind = rows.next(st, first + at)
    rows.set_next(st, first + key, behind)
    rows.set_next(st, first + at, key)


@inner
def phase_at(prog, st, item, key):
    """Return the phase of the chunk in `key`, which is chunk * phases + phase."""
    steps = plans.phases(prog, items.plan(prog, item))
    return phase_row(prog, st, item, key // steps, key % steps)


@inner
def arrive(prog, st, item, chunk, phase, tick):
    """Count a rank as ready for a phase of a chunk; returns the chunk flow if it is the last of its line, else -1."""
    plan = items.plan(prog, item)
    comm = items.comm(prog, item)
    line = ring_entries.line(prog, phases.ring(prog, phase) + items.local(prog, item))
    ordinal = item_state.instance(st, item)
    counter = comms.arrived(prog, comm) + ordinal * comms.stride(prog, comm)
    counter += chunk * plans.lines(prog, plan) + phases.line(prog, phase) + line
    # Counters are never reset: each instance, chunk and line has one of its own.
    if arrivals.add_count(st, counter, 1) < lines.members(prog, line):
        return -1
    chunk_flow = (
        comms.chunk_flow(prog, comm)
        + ordinal * comms.chunk_flows(prog, comm)
        + phases.chunk_flow(prog, phase)
        + line
    )
    member = comms.items(prog, comm) + ordinal * comms.reps(prog, comm)
    # All members keep the same times, so that the rows of one of them tell what the chunk flow does.
    first = members.item(st, member + line_members.local(prog, lines.local(prog, line)))
    chunk_flows.set_line(st, chunk_flow, line)
    chunk_flows.set_item(st, chunk_flow, first)
    if chunk_flows.key(st, chunk_flow) == 0:
        # A chunk flow is as urgent as the most urgent of its members, who may differ.
        urgent = items.priority(prog, item)
        for i in range(lines.members(prog, line)):
            other = members.item(st, member + line_members.local(prog, lines.local(prog, line) + i))
            urgent = min(urgent, items.priority(prog, other))
        chunk_flows.set_priority(st, chunk_flow, urgent)
        chunk_flows.set_key(st, chunk_flow, order_of(prog, tick))
    return chunk_flow


@inner
def enter_chunk_batch(prog, st, item, tick):
    """Let a rank be ready for all chunks of a chunk batch; the last of its line starts it."""
    # One counter serves the whole batch, because all its chunks are ready together.
    chunk_flow = arrive(prog, st, item, 0, phase_of(prog, items.plan(prog, item), 0), tick)
    if chunk_flow >= 0:
        chunk_flows.set_queue(st, chunk_flow, 0)
        touch_chunk_flow(st, chunk_flow)


@inner
def enter(prog, st, heap, item, chunk, p, tick):
    """Let a rank be ready for phase `p` of a chunk; the last of its line puts the chunk on the chunk flow."""
    if must_ask(prog, st, item, chunk, p):
        return
    plan = items.plan(prog, item)
    steps = plans.phases(prog, plan)
    phase = phase_row(prog, st, item, chunk, p)
    chunk_flow = arrive(prog, st, item, chunk, phase, tick)
    if chunk_flow < 0:
        return
    if p + 1 >= plans.choices(prog, plan):
        chunk_flows.add_load(
            st, chunk_flow, phases.ticks(prog, phase)
        )  # else it was when its level was chosen
    # EARLIEST_PHASE: all have the same place, and `before` decides by phase and chunk.
    place = 0
    if prog[lk.Z_WITHIN] == lk.FIFO:
        place = tick
    elif prog[lk.Z_WITHIN] == lk.SMALLEST:
        place = phases.volume(prog, phase)
    insert(prog, st, chunk_flow, chunk_flows.item(st, chunk_flow), chunk * steps + p, steps, place)
    touch_chunk_flow(st, chunk_flow)


@inner
def enter_asking(prog, st, heap, tick):
    """Choose the levels that members wait for, then let these members enter."""
    choose_all(prog, st)
    for i in range(st[lk.V_ASKING]):
        enter(prog, st, heap, asking.item(st, i), asking.chunk(st, i), asking.phase(st, i), tick)
    st[lk.V_ASKING] = 0


@inner
def phase_done(prog, st, heap, chunk_flow, key, tick):
    """End a phase of a chunk, or a chunk batch, for a line: its members enter the next phase, or their nodes end."""
    line = chunk_flows.line(st, chunk_flow)
    first = chunk_flows.item(st, chunk_flow)
    comm = items.comm(prog, first)
    plan = items.plan(prog, first)
    steps = plans.phases(prog, plan)
    chunk_batch = plans.chunk_batch(prog, plan) > 0
    member = comms.items(prog, comm) + item_state.instance(st, first) * comms.reps(prog, comm)
    # `next_head` noted the start with the one item that stands for the line; that of a chunk batch stands elsewhere.
    begun = tick if chunk_batch else rows.start(st, items.row(prog, first) + key)
    for i in range(lines.members(prog, line)):
        item = members.item(st, member + line_members.local(prog, lines.local(prog, line) + i))
        # Its rows are written by `end_chunk_batch`; one event ends all its chunks.
        if chunk_batch:
            complete_node(prog, st, items.rank(prog, item), items.node(prog, item), tick)
            continue
        rows.set_start(st, items.row(prog, item) + key, begun)
        rows.set_end(st, items.row(prog, item) + key, tick)
        if key % steps + 1 < steps:
            enter(prog, st, heap, item, key // steps, key % steps + 1, tick)
        elif item_state.add_left(st, item, -1) == 0:
            complete_node(prog, st, items.rank(prog, item), items.node(prog, item), tick)
