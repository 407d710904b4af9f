"""Checks that a collective algorithm or a chunk scheduler fulfils its contract, for the package that provides it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import numpy as np

from armillary.base.errors import one_of
from armillary.collective import blocks as data
from armillary.collective.algorithms import ROOTED, find_algorithm
from armillary.collective.chunk_order import (
    SCHEDULABLE,
    WITHIN,
    Level,
    Order,
    chunk_routes,
)
from armillary.collective.chunk_order.alone import Problem
from armillary.collective.chunk_order.choose import Scheduler, wrong_plan
from armillary.collective.demand import OPERATIONS
from armillary.collective.load import line_order, load
from armillary.collective.rounds import CollectiveAlgorithm, Round, Rounds, plain_sizes
from armillary.engine import simulate
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import TOPOLOGIES, Dimension, Port
from armillary.trace import CollectiveType, GraphBuilder, Trace

# Odd numbers, primes and powers of two: algorithms differ by those.
MEMBERS = (*range(2, 14), 16, 17, 32)
"""Numbers of members to try."""
WITHIN_SHARE = 0.1
"""Relative difference allowed between phases and moved messages; built-in algorithms that do not pipeline keep it."""


def check_collective(name: str, members: Iterable[int] = MEMBERS) -> None:
    """Check an algorithm that is built in or installed.

    For every operation and number of members that it does not refuse: the blocks that it moves bring every member what
    the operation promises, messages are as long as their blocks, it says the same when asked again, and on every
    topology `collective.load` finds the latency and the bytes that moving message by message over links gives. Then
    profile physical must take as long with phases as with moved messages.

    Args:
        name: Its entry point, or a built-in name.
        members: Numbers of members to try.

    Raises:
        AssertionError: it does not; the message says in what.
        InputError: there is none of that name.
    """
    algorithm = find_algorithm(name)
    assert algorithm.operations, "operations: none, expected one or more"
    # Counts what was really checked: an algorithm that refuses everything must not pass.
    tried = Counter[str]()
    for operation in algorithm.operations:
        assert operation in OPERATIONS, f"operations: got '{operation}', expected {one_of(OPERATIONS)}"
        for n in members:
            if algorithm.refuses(operation, n):
                continue
            tried[operation] += 1
            rooted = algorithm.any_root or operation in ROOTED
            # The first, a middle and the last root; without roots one run says all.
            for root in {0, n // 2, n - 1} if rooted else {0}:
                _check_rounds(name, algorithm, operation, n, root)
        assert tried[operation], f"{operation}: refuses every number of members of {tuple(members)}"
    for operation in algorithm.operations:
        if operation != "barrier":
            _check_simulated(name, algorithm, operation)


def _check_rounds(name: str, algorithm: CollectiveAlgorithm, operation: str, n: int, root: int) -> None:
    what = f"{name} {operation} over {n} members, root {root}"
    # No usual number of chunks: the algorithm does not pipeline.
    chunks = algorithm.usual_chunks(n) or 1
    # Made twice, to compare: rounds must not depend on state, as they are cached.
    one, other = (
        Rounds(name, operation, n, root, algorithm.rounds(operation, n, root, chunks), chunks, algorithm.trees(n))
        for _ in range(2)
    )  # fmt: skip
    assert [(r.repeat, _columns(r)) for r in one.rounds] == [(r.repeat, _columns(r)) for r in other.rounds], (
        f"{what}: rounds differ when asked again"
    )
    if operation == "barrier":
        check_barrier(one, what)
    else:
        check_data(one, what)
    if one.trees:
        return  # links between members do not show what switches cost
    # Set here, as only the algorithm knows it: `links_load` then tries placements on lines.
    one = replace(one, around=algorithm.around)
    for topology in _fitting(algorithm, n):
        found, moved = load(one, topology, n), links_load(one, topology)
        # Exact: hops are integers and volumes fractions.
        assert (found.hops, found.volume) == moved, (
            f"{what} on a {topology}: load says {found.hops} hops and {found.volume} D, its messages {moved}"
        )


def check_data(rounds: Rounds, what: str) -> None:
    """Move random integers along rounds; every member must end with what the operation promises.

    Raises:
        AssertionError: a message is not as long as its blocks, or a member misses something.
    """
    # The same draw for each n, so that a failure can be repeated.
    n, operation, parts = rounds.n, rounds.operation, data.parts(rounds)
    draw = random.Random(n)
    # 40 random bits: two different sums are practically never equal, and none overflows.
    held = [{block: draw.getrandbits(40) for block in data.start(rounds, m)} for m in range(n)]
    # Switches follow the members, and begin with nothing.
    held += [{} for _ in range(rounds.switches)]
    # What each member contributed: `held` changes below.
    given = [dict(state) for state in held]
    carried = list(data.blocks(rounds))
    # `expanded` repeats rounds; blocks are listed for each repetition.
    assert len(carried) == rounds.count, f"{what}: {rounds.count} rounds, blocks of {len(carried)}"
    for number, (part, messages) in enumerate(zip(rounds.expanded(), carried, strict=True)):
        columns = _columns(part)
        assert len(messages) == len(columns), (
            f"{what}: round {number}: {len(columns)} messages, blocks of {len(messages)}"
        )
        # All messages of a round leave with what was there before it.
        before = [dict(state) for state in held]
        for (source, target, size, reduce), blocks in zip(columns, messages, strict=True):
            where = f"{what}: round {number}, {source} to {target}"
            assert source != target, f"{where}: a message to itself"
            assert min(source, target) >= 0 and max(source, target) < len(held), f"{where}: no such member"
            assert len(set(blocks)) == len(blocks), f"{where}: carries a block twice"
            # D is the size of the collective; it is cut into `parts` equal blocks.
            assert Fraction(len(blocks), parts) == size, (
                f"{where}: is {size} of D, its blocks {Fraction(len(blocks), parts)}"
            )
            missing = [block for block in blocks if block not in before[source]]
            assert not missing, f"{where}: sends block {missing[:1]}, which it does not have"
            for block in blocks:
                # A switch has nothing of its own to add to.
                own = held[target].get(block, 0) if reduce else 0
                held[target][block] = own + before[source][block]
    # Only these add up; all others copy.
    reducing = operation in ("all-reduce", "reduce-scatter", "reduce")
    for member in range(n):
        for block in data.end(rounds, member):
            if reducing:
                expected = sum(state[block] for state in given[:n])
            else:
                # Blocks are numbered by the member they come from (all-gather, all-to-all: `parts` each);
                # else all are the root's.
                origin = block // parts if operation in ("all-gather", "all-to-all") else rounds.root
                expected = given[block * n // parts if operation == "gather" else origin][block]
            assert held[member].get(block) == expected, (
                f"{what}: member {member} ends with a wrong block {block}"
            )


def check_barrier(rounds: Rounds, what: str) -> None:
    """Check that every member has heard of every other at the end, by messages that carry nothing.

    Raises:
        AssertionError: it has not.
    """
    # A set per member: information spreads along messages, whatever their size.
    heard = [{member} for member in range(rounds.n)]
    for part in rounds.expanded():
        before = [set(known) for known in heard]
        for source, target, size, _ in _columns(part):
            assert size == 0, f"{what}: {source} to {target} carries {size} of D, expected nothing"
            heard[target] |= before[source]
    deaf = [member for member, known in enumerate(heard) if len(known) < rounds.n]
    assert not deaf, f"{what}: member {deaf[:1]} does not hear of everyone"


def links_load(rounds: Rounds, topology: str) -> tuple[int, Fraction]:
    """Return (link hops, bytes per D) of rounds that fill a dimension, every message moved over its links.

    The slow, obvious reference of `collective.load`: messages one by one, links one by one.
    """
    n = rounds.n
    if rounds.around and not TOPOLOGIES[topology].turns:
        # Where positions differ, members may stand along the line or by rank: the fewest bytes count, then
        # the hops.
        orders = [line_order(range(n))] + [tuple(range(n))] * (topology != "Mesh")
        return min((_moved(rounds, topology, where) for where in orders), key=lambda found: found[::-1])
    return _moved(rounds, topology, tuple(range(n)))


def _moved(rounds: Rounds, topology: str, where: tuple[int, ...]) -> tuple[int, Fraction]:
    """Return the same with the members at these positions."""
    n = rounds.n
    hops, volume = 0, Fraction(0)
    # Each round is counted once and multiplied by its repetitions.
    for part in rounds.rounds:
        ports: Counter[tuple[str, int]] = Counter()
        links: Counter[tuple[int, int, int]] = Counter()
        far = 0
        for source, target, size, _ in _columns(part):
            for route, share in _routes(topology, n, where[source], where[target]):
                # The farthest message sets the latency of a round.
                far = max(far, len(route))
                for link in route:
                    links[link] += size * share  # type: ignore[assignment]
            ports["out", source] += size  # type: ignore[assignment]
            # A port carries what all its messages together are.
            ports["into", target] += size  # type: ignore[assignment]
        # The links of an NPU share B.
        slower = TOPOLOGIES[topology].links(n)
        fullest = max(ports.values(), default=0) if topology != "FullyConnected" else 0
        volume += part.repeat * max(Fraction(fullest), Fraction(slower * max(links.values(), default=0)))
        hops += part.repeat * far
    return hops, volume


def _routes(
    topology: str, n: int, source: int, target: int
) -> list[tuple[list[tuple[int, int, int]], Fraction]]:
    """Return (route, share) of a message: directed links (from, to, which of two), and the fraction that takes them."""
    whole = Fraction(1)
    if topology == "FullyConnected":
        return [([(source, target, 0)], whole)]
    if topology == "Switch":
        return [([(source, n, 0), (n, target, 0)], whole)]
    if topology == "Mesh":
        way = 1 if target > source else -1
        return [([(at, at + way, 0) for at in range(source, target, way)], whole)]
    if not TOPOLOGIES[topology].loop:
        route, at = [], np.array(source)
        while int(at) != target:
            route.append((int(at), int(to := TOPOLOGIES[topology].step(at, np.array(target), n)), 0))
            at = to
        return [(route, whole)]
    if n == 2:  # two links join the same pair, and a message is spread over both
        return [([(source, target, which)], whole / 2) for which in range(2)]
    ahead = (target - source) % n
    # Half-way round parity decides, as in `upwards`.
    up = 2 * ahead < n or (2 * ahead == n and source % 2 == 0)
    way, length = (1, ahead) if up else (-1, n - ahead)
    return [([((source + way * k) % n, (source + way * (k + 1)) % n, 0) for k in range(length)], whole)]


def _fitting(algorithm: CollectiveAlgorithm, size: int) -> list[str]:
    """Return the topologies on which an algorithm runs, and that a dimension of this size may have."""
    return [name for name in algorithm.topologies or TOPOLOGIES if not TOPOLOGIES[name].refuses(size)]


def _columns(part: Round) -> list[tuple[int, int, Fraction, bool]]:
    moves = part.moves
    sizes = map(Fraction, moves.numerator.tolist(), moves.denominator.tolist())
    return list(zip(moves.source.tolist(), moves.target.tolist(), sizes, moves.reduce.tolist(), strict=True))


def _check_simulated(name: str, algorithm: CollectiveAlgorithm, operation: str) -> None:
    """Compare phases with moved messages, one chunk on an idle dimension; switches need a machine of their own."""
    # Pipelined algorithms and those in switches take other times by phases, and are checked elsewhere.
    if algorithm.trees(4) or algorithm.usual_chunks(4):
        return
    if algorithm.refuses(operation, 4):
        return
    for topology in _fitting(algorithm, 4):
        links = TOPOLOGIES[topology].links(4)
        # 50 bytes per ns per NPU, however many links share it.
        dimension = Dimension("d", topology, 4, 50.0 / links, 500.0, Port(50.0, 50.0))
        platform = Platform((dimension,), collectives=Collectives({operation: (name,)}))
        builder = GraphBuilder()
        # 16 MB: large enough that bandwidth dominates, so that WITHIN_SHARE is about volumes and not about
        # hops.
        builder.collective(operation, CollectiveType[operation.upper().replace("-", "_")], 16_000_000)
        trace = Trace.replicate(builder.graph(), 4)
        phases, messages = (
            simulate(trace, platform, network_model=model).total_ticks for model in ("analytical", "flow")
        )
        assert abs(phases - messages) <= WITHIN_SHARE * messages, (
            f"{name} {operation} over 4 members on a {topology}: {phases} ns by phases, {messages} ns by messages"
        )


@dataclass(frozen=True)
class LevelRows:
    """Costs of phases from levels alone, in ns rounded up, for problems without a machine."""

    operation: str
    levels: tuple[Level, ...]

    def rows(self, size: int, order: Order) -> list[int]:
        """See `collective.chunk_order.alone.Rows`."""
        result = []
        for step in chunk_routes(self.operation, self.levels, order):
            moving = ceil(step.moving * size)
            result += [step.level, ceil(self.levels[step.level].latency), moving, moving]
        return result


def sample_problems() -> list[Problem]:
    """Return collectives of all schedulable kinds over two to four levels, in one to 65 chunks."""
    shapes = [
        # The two orders of a fast and a slow level, and four levels of falling bandwidth.
        [(2, 200.0), (8, 25.0)],
        [(8, 25.0), (2, 200.0)],
        [(2, 250.0), (8, 200.0), (8, 100.0), (4, 50.0)],
    ]
    found = []
    for operation in SCHEDULABLE:
        # All-gather grows by its members at each level; the other collectives begin with all.
        grows = operation == "all-gather"
        for shape in shapes:
            levels = tuple(
                Level(
                    n, (n if grows else 1) * (n - 1) / n / rate, 500.0, 2 * (n - 1) / n / rate, 500.0, 1000.0
                )
                for n, rate in shape
            )
            # Fewer bytes than chunks, sizes that do not divide, one chunk, and one chunk more than 64.
            for size, chunks in ((1, 64), (1000, 7), (10**9, 1), (10**9, 65)):
                costs = LevelRows(operation, levels)
                found += [
                    Problem(operation, levels, tuple(plain_sizes(size, chunks)), within, costs)
                    for within in WITHIN
                ]
    return found


def check_chunk_order(scheduler: Scheduler, problems: Sequence[Problem] | None = None) -> None:
    """Check a scheduler of chunks.

    Args:
        scheduler: The function that the entry point names.
        problems: What to plan; absent: `sample_problems`.

    Raises:
        AssertionError: a plan loses or adds bytes, leaves out a level or differs when asked again.
    """
    for problem in sample_problems() if problems is None else problems:
        names = f"{problem.operation} of {sum(problem.sizes)} bytes in {len(problem.sizes)} chunks"
        what = f"{names} over levels of {', '.join(str(level.n) for level in problem.levels)}"
        first = list(scheduler(problem))
        wrong = wrong_plan(first, problem)
        assert not wrong, f"{what}: {wrong}"
        # replace() makes an equal but new problem: a plan may depend on values only, not on identity.
        assert first == list(scheduler(replace(problem))), f"{what}: another plan when asked again"
        assert problem.time(first) > 0, f"{what}: takes no time"
