"""Compare made traces with true ones for conditions that the corpus lacks; the baseline is its nearest trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine import simulate
from armillary.lab.fidelity.machines import NAMES, machine
from armillary.lab.fidelity.two_sample import Test, classifier_accuracy, kolmogorov_smirnov, nearest_distances
from armillary.lab.learned.conditions import DERIVED, WORDS, Value, Wish, wish
from armillary.lab.learned.corpus import PART, Corpus
from armillary.lab.learned.features import Values, features_of, values_of
from armillary.lab.learned.graphs import Layouts, graph_of_tokens
from armillary.lab.learned.records import Record
from armillary.lab.learned.requests import Request, draw
from armillary.trace import Trace

Floats = NDArray[np.float64]
Make = Callable[[Mapping[str, Value]], Trace]
"""Makes a trace for a condition."""
WAYS = ("made", "nearest")
"""Traces that are compared with the true one: the made one, and the baseline, the nearest one of the corpus."""
TESTED = ("degree", "duration", "size", "path")
_NODES = 200
"""Most nodes of a trace that enter a test."""


@dataclass
class Compared:
    """A held-out condition.

    Attributes:
        condition: The condition.
        beyond: Its numbers outside the range of the corpus; empty: it lies between those of the corpus.
        times: Simulated step time, ns, by machine, then by way (a name of `WAYS`, or "true").
        nodes: Nodes of all ranks, by way.
        bytes: Bytes that all ranks move and communicate, by way.
        refused: Why there is no made trace; empty if there is one.
    """

    condition: dict[str, Value]
    beyond: list[str]
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    nodes: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    refused: str = ""


@dataclass
class Fidelity:
    """The results of a measurement.

    Attributes:
        compared: Every condition.
        tests: Two-sample tests, by quantity and way: of distributions over nodes, or over traces for paths.
        accuracy: Accuracy of a classifier that separates true from other traces, by way; 0.5 is guessing.
        distances: Median distance to the nearest trace of the corpus, of true and of made traces.
        copies: Share of traces whose features equal those of a trace of the corpus, of true and of made ones.
    """

    compared: list[Compared]
    tests: dict[str, dict[str, Test]] = field(default_factory=dict)
    accuracy: dict[str, float] = field(default_factory=dict)
    distances: dict[str, float] = field(default_factory=dict)
    copies: dict[str, float] = field(default_factory=dict)

    def errors(self, what: str, way: str, *, beyond: bool | None = None, machine: str = "") -> Floats:
        """Return the relative errors of all conditions: of ``time`` (all machines or one), ``nodes`` or ``bytes``."""
        found = []
        for each in self.compared:
            if each.refused or (beyond is not None and bool(each.beyond) != beyond):
                continue
            if what == "time":
                found += [
                    each.times[name][way] / each.times[name]["true"] - 1
                    for name in each.times
                    if machine in ("", name)
                ]
            else:
                amounts = getattr(each, what)
                found.append(amounts[way] / amounts["true"] - 1)
        return np.array(found)


def measure(
    corpus: Corpus,
    make: Make,
    held_out: Sequence[Request],
    *,
    machines: Sequence[str] = NAMES,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Fidelity:
    """Compare made traces with true ones.

    Args:
        corpus: The training data of the maker.
        make: The maker; refuses a condition by an `InputError`.
        held_out: Requests to draw conditions from; those that the corpus has are left out.
        machines: Names of `machines.NAMES`.
        told: Called with the number of conditions done and of all.

    Raises:
        InputError: the corpus has no generated traces, or a request cannot be drawn.
    """
    known = _Known(corpus)
    found = Fidelity([])
    seen: dict[str, list[tuple[Floats, Values]]] = {"true": [], **{way: [] for way in WAYS}}
    total = sum(request.count for request in held_out)
    # Fixed, as it only thins out the nodes that enter the tests.
    rng = np.random.default_rng(0)
    for wished, true in _drawn(held_out, known):
        condition = wished.condition
        each = Compared(condition, known.beyond(condition))
        found.compared.append(each)
        told(len(found.compared), total)
        near = known.nearest(condition)
        try:
            # Derived numbers follow from the others; a maker must not need them.
            made = make({key: value for key, value in condition.items() if key not in DERIVED})
        except InputError as error:
            each.refused = str(error)
            continue
        traces = {"true": true, "made": made, "nearest": near}
        for way, trace in traces.items():
            each.nodes[way], each.bytes[way] = float(trace.total_nodes), _bytes(trace)
            for name in machines:
                each.times.setdefault(name, {})[way] = step_time(trace, name)
            seen[way].append((features_of(trace), _sampled(values_of(trace), rng)))
    _judge(found, seen, known)
    return found


def step_time(trace: Trace, name: str) -> float:
    """Return the simulated step time on a machine of `machines.NAMES`, ns.

    Raises:
        ArmillaryError: it cannot be simulated.
    """
    platform = machine(name, trace.n_ranks)
    return float(simulate(trace, platform, profile="physical").total_ticks)


def _drawn(requests: Sequence[Request], known: _Known) -> Iterator[tuple[Wish, Trace]]:
    for request in requests:
        left, part = request.count, 0
        while left:
            for wished, trace in draw(request, part, min(PART, left)):
                if not known.has(wished.condition):
                    left -= 1
                    yield wished, trace
            part += 1
            # Each part may yield nothing new; without a limit a request that the corpus covers would run forever.
            if part > 10 * request.count:
                raise InputError(
                    "held-out: nearly all that can be drawn is in the corpus, expected other choices"
                )


class _Known:
    """The generated traces of a corpus, to find the nearest of them."""

    def __init__(self, corpus: Corpus) -> None:
        # A recorded trace (it has a rank_graph) has no grid from which all ranks follow.
        self.records = [record for record in corpus.records if not record.rank_graph]
        if not self.records:
            raise InputError(
                "the corpus has no generated traces, expected some (armillary generate learn corpus --generate)"
            )
        self.layouts = Layouts.of(corpus.vocabulary)
        first = self.records[0].condition
        self.words = [key for key in first if key in WORDS]
        self.numbers = [key for key in first if key not in WORDS]
        self.table = np.array([self._logarithms(record.condition) for record in self.records])
        self.keys = {tuple(record.condition.values()) for record in self.records}
        self._features: Floats | None = None

    def _logarithms(self, condition: Mapping[str, Value]) -> list[float]:
        return [float(np.log1p(int(condition[key]))) for key in self.numbers]

    def has(self, condition: Mapping[str, Value]) -> bool:
        """Return whether the corpus has this condition."""
        return tuple(condition.values()) in self.keys

    def beyond(self, condition: Mapping[str, Value]) -> list[str]:
        """Return the names of the numbers that are outside the range of the corpus."""
        own = np.array(self._logarithms(condition))
        # Logarithms of equal numbers are equal but for rounding.
        outside = (own < self.table.min(0) - 1e-9) | (own > self.table.max(0) + 1e-9)
        return [
            key
            for key, out in zip(self.numbers, outside, strict=True)
            # These two follow from the parallelism and the microbatches, which count themselves.
            if out and key not in ("ranks", "batch")
        ]

    def nearest(self, condition: Mapping[str, Value]) -> Trace:
        """Return the trace with the nearest condition: fewest different words, then least distance of logarithms."""
        other = np.array(
            [sum(record.condition[key] != condition[key] for key in self.words) for record in self.records]
        )
        distance = ((self.table - np.array(self._logarithms(condition))) ** 2).sum(1)
        return self.trace(self.records[int(np.lexsort((distance, other))[0])])  # last key first

    def trace(self, record: Record) -> Trace:
        """Return a record as a trace."""
        grid = wish({key: value for key, value in record.condition.items() if key not in DERIVED}).grid
        graphs = tuple(
            graph_of_tokens(packed.tokens(), self.layouts, f"stage {stage}")
            for stage, packed in enumerate(record.classes)
        )
        return Trace(graphs, grid.coordinate("pp").astype(np.int32), grid)

    def features(self, most: int = 400) -> Floats:
        """Return the features of the traces, (traces, features), of about every n-th so that at most `most` remain."""
        picked = self.records[:: max(1, -(-len(self.records) // most))]
        if self._features is None:
            self._features = np.stack([features_of(self.trace(record)) for record in picked])
        return self._features


def _bytes(trace: Trace) -> float:
    """Return the bytes that all ranks move and communicate."""
    each = [float(graph.ints("tensor_size").sum() + graph.ints("comm_size").sum()) for graph in trace.graphs]
    return float(np.bincount(trace.rank_graph, minlength=len(each)) @ np.array(each))


def _sampled(values: Values, rng: np.random.Generator) -> Values:
    """Return at most `_NODES` values of each quantity, so that large traces do not decide a test alone."""

    def some(array: NDArray[np.generic]) -> NDArray[np.generic]:
        return array if len(array) <= _NODES else rng.choice(array, _NODES, replace=False)

    return Values(*(some(array) for array in vars(values).values()))  # type: ignore[arg-type]


def _judge(found: Fidelity, seen: Mapping[str, list[tuple[Floats, Values]]], known: _Known) -> None:
    """Add the tests over all traces to `found`."""
    true = seen["true"]
    if len(true) < 10:  # too few to test
        return
    features = {way: np.stack([each for each, _ in listed]) for way, listed in seen.items()}
    for name in TESTED:
        of_way = {
            way: np.concatenate([getattr(values, name) for _, values in listed])
            for way, listed in seen.items()
        }
        found.tests[name] = {way: kolmogorov_smirnov(of_way["true"], of_way[way]) for way in WAYS}
    for way in WAYS:
        found.accuracy[way] = classifier_accuracy(features["true"], features[way])
    # All traces of the corpus: a sample of them would miss copies.
    corpus = known.features(10**9)
    for way in ("true", "made"):
        distances = nearest_distances(features[way], corpus)
        found.distances[way] = float(np.median(distances))
        found.copies[way] = float((distances < 1e-9).mean())
