"""Sample a step: draw machines, and find how long it takes on each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.allowed import require
from armillary.base.counts import MOST_DRAWS, check_count
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.engine import check_trace, simulate
from armillary.engine.physical.lower import classes_of
from armillary.engine.physical.retiming.decisions import UnknownTimesError
from armillary.engine.physical.retiming.machines import Machines, Retiming
from armillary.explore.samples.draw import distinct, draw, has_levels, machine
from armillary.explore.samples.result import Cause, Samples
from armillary.explore.samples.words import says
from armillary.platform.limits import COUNT, SEED, Number
from armillary.platform.model import Platform

if TYPE_CHECKING:
    from armillary.base.document import Source
    from armillary.trace import Trace

Ints = NDArray[np.int64]
MOST_NODES = 200_000
"""Nodes of the classes of a sample up to which each is simulated, some 0.3 s; beyond, times are computed anew."""
DRAWN = 600
"""Bytes of an NPU of a drawn machine: its numbers, and its entries in the tables of a platform."""
CHECKS = 2
"""Samples on which retiming is compared with simulations."""
KINDS = ((1, 1), (2, 1), (1, 8), (2, 8))
"""How many ranks of a class differ on machines for that: by halves, and by their place in a group of 8."""
MOST_CHECKED = 400_000
"""Nodes of the classes of such a machine."""
AGAIN = 10
"""Samples that are drawn again without levels."""


def sample(
    trace: Trace,
    platform: Platform | Source,
    samples: int = 200,
    *,
    seed: int = 0,
    profile: str | None = None,
    network_model: str | None = None,
    fold: bool = True,
    workers: int = 1,
) -> Samples:
    """Find how long a step takes on machines that are drawn from the variation of one.

    Args:
        trace: One graph per NPU.
        platform: The machine with its `variation`, or what `armillary.load_platform` takes.
        samples: How many machines are drawn.
        seed: Of the draws; the same seed gives the same samples, for any number of `workers`.
        profile: As for `armillary.simulate`; variation needs "physical".
        network_model: As for `armillary.simulate`.
        fold: False: simulate every rank of every sample. Without, samples whose ranks form too many classes are not
            simulated: the times of one run are computed anew for each, see `Samples.method`.
        workers: Processes.

    Returns:
        The steps, their quantiles and the causes.

    Raises:
        InputError: the machine has no variation, or the trace cannot be simulated on it.
        StuckError: the simulation cannot finish.
    """
    if not isinstance(platform, Platform):
        from armillary.platform.files.native import platform_of

        platform = platform_of(platform)
    check_trace(trace)
    _check_number("samples", samples, COUNT)
    _check_number("seed", seed, SEED)
    _check_number("workers", workers, COUNT)
    check_count(samples, MOST_DRAWS, f"--samples {samples}: samples", "fewer")
    require(platform.npus * DRAWN, f"drawing machines of {platform.npus:,} NPUs", "fewer NPUs")
    work = _Work(trace, platform, seed, samples, profile or platform.profile, network_model, fold)
    work.check()
    plain = simulate(
        trace, replace(platform, variation=None), profile=profile, fold=fold, network_model=network_model
    )
    work.plain = plain.total_ticks
    parts = [np.arange(samples)[at::workers] for at in range(min(workers, samples))]
    if len(parts) == 1:
        found = [work.on(parts[0])]
    else:
        from armillary.base.pool import process_pool

        with process_pool(len(parts)) as pool:
            found = list(pool.map(work.on, parts))
    # A column for each variant: with all causes, then without each.
    ticks = np.empty((samples, len(found[0].ticks)), np.int64)
    for which, part in zip(parts, found, strict=True):
        ticks[which] = part.ticks.T
    causes = tuple(
        Cause(name, says(name, cause, platform), cause.source, ticks[:, 1 + at])
        for at, (name, cause) in enumerate(work.causes.items())
    )
    errors = [part.levels_error for part in found if part.levels_error is not None]
    return Samples(
        ticks[:, 0], plain.total_ticks, seed, "retimed" if work.retiming else "simulated", causes,
        distinct(work.first, 0), work.classes, platform.npus,
        max(errors) if errors else None, *work.checked(), timeline=plain,
    )  # fmt: skip


def _check_number(name: str, value: object, rule: Number) -> None:
    if problem := rule(value):
        raise InputError(f"{name}: {problem}")


@dataclass(frozen=True)
class _Found:
    """Ticks by variant and sample, and the largest relative difference that levels made."""

    ticks: Ints
    levels_error: float | None


@dataclass
class _Work:
    """What the samples have in common; it is sent to every process once."""

    trace: Trace
    platform: Platform
    seed: int
    samples: int
    profile: str
    network_model: str | None
    fold: bool
    plain: int = 0
    """Ticks without variation."""

    @property
    def causes(self) -> dict[str, Any]:
        """The causes of the machine, by name."""
        assert self.platform.variation is not None
        return self.platform.variation.causes()

    def check(self) -> None:
        """Refuse what cannot be sampled.

        Raises:
            InputError: names the key.
        """
        source = self.platform.source or "platform"
        if self.platform.variation is None:
            raise InputError(
                f"{source}: platform.variation: missing; samples are drawn from its clock, stragglers, link_flaps, "
                "slow_nics and background"
            )
        if self.profile != "physical":
            raise InputError(
                f"samples: got profile {show(self.profile)}, expected physical: only it knows variation"
            )
        model = self._model()
        for name in ("slow_nics", "background"):
            if name in self.causes and model != "analytical":
                raise InputError(
                    f"{source}: platform.variation.{name} has no effect in network model {model}; expected network "
                    "model analytical, or no such key"
                )

    def _model(self) -> str:
        usual = "flow" if self.platform.topology is not None else "analytical"
        return self.network_model or self.platform.network_model.name or usual

    @cached_property
    def first(self) -> Machines:
        """The machine of the first sample."""
        return draw(self.platform, self.seed, [0])

    @cached_property
    def _classes(self) -> Ints:
        if not self.fold or self._model() != "analytical":
            return np.arange(self.platform.npus)
        return classes_of(self.trace, machine(self.platform, self.first, 0))

    @property
    def classes(self) -> int:
        """Classes of ranks of the first sample."""
        return int(self._classes.max(initial=0)) + 1

    @cached_property
    def retiming(self) -> Retiming | None:
        """A run whose times are computed anew, if simulating each sample would take long and this can be done."""
        if not self.fold or self._model() != "analytical":
            return None
        if self._nodes(self._classes) <= MOST_NODES:
            return None
        try:
            return Retiming(self.trace, replace(self.platform, variation=None))
        except UnknownTimesError:
            return None

    def _nodes(self, classes: Ints) -> int:
        """Return the nodes of one rank of each class."""
        first = np.unique(classes, return_index=True)[1]
        sizes = np.array([graph.n_nodes for graph in self.trace.graphs], np.int64)
        return int(sizes[self.trace.rank_graph[first]].sum())

    def __getstate__(self) -> dict[str, object]:
        """Return the fields alone: a process reads the run again sooner than it is sent."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def on(self, numbers: Ints) -> _Found:
        """Return the ticks of some samples."""
        names = [*self.causes]
        variants: list[tuple[str, ...]] = [(), *((name,) for name in names)]
        ticks = np.empty((len(variants), len(numbers)), np.int64)
        for row, without in enumerate(variants):
            # Nothing is left to draw.
            alone = len(without) == len(names)
            ticks[row] = self.plain if alone else self._ticks(numbers, without, True)
        again = numbers[numbers < AGAIN]
        if not has_levels(self.platform) or not again.size:
            return _Found(ticks, None)
        exact = self._ticks(again, (), False)
        return _Found(ticks, float((np.abs(ticks[0, : len(again)] - exact) / np.maximum(exact, 1)).max()))

    def _ticks(self, numbers: Ints, without: tuple[str, ...], levels: bool) -> Ints:
        each = max(1, (1 << 19) // self.platform.npus) if self.retiming else 1
        parts = []
        for at in range(0, len(numbers), each):
            drawn = draw(
                self.platform, self.seed, numbers[at : at + each].tolist(), without=without, levels=levels
            )
            parts.append(self.retiming.ends(drawn) if self.retiming else [self._simulated(drawn, 0)])
        return np.concatenate(parts)

    def _simulated(self, drawn: Machines, row: int) -> int:
        on = machine(self.platform, drawn, row)
        return simulate(
            self.trace, on, profile=self.profile, fold=self.fold, network_model=self.network_model
        ).total_ticks

    def checked(self) -> tuple[float | None, int]:
        """Return the largest relative error of retiming on machines that can be simulated, and how many they are."""
        if self.retiming is None:
            return None, 0
        errors = []
        for row in range(min(CHECKS, self.samples)):
            drawn = draw(self.platform, self.seed, [row])
            for kinds in KINDS:
                each = alike(drawn, self.retiming.ranks, *kinds)
                on = machine(self.platform, each, 0)
                if self._nodes(classes_of(self.trace, on)) > MOST_CHECKED:
                    continue
                ticks, simulated = int(self.retiming.ends(each)[0]), self._simulated(each, 0)
                errors.append(abs(ticks - simulated) / max(simulated, 1))
        return max(errors), len(errors)


def alike(drawn: Machines, classes: list[Ints], blocks: int, turns: int) -> Machines:
    """Return machines of which few ranks differ, so that ranks fold.

    The ranks of a class that are alike without variation are cut into `blocks`, such as replicas, and in a block every
    `turns`-th rank is alike: it has what the first of them drew.
    """
    first = np.arange(drawn.speed.shape[1])
    for ranks in classes:
        place = np.arange(len(ranks))
        block = -(-len(ranks) // blocks)
        first[ranks] = ranks[place // block * block + place % block % turns]
    ports = None if drawn.ports is None else drawn.ports[:, first]
    return Machines(drawn.speed[:, first], None if drawn.delay is None else drawn.delay[:, first], ports)
