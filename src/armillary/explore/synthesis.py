"""A synthesised collective against the built-in algorithms, on one platform, by the same network model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from armillary.base.errors import InputError
from armillary.collective.algorithms import natural
from armillary.collective.synthesis import SynthesizedSchedule, lower_bound, synthesize
from armillary.collective.synthesis.search import FINE_SENDS, FINEST
from armillary.engine import simulate
from armillary.engine.messages.plan import SimulatedSchedule, simulate_schedule
from armillary.engine.messages.stages import network_of
from armillary.platform.model import Platform
from armillary.workload.micro.collectives import collective_trace

ALL_ALGORITHMS = 256
"""NPUs up to which more is simulated than the natural algorithms, auto and what the platform says: every choice of
ring, direct and halving-doubling on up to two dimensions, and every algorithm on all of them."""
AUTO = 1024
"""NPUs up to which auto is simulated."""
MOST_BUILT_IN = 1 << 27
"""Messages of a built-in collective, about; large machines cut it into fewer chunks than their platform says."""
# On every combination of these per dimension, and
_NAMES = ("ring", "direct", "halvingDoubling")
# these on all dimensions alike: combinations would be too many.
_WHOLE = ("recursiveDoubling", "rabenseifner", "doubleBinaryTree")


@dataclass(frozen=True)
class BuiltIn:
    """A collective by an algorithm per dimension, as simulated, in ns."""

    name: str
    chunks: int
    time: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """A schedule as it was simulated (ns), the built-in algorithms from the fastest on, and what none can beat."""

    schedule: SynthesizedSchedule
    simulated: SimulatedSchedule
    built_in: tuple[BuiltIn, ...]
    bound: float

    @property
    def taken(self) -> str:
        """What is the fastest: "synthesized", or the name of a built-in algorithm."""
        best = min(self.built_in, key=lambda found: found.time, default=None)
        # A tie goes to the schedule.
        return best.name if best and best.time < self.simulated.time else "synthesized"

    @property
    def time(self) -> int:
        """Simulated time of what is taken, ns."""
        return min([self.simulated.time, *(found.time for found in self.built_in)])


def compare(
    platform: Platform,
    operation: str,
    size: int,
    *,
    chunks_per_npu: int | None = None,
    seed: int = 0,
    tries: int = 4,
    network_model: str = "congestion",
    against: bool = True,
) -> Comparison:
    """Synthesise a collective among all NPUs of a platform, and simulate it and the built-in algorithms.

    Args:
        platform: The machine; its network as it is at the start.
        operation: all-reduce, all-gather or reduce-scatter.
        size: Bytes of the vector, or of all that is gathered.
        chunks_per_npu: Chunks of each NPU's share; None: several numbers are tried, and the best by simulation kept.
        seed: Of the random choices.
        tries: Seeds tried.
        network_model: congestion or flow, for both.
        against: Whether to simulate the built-in algorithms.

    Raises:
        InputError: something does not fit.
    """
    network = network_of(platform)
    best: tuple[SynthesizedSchedule, SimulatedSchedule] | None = None
    for count in _counts(platform.npus, chunks_per_npu):
        found = synthesize(
            network,
            operation,
            size,
            # None lets the search choose by its own model; simulation then decides between counts.
            chunks_per_npu=count,
            seed=seed,
            tries=tries,
            memory_bandwidth=platform.npu.memory.bytes_per_s,
            endpoint_delay=platform.npu.message_delay,
        )
        run = simulate_schedule(found, platform, network_model)
        if best is None or run.time < best[1].time:
            best = found, run
    # `_counts` is never empty.
    assert best
    built_in = (
        sorted(built_ins(platform, operation, size, network_model), key=lambda one: one.time)
        if against
        else []
    )
    edges = best[0].edges
    return Comparison(*best, tuple(built_in), lower_bound(edges, operation, size))


def _counts(n: int, given: int | None) -> tuple[int | None, ...]:
    """Return the chunks per NPU to simulate: what the search likes best, and fine chunks, which hide reductions."""
    if given is not None:
        return (given,)
    # Chunks so fine only while the search has a bearable number of messages.
    finest = [count for count in (16, FINEST) if n * (n - 1) * count <= FINE_SENDS]
    return (None, *finest)


def built_ins(platform: Platform, operation: str, size: int, network_model: str) -> Iterator[BuiltIn]:
    """Yield what the built-in algorithms take, see `ALL_ALGORITHMS` and `MOST_BUILT_IN`."""
    n, dimensions = platform.npus, platform.dimensions
    seen = set()
    chunks = max(1, platform.collectives.chunks)
    # About the messages of one chunk: rounds of a ring in each dimension, twice, by all NPUs.
    rounds = 2 * n * sum(2 * dimension.size for dimension in dimensions)
    chunks = max(1, min(chunks, MOST_BUILT_IN // rounds))
    # What the platform says first: of equal ones it is the one that is kept.
    given = platform.collectives.algorithms.get(operation)
    choices: list[tuple[str, ...]] = [given] if given else []
    choices += [("natural",) * len(dimensions)]
    if n <= AUTO:
        choices += [("auto",) * len(dimensions)]
    if n <= ALL_ALGORITHMS:
        # 3 ** dimensions simulations; above two dimensions only the same one in all.
        choices += product(_NAMES, repeat=len(dimensions)) if len(dimensions) < 3 else []
        choices += [(name,) * len(dimensions) for name in (*_NAMES, *_WHOLE)]
    for names in choices:
        named = tuple(
            natural(d.topology, operation, d.size) if name == "natural" else name
            # A single one… name has fewer names than there are dimensions.
            for name, d in zip(names, dimensions, strict=False)
        )
        # "natural" may spell out what was tried already.
        if named in seen:
            continue
        seen.add(named)
        collectives = replace(platform.collectives, algorithms={operation: named}, chunks=chunks)
        try:
            timeline = simulate(
                collective_trace(operation, n, n, size),
                replace(platform, collectives=collectives),
                network_model=network_model,
            )
        except InputError:
            continue  # this algorithm has no such operation
        yield BuiltIn(", ".join(named), chunks, timeline.total_ticks)
