"""Serve requests on one replica of an engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from armillary.base.allowed import Pace, require
from armillary.base.errors import InputError
from armillary.base.jit import Mode, load
from armillary.serving import columns as c
from armillary.serving.contents import Layout, slots_of, tables_of
from armillary.serving.requests import Follows, Ints, Requests
from armillary.serving.step_table import StepTable

FIRST_LOG = 1024
CHANGE = "fewer or shorter requests"
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
        rule: Whose scheduler: one of `armillary.serving.columns.RULES`.
        ingest_ns: From the arrival of a request until it is in the queue, but for its tokens.
        token_ps: What the front end takes for a token of a prompt, of one request after another.
        poll: Steps of tokens after which the engine looks for new requests (SGLang's ``scheduler-recv-interval``).
        ranks: That have requests and blocks of their own and share experts (attention data parallel); tokens, sequences
            and blocks are those of each.
        balance: Steps for which prompts wait until each rank has one (TensorRT-LLM).
        emit_ns: From the end of a step until its tokens are with the client.
        brought: Whether requests come with the keys and values of their prompts, and with the token that follows these.
        slots: Blocks that the memory of its host keeps of those that are taken on the device, and its disk of those
            that are taken there; 0: none.
        load_ps: In which one of each is back on the device.
        accepted: Of each draft before a step, of 2**31 - 1 steps how many accept it and all before it; empty: nothing
            is drafted.
    """

    budget: int = 8192
    sequences: int = 1024
    block: int = 16
    blocks: int = 0
    ahead: bool = True
    cached: bool = True
    long: int = 0
    rule: str = "vllm"
    token_ps: int = 0
    poll: int = 1
    ingest_ns: int = 0
    emit_ns: int = 0
    ranks: int = 1
    balance: int = 0
    brought: bool = False
    accepted: tuple[int, ...] = ()
    slots: tuple[int, int] = (0, 0)
    load_ps: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Served:
    """What became of requests on a replica.

    Attributes:
        requests: The load, with the arrivals that a closed loop found.
        begun: (requests) ns of the schedule that had it first.
        first: (requests) ns of its first token that was made here.
        last: (requests) ns of its last token.
        preempted: (requests) How often it lost its blocks.
        hit: (requests) Tokens that it found in the cache, also those of its own before a preemption.
        again: (requests) Tokens that it lost with its blocks.
        loaded: (requests) Of those that it found, tokens that came from the host's memory or disk.
        interfered: (requests) ns by which prompts of others lengthened the steps of its tokens.
        stalled: (requests) ns between tokens with a preemption between them.
        steps: (steps, L_COLUMNS) See `armillary.serving.columns`.
        most_blocks: Most blocks in use, of all ranks.
        engine: The engine.
    """

    requests: Requests
    begun: Ints
    first: Ints
    last: Ints
    preempted: Ints
    hit: Ints
    again: Ints
    loaded: Ints
    interfered: Ints
    stalled: Ints
    steps: Ints
    most_blocks: int
    engine: Engine

    @property
    def capacity(self) -> int:
        """Blocks of all ranks."""
        return self.engine.ranks * self.engine.blocks

    def later(self, ns: int) -> Served:
        """Return the same, `ns` later."""
        if not ns:
            return self
        arrival = np.where(self.requests.arrival < 0, -1, self.requests.arrival + ns)
        steps = self.steps.copy()
        steps[:, [c.L_START, c.L_END]] += ns
        return replace(
            self, requests=replace(self.requests, arrival=arrival), begun=self.begun + ns, first=self.first + ns,
            last=self.last + ns, steps=steps,
        )  # fmt: skip


def serve_replica(requests: Requests, engine: Engine, table: StepTable, mode: Mode | None = None) -> Served:
    """Return what became of each request.

    Args:
        requests: The load.
        engine: How it schedules.
        table: Times of steps, up to the engine's tokens and sequences.
        mode: Of the kernels; None: what is sooner done.

    Raises:
        InputError: a request can never be served: its tokens do not fit into the KV cache.
        ShortageError: blocks or steps need more memory than there is.
    """
    # Where nothing is shared, only a preempted request could find blocks: its own.
    if engine.cached and not requests.alike:
        plain = serve_replica(requests, replace(engine, cached=False), table, mode)
        if not plain.preempted.any():
            return replace(plain, engine=engine)
    found = Replica(requests, engine, table, mode)
    found.advance()
    return found.served(requests)


class Replica:
    """A replica and its requests: all of a load, or, of a fleet whose router looks at it, those that were sent so far.

    Attributes:
        engine: How it schedules.
        sent: How many requests it has got, also those that are done.
    """

    def __init__(
        self,
        requests: Requests,
        engine: Engine,
        table: StepTable,
        mode: Mode | None = None,
        *,
        router: bool = False,
    ) -> None:
        """Lay out its tables.

        Args:
            requests: The load, or that of the whole fleet.
            engine: How it schedules.
            table: Times of steps, up to the engine's tokens and sequences.
            mode: Of the kernels; None: what is sooner done.
            router: Whether `send` says which of the requests come to it.

        Raises:
            InputError: a request can never be served: its tokens do not fit into the KV cache.
            ShortageError: its blocks need more memory than there is.
        """
        n, ranks, depth = len(requests), engine.ranks, 2 if engine.ahead else 1
        self.engine, self.sent = engine, 0 if router else n
        self._running: list[int] = []
        blocks = -(-(requests.prompt + requests.output + len(engine.accepted)) // engine.block)
        check_fits(requests, engine)
        if engine.cached:
            require(
                ranks * (40 * int(blocks.sum()) + 56 * engine.blocks + 64 * min(sum(engine.slots), int(blocks.sum()))),
                f"{n:,} requests have {int(blocks.sum()):,} blocks, which",
                "fewer or shorter requests, or no prefix cache",
            )  # fmt: skip
        req = np.zeros((c.R_COLUMNS, n), np.int64)
        layout = Layout(engine.cached, engine.block, ranks, engine.slots)
        tables = tables_of(requests, layout, blocks, req)
        self._par = np.zeros(c.P_COLUMNS, np.int64)
        self._st = np.zeros((ranks, c.S_COLUMNS), np.int64)
        for place, value in (
            (c.P_REQUESTS, n), (c.P_BUDGET, engine.budget), (c.P_SEQUENCES, engine.sequences),
            (c.P_BLOCK, engine.block), (c.P_BLOCKS, engine.blocks), (c.P_DEPTH, depth),
            (c.P_CACHED, int(engine.cached)), (c.P_CLIENTS, requests.clients), (c.P_LONG, engine.long),
            (c.P_INGEST, engine.ingest_ns),
            (c.P_EMIT, engine.emit_ns), (c.P_RULE, c.RULES.index(engine.rule)), (c.P_TOKEN, engine.token_ps),
            (c.P_POLL, engine.poll), (c.P_RANKS, ranks),
            (c.P_BALANCE, engine.balance if engine.rule == "trtllm" and ranks > 1 else 0),
            *((c.P_LOAD + tier, each) for tier, each in enumerate(engine.load_ps)),
            (c.P_BROUGHT, int(engine.brought)), (c.P_DRAFTS, len(engine.accepted)),
        ):  # fmt: skip
            self._par[place] = value
        self._par[c.P_ACCEPTED : c.P_ACCEPTED + len(engine.accepted)] = engine.accepted
        self._st[:, c.S_RATIO] = c.FIRST_RATIO
        self._par[c.P_SLOTS : c.P_SLOTS + c.TIERS] = slots = slots_of(engine.slots, tables[2].shape[1])
        self._st[:, c.S_FIRST_SLOT : c.S_FIRST_SLOT + c.TIERS] = 0, slots[0]
        self._st[:, c.S_LAST_SLOT : c.S_LAST_SLOT + c.TIERS] = slots[0] - 1, sum(slots) - 1
        req[c.R_ARRIVAL], req[c.R_PROMPT], req[c.R_OUTPUT] = (
            requests.arrival,
            requests.prompt,
            requests.output,
        )
        req[[c.R_BEGUN, c.R_FIRST, c.R_LAST]] = -1
        req[[c.R_MADE, c.R_DONE]] = int(engine.brought)
        follows = None if router else requests.follows
        if follows:
            req[c.R_OPEN], req[c.R_DELAY] = follows.counts, follows.delay
            self._par[c.P_FOLLOWS] = 1
            self._st[0, c.S_AHEAD] = int((requests.arrival >= 0).sum())
        self._known = req[[c.R_PROMPT, c.R_OUTPUT, c.R_TABLE]] if router else None
        if router:
            req[c.R_ARRIVAL] = -1
        self._req = req
        work = int(requests.prompt.sum() // max(1, engine.budget) + requests.output.sum())
        self._kernel = load(
            "armillary.serving.loop_kernel", mode or ("interpreted" if work <= INTERPRETED else "compiled")
        )
        # Of what a router will send, nobody knows how much is this one's.
        self._pace = Pace("serving", 0 if router else int(requests.output.sum()), "tokens", CHANGE)
        self._log = np.zeros(FIRST_LOG * c.L_COLUMNS, np.int64)
        self._arrays = (
            self._par, self._st, _pool(engine, self._st), req.ravel(), tables,
            (
                np.zeros((ranks, engine.sequences), np.int64), np.zeros((ranks, max(1, n)), np.int64),
                *_ahead(requests.arrival, follows),
            ),
            np.zeros((ranks, 7), np.int64),
            (
                np.zeros(depth, np.int64), np.zeros((ranks, depth), np.int64),
                np.zeros((ranks, depth * engine.sequences), np.int64), np.zeros(depth, np.int64),
            ),
            table.arrays(),
        )  # fmt: skip

    @property
    def has(self) -> int:
        """Requests that it has and that are not done."""
        return self.sent - int(self._st[0, c.S_DONE])

    @property
    def next(self) -> int:
        """Half ns at which it goes on if nothing comes."""
        return int(self._st[0, c.S_NEXT])

    def send(self, r: int, ns: int, given: int = 0) -> None:
        """Let request r of the load come at `ns`, where it has been advanced to.

        Args:
            r: Its number.
            ns: When.
            given: Tokens of its answer that another replica made; they are computed again with the prompt.
        """
        assert self._known is not None
        prompt, output, place = self._known[:, r]
        self._req[[c.R_PROMPT, c.R_OUTPUT, c.R_TABLE], self.sent] = prompt + given, output - given, place
        self._req[c.R_ARRIVAL, self.sent] = ns
        self._st[0, c.S_NEXT] = 0
        self._running.append(self.sent)
        self.sent += 1

    def ended(self) -> list[tuple[int, int]]:
        """Return places, in the order of `send`, and last ns of the requests that ended since it was last asked."""
        if len(self._running) == self.has:
            return []
        last = self._req[c.R_LAST]
        found = [(at, int(last[at])) for at in self._running if last[at] >= 0]
        self._running = [at for at in self._running if last[at] < 0]
        return found

    def prompt(self, r: int) -> int:
        """Return the tokens of the prompt of request r of the load."""
        assert self._known is not None
        return int(self._known[0, r])

    def found(self, r: int) -> int:
        """Return how many tokens of the prompt of request r of the load are in the cache of a rank that has most."""
        assert self._known is not None
        if not self.engine.cached:
            return 0
        contents, where = self._arrays[4][1:3]
        first, most = int(self._known[2, r]), (self.prompt(r) - 1) // self.engine.block
        has = where[:, contents[first : first + most]] >= 0
        return self.engine.block * int(
            np.where(has.all(axis=1), most, has.argmin(axis=1) if most else 0).max()
        )

    def advance(self, until: int = -1) -> None:
        """Go on up to some half ns: results of a ns are known then, and what is scheduled then half a ns later.

        Args:
            until: Half ns; -1: until all requests are done.

        Raises:
            ShortageError: steps need more memory than there is.
            InputError: they take too long.
        """
        self._par[c.P_UNTIL] = until
        # The log grows; everything else has its size from the beginning.
        while True:
            steps, room = int(self._st[0, c.S_STEPS]), len(self._log) // c.L_COLUMNS
            if steps == room:
                require(3 * self._log.nbytes, f"{steps:,} steps and more, whose log", CHANGE)
                self._log = np.concatenate((self._log, np.zeros_like(self._log)))
                room *= 2
            # No more at once than a look at the clock allows.
            until_step = steps + self._pace.slice(room - steps)
            state = self._kernel.run(*self._arrays, self._log[: until_step * c.L_COLUMNS])
            if state != self._kernel.FULL:
                break
            self._pace.at(int(self._req[c.R_DONE].sum()))
        assert state != self._kernel.STUCK, "requests wait, and none can go on"

    @property
    def left(self) -> list[int]:
        """Places, in the order of `send`, of the requests that are not done."""
        return [at for at in self._running if self._req[c.R_LAST, at] < 0]

    @property
    def given(self) -> tuple[Ints, Ints]:
        """(requests) Tokens that each has been given, and ns of the step that gave it the last."""
        return self._req[c.R_DONE, : self.sent].copy(), self._req[c.R_BEFORE, : self.sent].copy()

    def served(self, requests: Requests) -> Served:
        """Return what became of its requests; those that are not done have no last token, and lost what was computed.

        Args:
            requests: They.
        """
        req = self._req[:, : self.sent].copy()
        req[c.R_AGAIN] += np.where(req[c.R_LAST] < 0, req[c.R_COMPUTED], 0)
        columns = (
            c.R_BEGUN, c.R_FIRST, c.R_LAST, c.R_LOST, c.R_HIT, c.R_AGAIN, c.R_LOADED, c.R_INTERFERED, c.R_STALLED,
        )  # fmt: skip
        steps = self._log[: self._st[0, c.S_STEPS] * c.L_COLUMNS].reshape(-1, c.L_COLUMNS)
        begun, first, last, lost, hit, again, loaded, interfered, stalled = (req[each] for each in columns)
        return Served(
            replace(requests, arrival=req[c.R_ARRIVAL]), begun, first, last, lost, hit, again, loaded, interfered,
            stalled,             steps, int(self._st[0, c.S_MOST_BLOCKS]), self.engine,
        )  # fmt: skip


def check_fits(requests: Requests, engine: Engine) -> None:
    """Check that the KV cache can hold each request.

    Raises:
        InputError: it cannot; names the longest.
    """
    tokens = requests.prompt + requests.output + len(engine.accepted)
    if not len(tokens):
        return
    worst = int(tokens.argmax())
    if -(-int(tokens[worst]) // engine.block) > engine.blocks:
        raise InputError(
            f"request {worst}: {int(tokens[worst]):,} tokens of prompt{', drafts' if engine.accepted else ''} and "
            f"output, expected at most "
            f"{engine.blocks * engine.block:,}, which the KV cache holds"
        )


def _pool(engine: Engine, st: Ints) -> tuple[Ints, ...]:
    """Return (ranks, blocks), all of them free, in their order."""
    many, ranks = engine.blocks if engine.cached else 0, engine.ranks
    before = np.tile(np.arange(-1, many - 1, dtype=np.int64), (ranks, 1))
    behind = np.tile(np.arange(1, many + 1, dtype=np.int64), (ranks, 1))
    behind[:, -1:] = -1
    st[:, [c.S_FREE, c.S_FIRST_FREE, c.S_LAST_FREE]] = engine.blocks, 0 if many else -1, many - 1
    holders, content, following, last = (np.full((ranks, many), each, np.int64) for each in (0, -1, -1, -1))
    return before, behind, holders, content, following, last


def _ahead(arrival: Ints, follows: Follows | None) -> tuple[Ints, Ints, Ints]:
    """Return a heap of the requests whose time is known, with room for all, and which follow each."""
    if not follows:
        none = np.zeros(1, np.int64)
        return none, none, none
    known = np.flatnonzero(arrival >= 0)
    # What ascends is a heap.
    heap = np.zeros(len(arrival), np.int64)
    heap[: len(known)] = known[np.argsort(arrival[known], kind="stable")]
    return heap, *follows.later
