"""Runs of a schedule: members go from round to round as their messages come and go.

A message leaves when both its members have come to its round; a member's round is over when all that it sends
in it has arrived, and all that it receives has been reduced.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.messages.message_layout_kernel import *
from armillary.engine.transport.layout_kernel import PS

mover = use("armillary.engine.transport.chosen_kernel")
inject = mover.inject


@inner
def size_class(words):
    """Return the power of two that `words` fit in."""
    bits = 3
    while (1 << bits) < words:
        bits += 1
    return bits


@inner
def allocate(st, mem, words):
    """Return the address of a block of working memory."""
    bits = size_class(words)
    head = st[FREE_BLOCKS] + bits
    block = st[head]
    if block > 0:
        st[head] = mem[block]
        return block
    block = st[V_MEMORY]
    st[V_MEMORY] = block + (1 << bits)
    return block


@inner
def give_back(st, mem, block, words):
    """Free a block."""
    head = st[FREE_BLOCKS] + size_class(words)
    mem[block] = st[head]
    st[head] = block


@inner
def send(prog, st, net_table, net, pool, queue, cookie, pair, size, key, tick):
    """Let a message leave on the route that its pair of NPUs has in this stage."""
    route = st[V_STAGE] * prog[Z_ROUTES] + pair
    st[V_FLYING] += 1
    st[V_SENT] += 1
    inject(net_table, net, pool, queue, cookie, route, size, key, tick * PS)


@inner
def begin_run(prog, st, mem, net_table, net, pool, queue, lane, key, phase, line_row, tick):
    """Start a phase of a chunk on a lane: all members come to their first round."""
    shape = prog[SHAPES] + prog[line_row + LI_SHAPE] * SH_COLUMNS
    members = prog[shape + SH_MEMBERS]
    run = allocate(st, mem, RU_HEAD + members * ME_COLUMNS)
    mem[run + RU_LANE] = lane
    mem[run + RU_KEY] = key
    mem[run + RU_PHASE] = phase
    mem[run + RU_LINE] = line_row
    mem[run + RU_LEFT] = members
    mem[run + RU_SHAPE] = shape
    for m in range(members):
        mem[run + RU_HEAD + m * ME_COLUMNS + ME_ROUND] = -1
        mem[run + RU_HEAD + m * ME_COLUMNS + ME_TIMES] = 0
        mem[run + RU_HEAD + m * ME_COLUMNS + ME_BUSY] = 0
    for m in range(members):
        enter_round(prog, st, mem, net_table, net, pool, queue, run, m, tick)
    return run


@inner
def enter_round(prog, st, mem, net_table, net, pool, queue, run, m, tick):
    """A member is through with its round: it comes to the next in which it has anything to do."""
    shape = mem[run + RU_SHAPE]
    me = run + RU_HEAD + m * ME_COLUMNS
    while True:
        if mem[me + ME_TIMES] > 1:
            mem[me + ME_TIMES] -= 1
        else:
            mem[me + ME_ROUND] += 1
            if mem[me + ME_ROUND] == prog[shape + SH_ROUNDS]:
                mem[run + RU_LEFT] -= 1
                return
            row = prog[ROUNDS] + (prog[shape + SH_FIRST] + mem[me + ME_ROUND]) * RO_COLUMNS
            mem[me + ME_TIMES] = prog[row + RO_REPEAT]
        row = prog[ROUNDS] + (prog[shape + SH_FIRST] + mem[me + ME_ROUND]) * RO_COLUMNS
        sends = prog[SENDS] + prog[row + RO_SENDS] + m
        receives = prog[RECEIVES] + prog[row + RO_RECEIVES] + m
        mem[me + ME_LEFT] = prog[sends + 1] - prog[sends] + prog[receives + 1] - prog[receives]
        if mem[me + ME_LEFT] == 0:
            mem[me + ME_TIMES] = 1
            continue
        for move in range(prog[sends], prog[sends + 1]):
            meet(prog, st, mem, net_table, net, pool, queue, run, me, move, MV_TARGET, tick)
        for i in range(prog[receives], prog[receives + 1]):
            move = prog[prog[RECEIVED] + i]
            meet(prog, st, mem, net_table, net, pool, queue, run, me, move, MV_SOURCE, tick)
        return


@inner
def meet(prog, st, mem, net_table, net, pool, queue, run, me, move, other_end, tick):
    """Let a message leave if the member at its other end is in this round, too."""
    shape = mem[run + RU_SHAPE]
    row = prog[MOVES] + (prog[shape + SH_MOVE] + move) * MV_COLUMNS
    other = run + RU_HEAD + prog[row + other_end] * ME_COLUMNS
    if mem[other + ME_ROUND] != mem[me + ME_ROUND] or mem[other + ME_TIMES] != mem[me + ME_TIMES]:
        return
    pair = pair_of(prog, mem, run, move)
    lane = mem[run + RU_LANE]
    key = st[st[LANE_KEY] + lane] if prog[Z_POLICY] == ORDERED else 0
    cookie = ((run << MOVE_BITS) + move) * 2
    send(
        prog,
        st,
        net_table,
        net,
        pool,
        queue,
        cookie,
        pair,
        prog[size_row(prog, mem, run, row)],
        key,
        tick,
    )


@inner
def pair_of(prog, mem, run, move):
    """Return the pair of nodes of a message."""
    return prog[prog[ROUTE_OF] + prog[mem[run + RU_LINE] + LI_ROUTES] + move]


@inner
def size_row(prog, mem, run, move_row):
    """Return where bytes and reduction ticks of a message stand, for the chunk of this run."""
    phase = prog[PHASE_SHAPE] + mem[run + RU_PHASE] * PS_COLUMNS
    return prog[SIZES] + (prog[phase + PS_SIZE] + prog[move_row + MV_SIZE]) * SZ_COLUMNS


@inner
def one_less(prog, st, mem, net_table, net, pool, queue, run, m, tick):
    """A message of a member's round is through."""
    me = run + RU_HEAD + m * ME_COLUMNS
    mem[me + ME_LEFT] -= 1
    if mem[me + ME_LEFT] == 0:
        enter_round(prog, st, mem, net_table, net, pool, queue, run, m, tick)
