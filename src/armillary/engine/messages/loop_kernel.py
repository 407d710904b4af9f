"""The event loop of profile `physical` over a network that moves messages.

Ranks behave as in `engine.physical`; a chunk flow runs rounds of messages instead of volumes. A tick takes four steps
(V_STEP): WAIT runs the network to its next delivery, COLLECT gathers everything it delivers up to the end of that tick,
HAPPEN processes these deliveries and the events of the heap, START issues free nodes and begins chunks. The kernel may
return to Python between any two of them, to grow a table or to let an interrupt through, and then resumes there.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, njit, use
from armillary.engine.messages import layout as lk
from armillary.engine.physical import layout as physical
from armillary.engine.transport import layout as tk

drop_event = use("armillary.engine.common.heap_kernel").drop_event
share = use("armillary.engine.physical.share_kernel")
schedule, code_of, touch_chunk_flow = share.schedule, share.code_of, share.touch_chunk_flow
work = use("armillary.engine.physical.progress_kernel")
complete_node, touch_rank, arrived = work.complete_node, work.touch_rank, work.arrived
node_row, phase_row = work.node_row, work.phase_row
enter_asking, phase_done = work.enter_asking, work.phase_done
fluid = use("armillary.engine.physical.fluid_kernel")
issue_touched, offer = fluid.issue_touched, fluid.offer
round_kernel = use("armillary.engine.messages.round_kernel")
begin_run, one_less, send = round_kernel.begin_run, round_kernel.one_less, round_kernel.send
give_back, size_row, member_of = round_kernel.give_back, round_kernel.size_row, round_kernel.member_of
switch_kernel = use("armillary.engine.messages.switch_kernel")
occupy, release = switch_kernel.occupy, switch_kernel.release
through_switch = switch_kernel.through_switch
net_queue = use("armillary.engine.transport.queue_kernel")
full, free_row = net_queue.full, net_queue.free_row
mover = use("armillary.engine.transport.chosen_kernel")
advance, change = mover.advance, mover.change
whole = use("armillary.engine.transport.parts_kernel").whole
channel_routes, channel_state = accessors(lk.CHANNEL_ROUTE, physical.CHANNEL_STATE)
channels, dirty, events, items = accessors(physical.CHANNELS, physical.DIRTY, physical.EVENT, physical.ITEMS)
chunk_flow_runs, chunk_flows, line_routes = accessors(
    lk.CHUNK_FLOW_RUNS, physical.CHUNK_FLOWS, lk.LINE_ROUTES
)
lines, messages, moves = accessors(physical.LINE_ROWS, physical.MESSAGE_STATE, lk.MOVES)
phase_shapes, phases, plans, pool_rows = accessors(lk.PHASE_SHAPE, physical.PHASES, physical.PLANS, tk.ROW)
rows, run_members, runs, shapes, sizes = accessors(physical.ROWS, lk.MEMBER, lk.RUN, lk.SHAPES, lk.SIZES)
nodes, ranks, stages = accessors(physical.NODES, physical.RANKS, lk.STAGES)


@inner
def run_over(prog, st, mem, heap, run, tick):
    """End a run whose members have all finished their rounds: the phase of its chunk is done."""
    # `give_back` links the block into a free list through its first word, so read this one before.
    chunk_flow = runs.chunk_flow(mem, run)
    key = runs.key(mem, run)
    # Before `phase_done`, which touches chunk flows of its own: whoever waits for the switches is looked at
    # first.
    release(prog, st, runs.line(mem, run))
    give_back(st, mem, run, lk.RU_HEAD + shapes.members(prog, runs.shape(mem, run)) * lk.ME_COLUMNS)
    # The words behind the first stay as they were: nothing is allocated before `phase_done`.
    chunk_flow_runs.add_active(st, chunk_flow, -1)
    chunk_flows.add_load(st, chunk_flow, -phases.ticks(prog, runs.phase(mem, run)))
    phase_done(prog, st, heap, chunk_flow, key, tick)
    touch_chunk_flow(st, chunk_flow)


@inner
def start_chunks(prog, st, mem, heap, net_table, net, pool, queue, chunk_flow, tick, block):
    """Start waiting chunks of a chunk flow up to its window; returns False if a table must grow first."""
    item = chunk_flows.item(st, chunk_flow)
    line = chunk_flows.line(st, chunk_flow)
    if lines.members(prog, line) == 0:
        # A line without members is a point-to-point channel. It has no window: the transport lets messages of
        # a pair leave one after the other.
        channel = items.channel(prog, item)
        while channel_state.started(st, channel) < channel_state.sent(st, channel):
            if not room(st, mem, heap, net, block):
                return False
            number = channel_state.started(st, channel)
            channel_state.set_started(st, channel, number + 1)
            message = channels.first(prog, channel) + number
            key = messages.send_key(st, message) if prog[physical.Z_POLICY] == physical.ORDERED else 0
            pair = channel_routes.pair(prog, channel)
            size = channel_routes.size(prog, channel)
            # The lowest bit tells messages of channels (1) from those of runs (0).
            cookie = ((channel << lk.MOVE_BITS) + number) * 2 + 1
            send(prog, st, net_table, net, pool, queue, cookie, pair, size, key, tick)
        return True
    plan = items.plan(prog, item)
    while chunk_flows.queue(st, chunk_flow) >= 0:
        if not room(st, mem, heap, net, block):
            return False
        # `key` is chunk * phases + phase, the row of the item.
        key = chunk_flows.queue(st, chunk_flow)
        steps = plans.phases(prog, plan)
        phase = phase_row(prog, st, item, key // steps, key % steps)
        # Too small a window leaves links idle for a latency per round; too large a one delays early chunks
        # that other levels wait for (`window_of`).
        if chunk_flow_runs.active(st, chunk_flow) >= phase_shapes.window(prog, phase):
            return True
        row = phase_shapes.lines(prog, phase) + line
        # The chunk flow now stands in WAITING; `release` touches it again, so it need not stay dirty.
        if not occupy(prog, st, row, chunk_flow):
            return True
        chunk_flows.set_queue(st, chunk_flow, rows.next(st, items.row(prog, item) + key))
        rows.set_start(st, items.row(prog, item) + key, tick)
        chunk_flow_runs.add_active(st, chunk_flow, 1)
        run = begin_run(prog, st, mem, net_table, net, pool, queue, chunk_flow, key, phase, row, tick)
        # No member has a message, e.g. in an all-to-all whose splits are all 0. An event ends it, because
        # phases end in step HAPPEN only.
        if runs.left(mem, run) == 0:
            schedule(st, heap, tick, lk.EV_OVER, run, 0)
        if line_routes.switches(prog, row) > 0:
            # Other chunk flows that wait for the switches have their turn first.
            touch_chunk_flow(st, chunk_flow)
            return True
    return True


@inner
def came(prog, st, mem, heap, net_table, net, pool, queue, cookie, tick):
    """Process a message that the network has delivered: both its members have one message less to wait for."""
    st[lk.V_FLYING] -= 1
    what = cookie // 2
    # The endpoint delay counts for the acknowledgement of the sender and for the use by the receiver alike.
    delay = prog[lk.Z_ENDPOINT]
    if cookie % 2 == 1:
        # Messages of a channel arrive in any order: the k-th that comes is the k-th.
        schedule(st, heap, tick + delay, physical.EV_ARRIVED, what >> lk.MOVE_BITS, 0)
        return
    run = what >> lk.MOVE_BITS
    move = what & ((1 << lk.MOVE_BITS) - 1)
    row = shapes.move(prog, runs.shape(mem, run)) + move
    # The run cannot end here: its receiver still counts this message.
    if delay > 0:
        schedule(st, heap, tick + delay, lk.EV_SENT, run, moves.source(prog, row))
    else:
        one_less(prog, st, mem, net_table, net, pool, queue, run, moves.source(prog, row), tick)
    # A switch works on the packets as they come and has no endpoint delay.
    done = tick + delay
    if moves.reduce(prog, row) >= lk.ADDED_IN_SWITCH:
        done = through_switch(prog, st, mem, run, move, row, tick)
    elif moves.reduce(prog, row) == lk.REDUCED:
        # A member reduces one message after the other.
        me = member_of(run, moves.target(prog, row))
        done = max(done, run_members.busy(mem, me)) + sizes.reduce(prog, size_row(prog, mem, run, row))
        run_members.set_busy(mem, me, done)
    if done > tick:
        schedule(st, heap, done, lk.EV_RECEIVED, run, moves.target(prog, row))
        return
    one_less(prog, st, mem, net_table, net, pool, queue, run, moves.target(prog, row), tick)
    if runs.left(mem, run) == 0:
        run_over(prog, st, mem, heap, run, tick)


@inner
def happen(prog, st, mem, heap, net_table, net, pool, queue, tick):
    """Process the first event of the heap."""
    what, b = events.what(heap, 0), events.b(heap, 0)
    code, a = code_of(what), what >> physical.CODE_BITS
    st[physical.V_HEAP] -= 1
    drop_event(heap, st[physical.V_HEAP])
    if code == physical.EV_NODE:
        complete_node(prog, st, a, b, tick)
    elif code == physical.EV_ARRIVED:
        arrived(prog, st, a, tick)
    elif code in (lk.EV_SENT, lk.EV_RECEIVED):
        one_less(prog, st, mem, net_table, net, pool, queue, a, b, tick)
        if runs.left(mem, a) == 0:
            run_over(prog, st, mem, heap, a, tick)
    elif code == physical.EV_OFFERED:
        offer(prog, st, b, ranks.items(prog, a) + nodes.item(prog, node_row(prog, a, b)), tick)
    elif code == lk.EV_OVER:
        run_over(prog, st, mem, heap, a, tick)
    else:
        touch_rank(st, a)


@inner
def room(st, mem, heap, net, block):
    """Tell whether a message or a chunk has room: for `EVENTS` events, a block of memory and a row of the pool."""
    if (
        (st[physical.V_HEAP] + lk.EVENTS) * physical.HEAP_COLUMNS <= len(heap)
        and st[lk.V_MEMORY] + block <= len(mem)
        and not full(net)
    ):
        return True
    # An error that is already noted must not be overwritten.
    if st[physical.V_STATUS] == physical.OK:
        st[physical.V_STATUS] = physical.GROW
    return False


@inner
def settle(prog, st, mem, heap, net_table, net, pool, queue, tick, block):
    """Start what can start now: nodes, and chunks of chunk flows.

    Returns whether everything that can start has. Where there was no room (GROW) it is called again, and continues
    where it stopped.
    """
    if not issue_touched(prog, st, heap, tick):
        return False
    enter_asking(prog, st, heap, tick)
    if st[lk.V_COUNT] == 0:
        # What these chunk flows make others look at is looked at after them.
        st[lk.V_COUNT] = st[physical.V_DIRTY]
    while st[physical.V_LOOKED] < st[lk.V_COUNT]:
        chunk_flow = dirty.chunk_flow(st, st[physical.V_LOOKED])
        chunk_flows.set_dirty(st, chunk_flow, 0)
        if not start_chunks(prog, st, mem, heap, net_table, net, pool, queue, chunk_flow, tick, block):
            chunk_flows.set_dirty(st, chunk_flow, 1)
            return False
        st[physical.V_LOOKED] += 1
    # What was touched meanwhile moves to the front of the list, for the next round.
    for i in range(st[physical.V_LOOKED], st[physical.V_DIRTY]):
        dirty.set_chunk_flow(st, i - st[physical.V_LOOKED], dirty.chunk_flow(st, i))
    st[physical.V_DIRTY] -= st[physical.V_LOOKED]
    st[physical.V_LOOKED] = 0
    st[lk.V_COUNT] = 0
    return st[physical.V_DIRTY] == 0


@inner
def wait(prog, st, heap, net_table, net, pool, queue):
    """Let the network run to its next delivery, the next event or the next stage; returns False if nothing is left."""
    limit = tk.FOREVER
    if st[physical.V_HEAP] > 0:
        if events.tick(heap, 0) >= physical.LAST_TICK:
            st[physical.V_STATUS] = physical.TOO_LONG
            return False
        limit = events.tick(heap, 0) * tk.PS
    stage = tk.FOREVER
    if st[lk.V_STAGE] + 1 < prog[lk.Z_STAGES]:
        stage = stages.begin(prog, st[lk.V_STAGE] + 1)
    # Stages still to come change nothing for a network without messages.
    if limit == tk.FOREVER and st[lk.V_FLYING] == 0:
        return False
    now = advance(net_table, net, pool, queue, min(limit, stage))
    if net[tk.N_STATUS] == tk.GROW:
        st[physical.V_STATUS] = physical.GROW
        return True
    # Messages are in flight, but none will ever move: links are down, or buffers wait in a cycle (`explain`).
    if now == tk.FOREVER:
        return False
    # From ps to ticks, rounded up: no message may arrive before the links allow it.
    st[lk.V_TICK] = (now + tk.PS - 1) // tk.PS
    st[lk.V_STEP] = lk.COLLECT
    if now == stage:
        st[lk.V_STAGE] += 1
        net[tk.N_STAGE] = st[lk.V_STAGE]
        change(net_table, net, pool, queue, now)
    return True


@inner
def collect(st, net_table, net, pool, queue):
    """Run the network to the end of the tick, and collect its deliveries: ranks react at whole ticks only."""
    end = st[lk.V_TICK] * tk.PS
    while True:
        row = net[tk.N_DELIVERED]
        if row > 0:
            # Both lists are chained rows of the pool: appending the whole list is one link.
            if st[lk.V_CAME] == 0:
                st[lk.V_CAME] = row
            else:
                pool_rows.set_next(pool, st[lk.V_CAME_LAST], row)
            st[lk.V_CAME_LAST] = net[tk.N_DELIVERED_LAST]
            net[tk.N_DELIVERED] = 0
        # `advance` returns at each delivery, so only a call without one proves that the tick has no more.
        if net[tk.N_NOW] >= end and row == 0:
            st[lk.V_STEP] = lk.HAPPEN
            return
        advance(net_table, net, pool, queue, end)
        if net[tk.N_STATUS] == tk.GROW:
            st[physical.V_STATUS] = physical.GROW
            return


@njit
def run(prog, st, mem, heap, net_table, net, pool, queue, budget, block):
    """Process about `budget` events; returns whether something is left: stops for lack of room (GROW) or an error.

    `block` is the most memory that a chunk takes.
    """
    st[physical.V_STATUS] = physical.OK
    net[tk.N_STATUS] = tk.OK
    while budget > 0:
        budget -= 1
        if st[lk.V_STEP] == lk.WAIT and not wait(prog, st, heap, net_table, net, pool, queue):
            return False
        if st[lk.V_STEP] == lk.COLLECT:
            collect(st, net_table, net, pool, queue)
        if st[physical.V_STATUS] != physical.OK:
            return True
        tick = st[lk.V_TICK]
        if st[lk.V_STEP] == lk.HAPPEN:
            # What the network delivers, and what is due at this tick, comes before what starts.
            while st[lk.V_CAME] > 0:
                if not room(st, mem, heap, net, block):
                    return True
                budget -= 1
                st[physical.V_EVENTS] += 1
                row = st[lk.V_CAME]
                st[lk.V_CAME] = pool_rows.next(pool, row)
                # `came` may send, and so reuse the row: read the cookie and free the row before.
                cookie = whole(net_table, net, pool, pool_rows.cookie(pool, row))
                free_row(net, pool, row)
                if cookie >= 0:
                    came(prog, st, mem, heap, net_table, net, pool, queue, cookie, tick)
            while st[physical.V_HEAP] > 0 and events.tick(heap, 0) <= tick:
                if not room(st, mem, heap, net, block):
                    return True
                budget -= 1
                st[physical.V_EVENTS] += 1
                happen(prog, st, mem, heap, net_table, net, pool, queue, tick)
            st[lk.V_STEP] = lk.START
        over = settle(prog, st, mem, heap, net_table, net, pool, queue, tick, block)
        if st[physical.V_STATUS] != physical.OK:
            return True
        # Not over: chunk flows that gave others their turn at a switch are looked at again, at this tick.
        st[lk.V_STEP] = lk.WAIT if over else lk.HAPPEN
    return True
