"""How work goes on: nodes of a rank become free and end, and chunks of collectives move from phase to phase.

A node is free when all its parents have ended. A message that has arrived ends nodes of two ranks.

A phase of a chunk waits until every member of its line is ready for it (`arrive`). Then it is one volume in the list of
its chunk flow (`insert`), sorted by the order within a dimension. When it has arrived, all members are ready for the
next phase at once (`phase_done`).

With `chunk_order: online-greedy` the first member that is ready for the next level of a chunk asks for it
(`must_ask`). At the end of the tick the level with the least load is chosen for all members, one chunk after the other.
The load of a level is that of its fullest line: the ticks of all volumes that this collective has sent there and that
have not ended, those in flight in full.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner, use
from armillary.engine.physical import layout as lk

heaps = use("armillary.engine.common.heap_kernel")
put, take = heaps.put, heaps.take
share = use("armillary.engine.physical.share_kernel")
touch_chunk_flow, phase_of = share.touch_chunk_flow, share.phase_of
channel_state, channels, children, messages = accessors(
    lk.CHANNEL_STATE, lk.CHANNELS, lk.CHILDREN, lk.MESSAGE_STATE
)
nodes, progress, rank_state, ranks = accessors(lk.NODES, lk.NODE_STATE, lk.RANK_STATE, lk.RANKS)
paces, ready, slots, touched = accessors(lk.PACES, lk.READY, lk.SLOTS, lk.TOUCHED)
arrivals, asking, chosen, queried = accessors(lk.ARRIVALS, lk.ASKING, lk.CHOSEN, lk.QUERIED)
comms, item_state, items, chunk_flows = accessors(lk.COMMS, lk.ITEM_STATE, lk.ITEMS, lk.CHUNK_FLOWS)
line_members, lines, members, rows = accessors(lk.LINES, lk.LINE_ROWS, lk.MEMBERS, lk.ROWS)
phases, plan_chunks, plans, ring_entries = accessors(lk.PHASES, lk.CHUNKS, lk.PLANS, lk.RING_ENTRY)


@inlined
def node_row(prog, r, node):
    """Return the row of NODES of a node."""
    return ranks.nodes(prog, r) + node


@inlined
def ticks_of_node(prog, r, node):
    """Return how long a node of a rank takes."""
    return paces.ticks(prog, ranks.pace(prog, r) + node)


@inlined
def touch_rank(st, r):
    """Mark a rank to issue its free nodes in the second half of the tick."""
    # A heap, so that ranks issue in ascending order whatever happened first: they meet at shared memories.
    if rank_state.is_touched(st, r) == 0:
        rank_state.set_is_touched(st, r, 1)
        put(st, touched.at_rank(st, 0), st[lk.V_TOUCHED], r)
        st[lk.V_TOUCHED] += 1


@inlined
def slot_of(prog, r, slot):
    """Return the number of a slot of rank `r` among all slots."""
    return ranks.slot(prog, r) + slot


@inlined
def add_ready(prog, st, r, node):
    """Put a free node on the ready heap of its slot (lowest node first)."""
    slot = slot_of(prog, r, nodes.slot(prog, node_row(prog, r, node)))
    put(st, ready.at_node(st, slots.heap(st, slot)), slots.waiting(st, slot), node)
    slots.add_waiting(st, slot, 1)


@inner
def complete_node(prog, st, r, node, tick):
    """Finish one node: free its slot and its children."""
    row = node_row(prog, r, node)
    state = ranks.state(prog, r)
    progress.set_end(st, state + node, tick)
    slots.set_busy(st, slot_of(prog, r, nodes.slot(prog, row)), 0)
    # The last node to end gives the finish of the rank.
    if rank_state.add_left(st, r, -1) == 0:
        rank_state.set_finish(st, r, tick)
    first = nodes.child(prog, row)
    for i in range(first, first + nodes.children(prog, row)):
        child = children.node(prog, i)
        # The last parent to end frees the child.
        if progress.add_start(st, state + child, 1) == -1:
            add_ready(prog, st, r, child)
    touch_rank(st, r)


@inner
def arrived(prog, st, channel, tick):
    """End the send of a point-to-point message that has arrived, and its receive if that is posted."""
    # Arrivals are counted, not identified: the k-th to arrive ends the k-th send and receive.
    number = channel_state.came(st, channel)
    channel_state.set_came(st, channel, number + 1)
    message = channels.first(prog, channel) + number
    complete_node(prog, st, channels.sender(prog, channel), messages.send_node(st, message), tick)
    if channel_state.posted(st, channel) > number:
        complete_node(prog, st, channels.receiver(prog, channel), messages.recv_node(st, message), tick)


@inner
def choice_of(prog, st, item, chunk):
    """Return the number in CHOSEN of a chunk of the collective that an item has joined."""
    comm = items.comm(prog, item)
    return comms.chosen(prog, comm) + item_state.instance(st, item) * comms.chunks(prog, comm) + chunk


@inner
def phase_row(prog, st, item, chunk, p):
    """Return the number of the row of PHASES for a phase of a chunk."""
    plan = items.plan(prog, item)
    # Routes of a chunk lie one after the other in PHASES, each with the same number of phases.
    row = plan_chunks.phase(prog, plans.chunks(prog, plan) + chunk) + p
    if plans.choices(prog, plan) > 0:
        route = chosen.route(st, choice_of(prog, st, item, chunk))
        row += route * plans.phases(prog, plan)
    return row


@inner
def must_ask(prog, st, item, chunk, p):
    """Tell whether the level of a phase is still to be chosen; if so the member waits for that."""
    plan = items.plan(prog, item)
    if p + 1 >= plans.choices(prog, plan):
        return False  # the last level is what is left
    number = choice_of(prog, st, item, chunk)
    # Another member asked first, and the choice holds for all.
    if p < chosen.levels(st, number):
        return False
    # A heap by number: the order of choices must not depend on which member asked first within the tick.
    if chosen.item(st, number) == 0:
        chosen.set_item(st, number, item + 1)
        put(st, queried.at_chunk(st, 0), st[lk.V_QUERIED], number)
        st[lk.V_QUERIED] += 1
    asking.set_item(st, st[lk.V_ASKING], item)
    asking.set_chunk(st, st[lk.V_ASKING], chunk)
    asking.set_phase(st, st[lk.V_ASKING], p)
    st[lk.V_ASKING] += 1
    return True


@inner
def choose(prog, st, number):
    """Choose the least loaded level for a chunk, of equal ones the first in the plain order."""
    item = chosen.item(st, number) - 1
    plan = items.plan(prog, item)
    comm = items.comm(prog, item)
    first_chunk_flow = comms.chunk_flow(prog, comm) + item_state.instance(st, item) * comms.chunk_flows(
        prog, comm
    )
    done = chosen.levels(st, number)
    left = plans.choices(prog, plan) - done
    # Routes are permutations in lexicographic order: (left - 1)! of them begin with the levels chosen and one more.
    routes = 1
    for i in range(2, left):
        routes *= i
    chunk = number - choice_of(prog, st, item, 0)
    first = phase_row(prog, st, item, chunk, done)
    best = 0
    least = lk.NEVER
    for i in range(left):
        phase = first + i * routes * plans.phases(prog, plan)
        load = 0
        for line in range(phases.first(prog, phase), phases.first(prog, phase) + phases.lines(prog, phase)):
            load = max(load, chunk_flows.load(st, first_chunk_flow + phases.chunk_flow(prog, phase) + line))
        # Strictly less: of equal loads the first level in the plain order wins.
        if load < least:
            best = i
            least = load
    chosen.add_route(st, number, best * routes)
    chosen.set_levels(st, number, done + 1)
    chosen.set_item(st, number, 0)
    # The volume of this chunk counts from now on, so that the next choice within this tick prefers another level.
    phase = first + best * routes * plans.phases(prog, plan)
    for line in range(phases.first(prog, phase), phases.first(prog, phase) + phases.lines(prog, phase)):
        chunk_flows.add_load(
            st, first_chunk_flow + phases.chunk_flow(prog, phase) + line, phases.ticks(prog, phase)
        )


@inner
def choose_all(prog, st):
    """Choose the next level of every chunk for which a member has asked, in the order of collectives and chunks."""
    while st[lk.V_QUERIED] > 0:
        number = take(st, queried.at_chunk(st, 0), st[lk.V_QUERIED])
        st[lk.V_QUERIED] -= 1
        choose(prog, st, number)


@inlined
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


@inlined
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
    # All members have the same times, so only the rows of the first are written: see `PhysicalProgram.leaders`.
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


@inlined
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


@inlined
def phase_done(prog, st, heap, chunk_flow, key, tick):
    """End a phase of a chunk, or a chunk batch, for a line: its members enter the next phase, or their nodes end."""
    line = chunk_flows.line(st, chunk_flow)
    first = chunk_flows.item(st, chunk_flow)
    comm = items.comm(prog, first)
    plan = items.plan(prog, first)
    steps = plans.phases(prog, plan)
    chunk_batch = plans.chunk_batch(prog, plan) > 0
    member = comms.items(prog, comm) + item_state.instance(st, first) * comms.reps(prog, comm)
    # One item stands for the line; the times of a chunk batch are written by `end_chunk_batch`.
    if not chunk_batch:
        rows.set_end(st, items.row(prog, first) + key, tick)
    for i in range(lines.members(prog, line)):
        item = members.item(st, member + line_members.local(prog, lines.local(prog, line) + i))
        # One event ends all its chunks.
        if chunk_batch:
            complete_node(prog, st, items.rank(prog, item), items.node(prog, item), tick)
        elif key % steps + 1 < steps:
            enter(prog, st, heap, item, key // steps, key % steps + 1, tick)
        elif item_state.add_left(st, item, -1) == 0:
            complete_node(prog, st, items.rank(prog, item), items.node(prog, item), tick)
