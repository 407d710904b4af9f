"""Collectives that were observed: by the mechanism of NCCL where the device is known, else by lines of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log

import numpy as np

from armillary.base.errors import InputError
from armillary.collective.fitted.model import INSIDE, SMALL, CollectiveFit
from armillary.collective.fitted.read import sheets, unseen
from armillary.collective.fitted.regimes import Regime, share
from armillary.collective.fitted.sheet import DataSheet
from armillary.collective.fitted.write import text_of
from armillary.compute.model import Floats
from armillary.evidence.calibrate import nccl
from armillary.evidence.calibrate.nccl_mechanism import constants_of
from armillary.evidence.calibrate.priors import folds
from armillary.evidence.calibrate.samples import Sample, merged

LATENCY, BANDWIDTH = 1e5, 1.0
"""ns, and bytes per ns, of a library that nothing is known of: messages between processes through a kernel."""
WIDE = 2.0
"""Standard deviation of their logarithms: from what shared memory does to what a slow network does."""
NOISE = 0.1
"""Standard deviation of the logarithm of a time by such a library."""


@dataclass(frozen=True)
class Network:
    """Observed collectives.

    Attributes:
        fit: The fit.
        text: Its file.
        cases: Different things that were measured.
        rows: Their times.
        moved: Constants that these decided.
        mean: Mean absolute error of sizes that were held out; nan: too few.
        least: Smallest size, bytes.
        most: Largest.
    """

    fit: CollectiveFit
    text: str
    cases: int
    rows: int
    moved: int
    mean: float
    least: int
    most: int


def fit_network(
    samples: Sequence[Sample], like: CollectiveFit | None, title: str, files: Sequence[str]
) -> Network:
    """Return the fit of collectives to observed times.

    Args:
        samples: Of one machine.
        like: The fit of the device; None: it is none whose library is known.
        title: For people.
        files: What samples are from.

    Raises:
        InputError: a library that is not known was used over several nodes.
    """
    samples = [replace(sample, device="") for sample in samples]
    cases = merged(samples)
    ends = (min(case.size for case in cases), max(case.size for case in cases))
    # A fit with lines of its own is of a library that is not NCCL.
    if like is not None and like.mechanism is not None and not like.inside:
        name = next((name for name, sheet in sheets().items() if sheet == like.sheet), None)
        held = nccl.held_out_sizes(cases, lambda sample: like.sheet, known=like.mechanism)
        spread = nccl.pooled_spread(held, samples, like)
        fit = nccl.fit_cluster(title, like.sheet, samples, files, like.mechanism, spread)
        moved = _moved(fit, like)
        return Network(fit, text_of(fit, title, name), len(cases), len(samples), moved, _mean(held), *ends)
    if any(sample.nodes > 1 for sample in samples):
        raise InputError(
            "collectives over several nodes of a device that is not known: expected --machine, a preset that is like it"
        )
    held = _held_out(cases)
    fit, moved = _lines(cases)
    fit = replace(fit, name=title, sources=tuple(files), spread=nccl.pooled_spread(held, samples, fit))
    return Network(fit, text_of(fit, title), len(cases), len(samples), moved, _mean(held), *ends)


def _moved(fit: CollectiveFit, like: CollectiveFit) -> int:
    assert fit.mechanism is not None and like.mechanism is not None
    before = constants_of(like.mechanism)
    return sum(abs(log(value / before[key])) > 1e-4 for key, value in constants_of(fit.mechanism).items())


def _mean(held: Sequence[nccl.Prediction]) -> float:
    return float(np.mean([abs(each.error) for each in held])) if held else float("nan")


def _held_out(cases: Sequence[Sample]) -> list[nccl.Prediction]:
    """Return each case predicted by lines that have not seen its size."""
    found = []
    sizes = sorted({case.size for case in cases})
    for fold in folds(len(sizes)) if len(sizes) > 1 else ():
        out = {sizes[at] for at in fold.tolist()}
        fit, _ = _lines([case for case in cases if case.size not in out])
        found += nccl.predictions(fit, [case for case in cases if case.size in out])
    return found


def _lines(cases: Sequence[Sample]) -> tuple[CollectiveFit, int]:
    """Return a fit of a latency and a bandwidth for each operation and number of members, and how many are decided."""
    curves: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for case in cases:
        curves[case.operation, case.per_node].append(case)
    inside: dict[str, dict[int, tuple[Regime, ...]]] = defaultdict(dict)
    moved = 0
    for (operation, members), curve in sorted(curves.items()):
        sent = np.array([case.size * share(operation, members) for case in curve])
        latency, bandwidth, decided = _line(sent, np.array([case.ns for case in curve]))
        inside[operation][members] = (Regime(inf, latency, bandwidth),)
        moved += decided
    places = frozenset((operation, INSIDE) for operation, _ in curves)
    return CollectiveFit("", _sheet(cases), dict(inside), measured=places, unseen=unseen()), moved


def _line(sent: Floats, ns: Floats) -> tuple[float, float, int]:
    """Return latency in ns, bandwidth in bytes per ns, and how many of these the times decide: half of the sizes."""
    from scipy.optimize import least_squares

    free = min(2, len(ns) // 2)
    # One constant of two or three sizes: the one that their times consist of.
    first = 0 if free == 1 and float(np.median(sent)) < SMALL else 1
    start = np.log([LATENCY, BANDWIDTH])
    moving = [first] if free == 1 else [0, 1][:free]

    def at(x: Floats) -> Floats:
        point = start.copy()
        point[moving] = x
        return point

    def off(x: Floats) -> Floats:
        point = at(x)
        rows = np.log(exp(point[0]) + sent / exp(point[1])) - np.log(ns)
        result: Floats = np.concatenate([rows, NOISE * (x - start[moving]) / WIDE])
        return result

    if moving:
        start_at = start[moving]
        start = at(np.asarray(least_squares(off, start_at, loss="soft_l1", f_scale=NOISE).x))
    return exp(start[0]), exp(start[1]), free


def _sheet(cases: Sequence[Sample]) -> DataSheet:
    """Return a data sheet of what is not known: it serves nothing but the layout of the file."""
    fastest = max(case.size * share(case.operation, case.members) / case.ns for case in cases)
    members = max(case.members for case in cases)
    return DataSheet.model_validate(
        {
            "link": f"{max(fastest, 1e-3):.4g} GB/s", "memory": f"{max(2 * fastest, 1e-3):.4g} GB/s",
            "processors": 1, "clock": "1 GHz", "reduces": False, "nic": f"{max(fastest, 1e-3):.4g} GB/s",
            "gpus": members, "sibling": "none", "source": "the fastest time that was observed",
        }
    )  # fmt: skip
