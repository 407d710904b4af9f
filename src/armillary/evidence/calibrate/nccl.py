"""Fit collectives to measured times: of a node, and of several."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from armillary.collective.fitted.between import Spanning
from armillary.collective.fitted.model import CollectiveFit, DataSheet
from armillary.collective.fitted.read import plain_name, sheets
from armillary.collective.fitted.regimes import Curve, at_size, share
from armillary.evidence.calibrate.nccl_between import fit_spanning
from armillary.evidence.calibrate.regime_fit import curve_of, fit_curves, steady
from armillary.evidence.calibrate.samples import Sample, merged

# NCCL runs both as rings of the same length, whose protocols switch at the same sizes.
_FAMILY = {"all-gather": "ring", "reduce-scatter": "ring"}
"""Operations that take the same algorithm and switch at the same sizes."""

_ONE_BY_ONE = 64
"""Sizes of a curve that are left out one by one, not a third of them at a time."""

Progress = Callable[[int, int], None]
Curves = dict[str, dict[int, Curve]]


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


def generation(device: str) -> object:
    """Return the key of devices that switch protocols at the same sizes: the same links and switches."""
    sheet = sheets().get(plain_name(device))
    # An unknown device is a generation of its own.
    return device if sheet is None else (sheet.link, sheet.reduces)


def fit_inside(samples: Iterable[Sample]) -> dict[str, Curves]:
    """Return device -> operation -> members -> regimes of the samples of one node."""
    found: dict[str, Curves] = defaultdict(dict)
    smallest: dict[tuple[str, str, int], float] = {}
    for group in _groups(samples):
        # The smallest size measured: below it a curve is only extrapolated.
        smallest |= {key: min(points) for key, points in group.items()}
        for (device, operation, members), curve in _fit_group(group).items():
            found[device].setdefault(operation, {})[members] = curve
    for device, curves in found.items():
        # An all-to-all of two is a message each way, measured to smaller sizes.
        pair = curves.get("all-to-all", {}).get(2)
        if pair and "send" in curves:
            least = {members: smallest[device, "send", members] for members in curves["send"]}
            curves["send"] = _with_pairs(curves["send"], least, pair)
    return {
        device: {name: dict(sorted(curves[name].items())) for name in sorted(curves)}
        for device, curves in found.items()
    }


def _with_pairs(sends: Mapping[int, Curve], least: Mapping[int, float], pair: Curve) -> dict[int, Curve]:
    """Take messages between two members, and those smaller than measured, from the all-to-all of two.

    In that each sends half of the size to the other.
    """
    # Sizes of an all-to-all are of the whole; half of it goes to the other.
    alone = tuple(replace(part, up_to=part.up_to / 2) for part in pair)
    curves = {2: alone}
    for members, curve in sends.items():
        start = least[members]
        # Regimes of the pair up to the first size that was measured, cut there.
        small = [replace(part, up_to=min(part.up_to, start - 1)) for part in alone]
        # Regimes that the cut made empty are dropped; the first one stays in any case.
        kept = [part for n, part in enumerate(small) if n == 0 or small[n - 1].up_to < start - 1]
        curves[members] = (*kept, *(part for part in curve if part.up_to >= start)) if start > 1 else curve
    return curves


def fit_between(samples: Iterable[Sample]) -> dict[str, Spanning]:
    """Return operation -> regimes over several nodes, of the samples of more than one node of one machine."""
    return {operation: fit_spanning(operation, _warm(group)) for operation, group in _spans(samples).items()}


def fit_cluster(
    name: str, sheet: DataSheet, samples: Sequence[Sample], sources: Sequence[str]
) -> CollectiveFit:
    """Return the fit to all samples of one machine, whatever its files call the device."""
    # Files call one device by several names; the machine is known here.
    alike = [Sample("", s.operation, s.per_node, s.nodes, s.size, s.ns) for s in samples]
    inside = fit_inside(alike).get("", {})
    return CollectiveFit(name, sheet, inside, fit_between(alike), tuple(sources))


def predictions(fit: CollectiveFit, samples: Iterable[Sample]) -> list[Prediction]:
    """Return the predictions of a fit; samples that it does not cover are left out."""
    times = ((s, fit.time(s.operation, s.per_node, s.nodes, s.size)) for s in samples)
    # None: operations or sizes that the fit has no regime for.
    return [Prediction(sample, time.total_ns) for sample, time in times if time is not None]


def held_out_sizes(samples: Iterable[Sample], progress: Progress = lambda done, of: None) -> list[Prediction]:
    """Return each sample predicted by a fit that has not seen its size of this operation and these members.

    The smallest and the largest size of a curve stay in all fits: they are no interpolation.
    """
    samples = merged(samples)
    # Curves that are fitted together are held out together: a size is left out of its own curve only.
    groups, spans = _groups(samples), _spans(samples)
    of = sum(len(curve) for group in groups for curve in group.values()) + sum(map(len, spans.values()))
    done, found = 0, []
    for group in groups:
        for key, curve in group.items():
            device, operation, members = key
            # [1:-1]: the ends would be extrapolation.
            for sizes in _folds(sorted(curve)[1:-1]):
                rest = {**group, key: {size: ns for size, ns in curve.items() if size not in sizes}}
                fitted = _fit_group(rest)[key]
                for size in sizes:
                    latency, per_byte = at_size(fitted, size)
                    # Regimes are over bytes sent: `share` converts from the size that nccl-tests count.
                    ns = latency + per_byte * size * share(operation, members)
                    found.append(
                        Prediction(Sample(device, operation, members, 1, int(size), curve[size]), ns)
                    )
            done += len(curve)
            progress(done, of)
    for operation, measured in spans.items():
        # Octaves, as sizes over several nodes are rounded to multiples of the members.
        for octave in sorted({_octave(sample) for sample in measured})[1:-1]:
            out = [s for s in measured if s.operation == operation and _octave(s) == octave]
            spanning = fit_spanning(operation, _warm([sample for sample in measured if sample not in out]))
            found += [_spanned(spanning, sample) for sample in out]
        done += len(measured)
        progress(done, of)
    return found


def _folds(sizes: Sequence[float]) -> list[tuple[float, ...]]:
    """Return the sizes to leave out in each fold: one size, or every third of many."""
    count = len(sizes) if len(sizes) <= _ONE_BY_ONE else 3
    return [tuple(sizes[start::count]) for start in range(count)]


def held_out_nodes(samples: Iterable[Sample]) -> list[Prediction]:
    """Return each sample of several nodes predicted by a fit that has seen only other numbers of nodes."""
    found = []
    for operation, measured in _spans(samples).items():
        for nodes in sorted({sample.nodes for sample in measured}):
            # All rows of this number of nodes are left out, of each operation that shares regimes.
            rest = [sample for sample in measured if sample.nodes != nodes]
            # Else no sample of the operation is left to fit its NICs to.
            if any(sample.operation == operation for sample in rest):
                spanning = fit_spanning(operation, _warm(rest))
                found += [
                    _spanned(spanning, s) for s in measured if s.operation == operation and s.nodes == nodes
                ]
    return found


_Group = Mapping[tuple[str, str, int], dict[float, float]]
"""(device, operation, members) -> size -> ns."""


def _groups(samples: Iterable[Sample]) -> list[_Group]:
    """Return the curves of one node, grouped by those that are fitted together."""
    groups: dict[object, dict[tuple[str, str, int], dict[float, float]]] = defaultdict(dict)
    for s in merged(samples):
        if s.nodes == 1:
            # Fitted together: devices of one generation, the same members, operations of one family.
            family = (generation(s.device), s.members, _FAMILY.get(s.operation, s.operation))
            groups[family].setdefault((s.device, s.operation, s.members), {})[s.size] = s.ns
    return list(groups.values())


def _fit_group(group: _Group) -> dict[tuple[str, str, int], Curve]:
    fitted = fit_curves([steady(points) for points in group.values()])
    return {key: curve_of(regimes, share(key[1], key[2])) for key, regimes in zip(group, fitted, strict=True)}


def _spans(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Return for each operation the samples over several nodes of all operations that take the same steps."""
    families: dict[str, list[Sample]] = defaultdict(list)
    for sample in merged(samples):
        if sample.nodes > 1:
            families[_FAMILY.get(sample.operation, sample.operation)].append(sample)
    return {
        operation: family
        for family in families.values()
        for operation in sorted({sample.operation for sample in family})
    }


def _warm(samples: Sequence[Sample]) -> list[Sample]:
    """Leave out the times of a cold start."""
    # A first call loads and connects; its time is no time of the collective.
    curves: dict[tuple[str, int, int], dict[float, float]] = defaultdict(dict)
    for sample in samples:
        curves[sample.operation, sample.per_node, sample.nodes][sample.size] = sample.ns
    kept = {where: steady(points) for where, points in curves.items()}
    return [s for s in samples if s.size in kept[s.operation, s.per_node, s.nodes]]


def _spanned(spanning: Spanning, sample: Sample) -> Prediction:
    return Prediction(
        sample, sum(spanning.time(sample.operation, sample.per_node, sample.nodes, sample.size))
    )


def _octave(sample: Sample) -> int:
    """Return the power of two nearest to its size: sizes are rounded to multiples of the members."""
    return round(math.log2(sample.size))
