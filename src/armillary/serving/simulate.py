"""Serve requests on one replica of an engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError
from armillary.base.jit import Mode, load
from armillary.serving import columns as c
from armillary.serving.requests import Ints, Requests
from armillary.serving.step_table import StepTable

FIRST_LOG = 1024
INTERPRETED = 20_000
"""Tokens up to which compiling would take longer than interpreting."""


@dataclass(frozen=True)
class Engine:
    """How an engine schedules.

    Attributes:
        budget: Most tokens of a step.
        sequences: Most requests that run at a time.
        block: Tokens of a block of the KV cache.
        blocks: Blocks of the KV cache.
        ahead: Whether it schedules a step while the one before runs.
        cached: Whether blocks are kept for requests that begin alike.
        long: Most new tokens of one prompt in a step; 0: no such limit.
        ingest_ns: From the arrival of a request until it is in the queue.
        emit_ns: From the end of a step until its tokens are with the client.
    """

    budget: int = 8192
    sequences: int = 1024
    block: int = 16
    blocks: int = 0
    ahead: bool = True
    cached: bool = True
    long: int = 0
    ingest_ns: int = 0
    emit_ns: int = 0


@dataclass(frozen=True)
class Served:
    """What became of requests.

    Attributes:
        requests: The load, with the arrivals that a closed loop found.
        begun: (requests) ns of the schedule that had it first.
        first: (requests) ns of its first token.
        last: (requests) ns of its last token.
        preempted: (requests) How often it lost its blocks.
        hit: (requests) Tokens that it found in the cache.
        again: (requests) Tokens that were computed again.
        steps: (steps, L_COLUMNS) See `armillary.serving.columns`.
        most_blocks: Most blocks in use.
        engine: The engine.
    """

    requests: Requests
    begun: Ints
    first: Ints
    last: Ints
    preempted: Ints
    hit: Ints
    again: Ints
    steps: Ints
    most_blocks: int
    engine: Engine


def serve(requests: Requests, engine: Engine, table: StepTable, mode: Mode | None = None) -> Served:
    """Return what became of each request.

    Raises:
        InputError: a request can never be served: its tokens do not fit into the KV cache.
    """
    n, par, st = len(requests), np.zeros(c.P_COLUMNS, np.int64), np.zeros(c.S_COLUMNS, np.int64)
    blocks = -(-(requests.prompt + requests.output) // engine.block)
    if n and (worst := int(blocks.argmax())) >= 0 and blocks[worst] > engine.blocks:
        tokens = int(requests.prompt[worst] + requests.output[worst])
        raise InputError(
            f"request {worst}: {tokens:,} tokens of prompt and output, expected at most "
            f"{engine.blocks * engine.block:,}, which the KV cache holds"
        )
    depth = 2 if engine.ahead else 1
    for place, value in (
        (c.P_REQUESTS, n), (c.P_BUDGET, engine.budget), (c.P_SEQUENCES, engine.sequences), (c.P_BLOCK, engine.block),
        (c.P_BLOCKS, engine.blocks), (c.P_DEPTH, depth), (c.P_CACHED, int(engine.cached)),
        (c.P_CLIENTS, requests.clients), (c.P_LONG, engine.long), (c.P_INGEST, engine.ingest_ns),
        (c.P_EMIT, engine.emit_ns),
    ):  # fmt: skip
        par[place] = value
    req = np.zeros((c.R_COLUMNS, n), np.int64)
    req[c.R_ARRIVAL], req[c.R_PROMPT], req[c.R_OUTPUT] = requests.arrival, requests.prompt, requests.output
    req[[c.R_BEGUN, c.R_FIRST, c.R_LAST]] = -1
    tables, contents = _tables(requests, engine, blocks, req)
    pool = _pool(engine, st)
    lists = (np.zeros(engine.sequences, np.int64), np.zeros(max(1, n), np.int64))
    flights = (np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(depth * engine.sequences, np.int64))
    work = int(requests.prompt.sum() // max(1, engine.budget) + requests.output.sum())
    mode = mode or ("interpreted" if work <= INTERPRETED else "compiled")
    kernel = load("armillary.serving.loop_kernel", mode)
    log = np.zeros(FIRST_LOG * c.L_COLUMNS, np.int64)
    arrays = (par, st, pool, req.ravel(), tables, lists, np.zeros(6, np.int64), flights, table.arrays())
    # The log grows; everything else has its size from the beginning.
    while (state := kernel.run(*arrays, log)) == kernel.FULL:
        log = np.concatenate((log, np.zeros_like(log)))
    if state == kernel.STUCK:
        raise InputError("the scheduler found nothing to do although requests wait")
    steps = log[: st[c.S_STEPS] * c.L_COLUMNS].reshape(-1, c.L_COLUMNS)
    done = Requests(
        req[c.R_ARRIVAL], requests.prompt, requests.output, requests.clients, requests.shared,
        requests.shared_block, requests.about,
    )  # fmt: skip
    return Served(
        done, req[c.R_BEGUN], req[c.R_FIRST], req[c.R_LAST], req[c.R_LOST], req[c.R_HIT], req[c.R_AGAIN], steps,
        int(st[c.S_MOST_BLOCKS]), engine,
    )  # fmt: skip


def _pool(engine: Engine, st: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the blocks, all of them free, in their order."""
    many = engine.blocks if engine.cached else 0
    before, behind = np.arange(-1, many - 1, dtype=np.int64), np.arange(1, many + 1, dtype=np.int64)
    if many:
        behind[-1] = -1
    st[c.S_FREE], st[c.S_FIRST_FREE], st[c.S_LAST_FREE] = engine.blocks, 0 if many else -1, many - 1
    return before, behind, np.zeros(many, np.int64), np.full(many, -1, np.int64)


def _tables(requests: Requests, engine: Engine, blocks: Ints, req: Ints) -> tuple[tuple[Ints, Ints, Ints], int]:
    """Return the tables of blocks and contents, and how many contents there are."""
    if not engine.cached:
        none = np.zeros(0, np.int64)
        return (none, none, none), 0
    ends = np.cumsum(blocks)
    req[c.R_TABLE] = ends - blocks
    total = int(ends[-1]) if len(ends) else 0
    contents = np.arange(total, dtype=np.int64)
    if requests.shared is not None:
        _name(requests, engine, req[c.R_TABLE], contents)
    return (np.zeros(total, np.int64), contents, np.full(total, -1, np.int64)), total


def _name(requests: Requests, engine: Engine, first: Ints, contents: Ints) -> None:
    """Give equal first blocks of requests one name: that of the request that comes first."""
    assert requests.shared is not None
    # A block is the same as another if its tokens are, and all before it.
    chains: dict[tuple[int, tuple[int, ...], int], int] = {}
    given: dict[int, int] = {}
    for r, names in enumerate(requests.shared):
        chain = -1
        whole = min(len(names) * requests.shared_block, int(requests.prompt[r])) // engine.block
        for at in range(whole):
            begin = at * engine.block
            inside = names[begin // requests.shared_block : -(-(begin + engine.block) // requests.shared_block)]
            chain = chains.setdefault((chain, tuple(inside), begin % requests.shared_block), len(chains))
            place = int(first[r]) + at
            contents[place] = given.setdefault(chain, int(contents[place]))
