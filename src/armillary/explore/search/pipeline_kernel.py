"""Kernel for the earliest ends of all tasks of a pipeline in which tasks wait only for what they must."""

from __future__ import annotations

from armillary.base.jit import inner, njit

NEVER = -(1 << 60)
"""Earlier than all times: the time of something that nothing waits for."""

TASK_COLUMNS = 6
T_RANK, T_LIST, T_PARENT, T_LAG, T_BACK, T_BESIDE = range(TASK_COLUMNS)
"""Rank; list of segments; task whose result it works on, -1: none; number of the message that brings it; whether it
hands on its result only after its last kernel; which kernels it follows."""
ALONE, BESIDE, FILLS = range(3)
"""Those of the task before; of the one before that; the same as the task before does, with which it counts as one."""
SEGMENT_COLUMNS = 11
S_NOW_IN, S_NOW_CHAIN, S_END_IN, S_END_CHAIN, S_MADE_IN, S_MADE_CHAIN = range(6)
"""ns from input and chain (the kernels before) to the result, the last kernel and the gradients of weights."""
S_GATHER, S_REDUCE, S_LAYER = 6, 8, 10
"""ns of the gathers before and reductions after it, of two communicators; which weights it uses, -1: none."""
RANK_COLUMNS = 13
R_CHAIN, R_FINISH, R_CALLED, R_USED, R_LAYER, R_USES = 0, 1, 2, 4, 5, 6
"""End of the last kernel; last end; ends of the last calls on two communicators; end of the last use of weights,
number of these weights, and number of uses."""
R_TASK, R_SEGMENT, R_AHEAD, R_COUNT = range(7, 11)
"""Progress of gathers: task, segment, weights, and number of gathers placed."""
R_BEFORE, R_EARLIER = 11, 12
"""Last kernel of the task before the latest one, and of the one before that."""


@inner
def gather_next(r, tasks, lists, segments, own, own_ptr, ranks, ready, ahead):
    """Schedule the gather for the next use of weights that differ from those before."""
    at = r * RANK_COLUMNS
    # Memory holds the weights of `ahead` + 1 uses: further gathers wait until one is released.
    floor = ranks[at + R_USED] if ranks[at + R_COUNT] > ahead else NEVER
    while ranks[at + R_TASK] < own_ptr[r + 1]:
        chosen = tasks[own[ranks[at + R_TASK]] * TASK_COLUMNS + T_LIST]
        row = (lists[2 * chosen] + ranks[at + R_SEGMENT]) * SEGMENT_COLUMNS
        # The task has no more segments: go on with the next task of the rank.
        if lists[2 * chosen] + ranks[at + R_SEGMENT] >= lists[2 * chosen + 1]:
            ranks[at + R_TASK] += 1
            ranks[at + R_SEGMENT] = 0
            continue
        ranks[at + R_SEGMENT] += 1
        # Weights in use already, or none: nothing to gather.
        if segments[row + S_LAYER] < 0 or segments[row + S_LAYER] == ranks[at + R_AHEAD]:
            continue
        ranks[at + R_AHEAD] = segments[row + S_LAYER]
        done = NEVER
        # Collectives of one communicator run in the order of their calls.
        for k in range(2):
            if segments[row + S_GATHER + k] > 0:
                done = max(done, max(ranks[at + R_CALLED + k], floor) + segments[row + S_GATHER + k])
                ranks[at + R_CALLED + k] = max(ranks[at + R_CALLED + k], floor) + segments[row + S_GATHER + k]
        # A ring: a use and the one `ahead` + 1 later share a slot, and never at the same time.
        ready[r * (ahead + 1) + ranks[at + R_COUNT] % (ahead + 1)] = done
        ranks[at + R_COUNT] += 1
        return


@njit
def run(n, tasks, lists, segments, lags, own, own_ptr, ranks, ready, ahead, out):
    """Fill `out` with the time at which each task passes on its result, and update `ranks`.

    Args:
        n: Tasks.
        tasks: (n, TASK_COLUMNS) Parents first, those of a rank in their order.
        lists: (lists, 2) First segment and end.
        segments: (segments, SEGMENT_COLUMNS).
        lags: ns of each message.
        own: Tasks by rank, in order.
        own_ptr: (ranks + 1) Where those of a rank begin.
        ranks: (ranks, RANK_COLUMNS) The state; R_CHAIN and R_CALLED say when ranks may begin.
        ready: (ranks, ahead + 1) Room for gathers.
        ahead: Number of uses that gathers may run ahead; -1 if nothing is gathered.
        out: (n) Filled with ns.
    """
    for t in range(n):
        row = t * TASK_COLUMNS
        r = tasks[row + T_RANK]
        at = r * RANK_COLUMNS
        beside = tasks[row + T_BESIDE]
        # A task that fills gaps counts as part of the one before it, so the history stays.
        if beside != FILLS:
            ranks[at + R_EARLIER], ranks[at + R_BEFORE] = ranks[at + R_BEFORE], ranks[at + R_CHAIN]
        # A task beside another follows the kernels of the one before that.
        now, chain = NEVER, ranks[at + R_CHAIN] if beside == ALONE else ranks[at + R_EARLIER]
        if tasks[row + T_PARENT] >= 0:
            now = out[tasks[row + T_PARENT]] + lags[tasks[row + T_LAG]]
        chosen = tasks[row + T_LIST]
        for s in range(lists[2 * chosen], lists[2 * chosen + 1]):
            seg = s * SEGMENT_COLUMNS
            start = chain
            if ahead >= 0 and segments[seg + S_LAYER] >= 0:
                # A new use of weights: its gather, and those up to `ahead` later, are placed first.
                if segments[seg + S_LAYER] != ranks[at + R_LAYER]:
                    ranks[at + R_LAYER] = segments[seg + S_LAYER]
                    ranks[at + R_USES] += 1
                    while (
                        ranks[at + R_COUNT] < ranks[at + R_USES] + ahead
                        and ranks[at + R_TASK] < own_ptr[r + 1]
                    ):
                        gather_next(r, tasks, lists, segments, own, own_ptr, ranks, ready, ahead)
                start = max(start, ready[r * (ahead + 1) + (ranks[at + R_USES] - 1) % (ahead + 1)])
            # One step of the product over max and plus: the state (input, chain) times the segment.
            result = max(segments[seg + S_NOW_IN] + now, segments[seg + S_NOW_CHAIN] + start)
            end = max(segments[seg + S_END_IN] + now, segments[seg + S_END_CHAIN] + start)
            made = max(segments[seg + S_MADE_IN] + now, segments[seg + S_MADE_CHAIN] + start)
            for k in range(2):
                if segments[seg + S_REDUCE + k] > 0:
                    called = max(ranks[at + R_CALLED + k], made) + segments[seg + S_REDUCE + k]
                    ranks[at + R_CALLED + k] = called
            # Clamped, so that NEVER plus a delay stays NEVER.
            now, chain = max(result, NEVER), max(end, chain)
            if segments[seg + S_LAYER] >= 0:
                ranks[at + R_USED] = chain
        ranks[at + R_CHAIN] = max(ranks[at + R_CHAIN], chain) if beside == FILLS else chain
        ranks[at + R_FINISH] = max(ranks[at + R_FINISH], now, chain)
        out[t] = max(now, chain) if tasks[row + T_BACK] else now
