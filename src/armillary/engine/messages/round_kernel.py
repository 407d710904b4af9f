"""Runs of a schedule: members advance from round to round as their messages arrive.

Rounds rendezvous. A message leaves when both its members have entered its round. A member leaves a round when
everything it sends has arrived and everything it receives has been reduced. There is no barrier: members that
exchange nothing may be any number of rounds apart.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.messages import layout as lk
from armillary.engine.physical import layout as physical
from armillary.engine.transport import layout as tk

send_parts = use("armillary.engine.transport.parts_kernel").send_parts
free_blocks, chunk_flows, line_routes, moves = accessors(
    lk.FREE_BLOCKS, physical.CHUNK_FLOWS, lk.LINE_ROUTES, lk.MOVES
)
phase_shapes, received, receives, rounds = accessors(lk.PHASE_SHAPE, lk.RECEIVED, lk.RECEIVES, lk.ROUNDS)
route_of, run_members, runs, sends, shapes = accessors(lk.ROUTE_OF, lk.MEMBER, lk.RUN, lk.SENDS, lk.SHAPES)
sizes = accessors(lk.SIZES)


@inner
def size_class(words):
    """Return the exponent of the least power of two, 8 or more, that is not below `words`."""
    bits = 3
    while (1 << bits) < words:
        bits += 1
    return bits


@inner
def allocate(st, mem, words):
    """Return the address of a block of working memory for `words` integers; its contents are arbitrary."""
    # Segregated free lists: runs of one shape have one size, so a block almost always fits the next run
    # exactly.
    bits = size_class(words)
    block = free_blocks.block(st, bits)
    if block > 0:
        free_blocks.set_block(st, bits, mem[block])
        return block
    # `room` has made sure that the largest block of the program fits.
    block = st[lk.V_MEMORY]
    st[lk.V_MEMORY] = block + (1 << bits)
    return block


@inner
def give_back(st, mem, block, words):
    """Free a block of `words` integers: its first word becomes the link of the free list."""
    bits = size_class(words)
    mem[block] = free_blocks.block(st, bits)
    free_blocks.set_block(st, bits, block)


@inner
def send(prog, st, net_table, net, pool, queue, cookie, pair, size, key, tick):
    """Let a message leave on the route that its pair of NPUs has in this stage."""
    # Routes are stored stage by stage; a message keeps its route when the stage changes later.
    route = st[lk.V_STAGE] * prog[lk.Z_ROUTES] + pair
    st[lk.V_FLYING] += 1
    st[lk.V_SENT] += 1
    send_parts(net_table, net, pool, queue, cookie, route, size, key, tick * tk.PS)


@inner
def member_of(run, m):
    """Return the address of a member of a run."""
    return run + lk.RU_HEAD + m * lk.ME_COLUMNS


@inner
def begin_run(prog, st, mem, net_table, net, pool, queue, chunk_flow, key, phase, line_row, tick):
    """Start a phase of a chunk on a chunk flow: all members enter their first round. Returns the address of the run."""
    shape = line_routes.shape(prog, line_row)
    members = shapes.members(prog, shape)
    run = allocate(st, mem, lk.RU_HEAD + members * lk.ME_COLUMNS)
    runs.set_chunk_flow(mem, run, chunk_flow)
    runs.set_key(mem, run, key)
    runs.set_phase(mem, run, phase)
    runs.set_line(mem, run, line_row)
    runs.set_left(mem, run, members)
    runs.set_shape(mem, run, shape)
    # Two loops: every member must be outside of all rounds before the first enters one, because `meet` reads
    # the round of the other end and the block still holds its last contents.
    for m in range(members):
        me = member_of(run, m)
        run_members.set_round(mem, me, -1)
        run_members.set_times(mem, me, 0)
        run_members.set_busy(mem, me, 0)
    for m in range(members):
        enter_round(prog, st, mem, net_table, net, pool, queue, run, m, tick)
    return run


@inner
def enter_round(prog, st, mem, net_table, net, pool, queue, run, m, tick):
    """Move a member from a finished round to the next one in which it sends or receives anything."""
    shape = runs.shape(mem, run)
    me = member_of(run, m)
    while True:
        # A ring among n members is one round that repeats n - 1 times, not n - 1 rounds.
        if run_members.times(mem, me) > 1:
            run_members.add_times(mem, me, -1)
        else:
            run_members.add_round(mem, me, 1)
            if run_members.round(mem, me) == shapes.rounds(prog, shape):
                runs.add_left(mem, run, -1)
                return
            row = shapes.first(prog, shape) + run_members.round(mem, me)
            run_members.set_times(mem, me, rounds.repeat(prog, row))
        row = shapes.first(prog, shape) + run_members.round(mem, me)
        first_send = sends.first(prog, rounds.sends(prog, row) + m)
        last_send = sends.first(prog, rounds.sends(prog, row) + m + 1)
        first_receive = receives.first(prog, rounds.receives(prog, row) + m)
        last_receive = receives.first(prog, rounds.receives(prog, row) + m + 1)
        run_members.set_left(mem, me, last_send - first_send + last_receive - first_receive)
        if run_members.left(mem, me) == 0:
            # A member with no messages in a round skips all its repetitions at once.
            run_members.set_times(mem, me, 1)
            continue
        # Each message is looked at from both its ends; it leaves at the second look, when both are here.
        for move in range(first_send, last_send):
            at = shapes.move(prog, shape) + move
            meet(prog, st, mem, net_table, net, pool, queue, run, me, move, moves.target(prog, at), tick)
        for i in range(first_receive, last_receive):
            move = received.move(prog, i)
            at = shapes.move(prog, shape) + move
            meet(prog, st, mem, net_table, net, pool, queue, run, me, move, moves.source(prog, at), tick)
        return


@inner
def meet(prog, st, mem, net_table, net, pool, queue, run, me, move, other_member, tick):
    """Let a message leave if the member at its other end is in this round, too."""
    other = member_of(run, other_member)
    if run_members.round(mem, other) != run_members.round(mem, me):
        return
    # The same round but another repetition: `times` counts down and so numbers them.
    if run_members.times(mem, other) != run_members.times(mem, me):
        return
    pair = pair_of(prog, mem, run, move)
    chunk_flow = runs.chunk_flow(mem, run)
    key = chunk_flows.key(st, chunk_flow) if prog[physical.Z_POLICY] == physical.ORDERED else 0
    cookie = ((run << lk.MOVE_BITS) + move) * 2
    move_row = shapes.move(prog, runs.shape(mem, run)) + move
    size = sizes.bytes(prog, size_row(prog, mem, run, move_row))
    send(prog, st, net_table, net, pool, queue, cookie, pair, size, key, tick)


@inner
def pair_of(prog, mem, run, move):
    """Return the pair of nodes of a message."""
    return route_of.pair(prog, line_routes.routes(prog, runs.line(mem, run)) + move)


@inner
def size_row(prog, mem, run, move_row):
    """Return the row of SIZES of a message, for the chunk of this run."""
    return phase_shapes.size(prog, runs.phase(mem, run)) + moves.size(prog, move_row)


@inner
def one_less(prog, st, mem, net_table, net, pool, queue, run, m, tick):
    """Count one message of a member's round as done; after the last, the member enters its next round."""
    me = member_of(run, m)
    if run_members.add_left(mem, me, -1) == 0:
        enter_round(prog, st, mem, net_table, net, pool, queue, run, m, tick)
