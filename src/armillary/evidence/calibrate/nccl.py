"""Fit collectives to measured times, and predict what a fit has not seen: sizes, numbers of nodes, operations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from armillary.collective.fitted.mechanism import Mechanism
from armillary.collective.fitted.model import BETWEEN, INSIDE, OPERATIONS, SMALL, CollectiveFit, Spread
from armillary.collective.fitted.sheet import DataSheet
from armillary.evidence.calibrate.nccl_mechanism import PRIOR_KNOWN, Fitted, fit_mechanism, thinned, usual
from armillary.evidence.calibrate.priors import deviation_of, pooled
from armillary.evidence.calibrate.samples import Sample, merged

COLD = 1.5
"""A time this many times that of a larger size is a cold start."""
_FOLDS = 5
ELSEWHERE = 0.23
"""Standard deviation that what was not observed on a cluster adds to that of another one of its GPU: all-reduces of 2
to 8 A100 in a node of three clusters (NVIDIA's, Azure's, vTrain's) are 0.15, 0.21 and 0.39 apart."""
UNKNOWN = 0.25
"""Standard deviation before anything was measured: what fits of one generation of devices are off by on the next."""
_LEAST = 6
"""Held-out rows from which an operation has a spread of its own."""

Progress = Callable[[int, int], None]
SheetOf = Callable[[Sample], DataSheet]


@dataclass(frozen=True)
class Prediction:
    """A measured time and what is predicted for it.

    Attributes:
        sample: What was measured.
        ns: Predicted.
    """

    sample: Sample
    ns: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.ns / self.sample.ns - 1

    @property
    def off(self) -> float:
        """ln(measured / predicted)."""
        return math.log(self.sample.ns / self.ns)


def fit_cluster(
    name: str,
    sheet: DataSheet,
    samples: Sequence[Sample],
    sources: Sequence[str],
    known: Mechanism | None = None,
    spread: Spread | None = None,
) -> CollectiveFit:
    """Return the fit to all samples of one machine, whatever its files call the device, with its spread.

    Args:
        name: Of the fit.
        sheet: Data sheet of the device.
        samples: All of one machine.
        sources: Files that they are from.
        known: Of such a machine: what the samples do not tell stays as it is there.
        spread: Of the fit; absent: that of sizes that are held out.
    """
    samples = merged(Sample("", s.operation, s.per_node, s.nodes, s.size, s.ns) for s in samples)
    fitted = _fitted(samples, sheet, known)
    if spread is None:
        spread = spread_of(held_out_sizes(samples, lambda sample: sheet, known=known))
    mechanism = fitted.mechanism
    if all(sample.nodes == 1 for sample in samples):
        # Nothing is known of a network.
        mechanism = replace(mechanism, network={})
    places = {(s.operation, BETWEEN if s.nodes > 1 else INSIDE) for s in samples}
    return CollectiveFit(
        name,
        sheet,
        {},
        sources=tuple(sources),
        mechanism=mechanism,
        spread=spread,
        measured=frozenset(places),
    )


def _fitted(samples: Sequence[Sample], sheet: DataSheet, known: Mechanism | None) -> Fitted:
    """Return the better one of a fit whose switch reduces and one whose does not, where the switch can."""
    rows = thinned(warm(samples))
    if known is not None:
        return fit_mechanism(rows, sheet, known, PRIOR_KNOWN, inside=True)
    plain = fit_mechanism(rows, sheet, usual(sheet, False))
    if not sheet.reduces or not any(s.operation == "all-reduce" and s.nodes == 1 for s in rows):
        return plain
    reducing = fit_mechanism(rows, sheet, usual(sheet, True))
    return reducing if reducing.cost < plain.cost else plain


def fit_of(samples: Sequence[Sample], sheet: DataSheet, known: Mechanism | None = None) -> CollectiveFit:
    """Return a fit without its spread, which takes fits of its own."""
    return CollectiveFit("", sheet, {}, mechanism=_fitted(samples, sheet, known).mechanism)


def predictions(fit: CollectiveFit, samples: Iterable[Sample]) -> list[Prediction]:
    """Return the predictions of a fit; samples that it does not cover are left out."""
    times = ((s, fit.time(s.operation, s.per_node, s.nodes, s.size)) for s in samples)
    # None: operations or sizes that the fit has no regime for.
    return [Prediction(sample, time.total_ns) for sample, time in times if time is not None]


def held_out_sizes(
    samples: Iterable[Sample],
    sheet_of: SheetOf,
    progress: Progress = lambda done, of: None,
    known: Mechanism | None = None,
) -> list[Prediction]:
    """Return each sample predicted by a fit that has not seen its size of this operation and these members.

    The smallest and the largest size of a curve stay in all fits: they are no interpolation.
    """
    devices = _by_device(merged(samples))
    found: list[Prediction] = []
    for done, rows in enumerate(devices):
        fold_of = _folds(rows)
        for fold in range(_FOLDS):
            out = [row for row in rows if fold_of.get(row) == fold]
            if out:
                rest = [row for row in rows if fold_of.get(row) != fold]
                found += predictions(fit_of(rest, sheet_of(rows[0]), known), out)
            progress(done * _FOLDS + fold + 1, len(devices) * _FOLDS)
    return found


def held_out(
    samples: Iterable[Sample], sheet_of: SheetOf, group: Callable[[Sample], object]
) -> list[Prediction]:
    """Return each sample predicted by a fit that has seen no sample of its group, e.g. of its number of nodes."""
    found: list[Prediction] = []
    for rows in _by_device(merged(samples)):
        groups = sorted({group(row) for row in rows}, key=str)
        for each in groups if len(groups) > 1 else ():
            rest = [row for row in rows if group(row) != each]
            found += predictions(fit_of(rest, sheet_of(rows[0])), [row for row in rows if group(row) == each])
    return found


def held_out_nodes(samples: Iterable[Sample], sheet_of: SheetOf) -> list[Prediction]:
    """Return each sample of several nodes predicted by a fit that has seen only other numbers of nodes."""
    samples = list(samples)
    # One number of several nodes: without it nothing is known of the network.
    if len({sample.nodes for sample in samples if sample.nodes > 1}) < 2:
        return []
    return [each for each in held_out(samples, sheet_of, lambda s: s.nodes) if each.sample.nodes > 1]


def spread_of(found: Iterable[Prediction]) -> Spread:
    """Return the standard deviations of ln(measured / predicted) by place and operation, of held-out predictions."""
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in found:
        place = BETWEEN if each.sample.nodes > 1 else INSIDE
        name = "small" if each.sample.size < SMALL else each.sample.operation
        rows[place, name].append(each.off)
        if name != "small":
            rows[place, "any"].append(each.off)
    known: dict[str, dict[str, float]] = defaultdict(dict)
    for (place, name), offs in sorted(rows.items()):
        if len(offs) >= _LEAST:
            known[place][name] = deviation_of(offs)
    return dict(known)


def pooled_spread(found: Iterable[Prediction], samples: Iterable[Sample], prior: CollectiveFit) -> Spread:
    """Return standard deviations as `spread_of`, of any number of rows, with what was known of another fit.

    Args:
        found: Predictions of merged samples that had not seen them.
        samples: All that was measured, repeated times one by one.
        prior: The fit of such a device; a place, an operation or small sizes without rows are as uncertain as there,
            and more by `ELSEWHERE`.
    """
    predicted = {each.sample.key[1:]: each.ns for each in found}
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    points: dict[tuple[str, str], set[object]] = defaultdict(set)
    for sample in samples:
        if (ns := predicted.get(sample.key[1:])) is not None:
            place = BETWEEN if sample.nodes > 1 else INSIDE
            names = ("small",) if sample.size < SMALL else (sample.operation, "any")
            for name in names:
                rows[place, name].append(math.log(sample.ns / ns))
                points[place, name].add(sample.key[1:])
    known: dict[str, dict[str, float]] = {INSIDE: {}, BETWEEN: {}}
    for place, name in product(known, (*OPERATIONS, "any", "small")):
        before = prior.spread.get(place) or next(iter(prior.spread.values()), {})
        usual = before.get(name, before.get("any", prior.unseen.get("fit", UNKNOWN)))
        if offs := rows.get((place, name)):
            # What two devices of a kind differ by, as the fit of the one is the start of the other.
            wide = math.hypot(usual, prior.unseen.get("alike", 0.0))
            known[place][name] = pooled(offs, len(points[place, name]), wide)
        else:
            known[place][name] = math.hypot(usual, ELSEWHERE)
    return known


def warm(samples: Sequence[Sample]) -> list[Sample]:
    """Leave out the times of a cold start: more than `COLD` times what some larger size takes."""
    curves: dict[tuple[str, str, int, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        curves[sample.device, sample.operation, sample.per_node, sample.nodes].append(sample)
    kept = []
    for curve in curves.values():
        least = math.inf
        # From the largest size down: a smaller one must not take much longer than what is larger.
        for sample in sorted(curve, key=lambda sample: -sample.size):
            if sample.ns <= COLD * least:
                kept.append(sample)
            least = min(least, sample.ns)
    return sorted(kept, key=lambda sample: sample.key)


def _by_device(samples: Sequence[Sample]) -> list[list[Sample]]:
    devices: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        devices[sample.device].append(sample)
    return list(devices.values())


def _folds(samples: Sequence[Sample]) -> Mapping[Sample, int]:
    """Return the fold in which each sample is left out; the ends of curves in none."""
    curves: dict[tuple[str, int, int], list[Sample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: sample.size):
        curves[sample.operation, sample.per_node, sample.nodes].append(sample)
    # [1:-1]: the ends would be extrapolation. Curves begin at different folds, so that no size leaves all at a time.
    return {
        sample: (at + number) % _FOLDS
        for number, curve in enumerate(curves.values())
        for at, sample in enumerate(curve[1:-1])
    }
