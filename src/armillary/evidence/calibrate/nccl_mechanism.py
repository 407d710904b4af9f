"""Fit the constants of collectives to measured times: a few for a device, shared by all operations and members.

All constants are positive, so their logarithms are fitted, to the logarithms of times, by the method of Levenberg and
Marquardt (Moré 1978). A time far off counts less (soft L1). What no measurement tells stays at its prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.collective.fitted.derive import mesh_sharing
from armillary.collective.fitted.mechanism import (
    CROWDED,
    GATHER,
    LL128_DATA,
    MESSAGE,
    MESSAGE_LL,
    SEND,
    Line,
    Mechanism,
    Outer,
    work,
)
from armillary.collective.fitted.model import SMALL
from armillary.collective.fitted.sheet import DataSheet
from armillary.collective.fitted.tuning import LL, LL128, NVLS, PCIE, SIMPLE, has_ll128
from armillary.evidence.calibrate.nccl_rows import Key, Row, Rows
from armillary.evidence.calibrate.priors import told
from armillary.evidence.calibrate.samples import Sample

NOISE = 0.03
"""Standard deviation of the logarithm of a measured time: repeated runs of nccl-tests in the same table."""
NOISE_SMALL = 0.1
"""Of one below `SMALL`."""
PRIOR = 1.0
"""Standard deviation of the logarithm of a constant before anything was measured."""
PRIOR_KNOWN = 0.4
"""The same where such a device was measured: constants of two clusters of A100 differ by so much (NCCL 2.27, older)."""
_FAR = 3.0
"""Deviations, in units of `NOISE`, beyond which a time counts less."""
_ROUNDS, _SETTLED = 40, 1e-5
_STEP = 1e-4
_LL128_HOP = 4000.0
"""ns of a hop of LL128 between nodes (NCCL 2.27 to 2.29, src/graph/tuning.cc, hwLatencies)."""
_TELLS = 2**20
"""Bytes below which a time between nodes tells what hops take: fitted to H100 from 32 MiB on, one of LL128 was 1.4 us,
and rings of 16,384 members took a quarter of their time without that protocol."""

Floats = NDArray[np.float64]


class Fitted(NamedTuple):
    """A fitted mechanism.

    Attributes:
        mechanism: Its constants.
        told: How many of these the samples tell: that move the prediction of some sample.
        cost: Squared errors over their variance, of far ones less.
    """

    mechanism: Mechanism
    told: int
    cost: float


def usual(sheet: DataSheet, nvls: bool) -> Mechanism:
    """Return what a device is like before anything was measured: typical of all that were, by its links."""
    # Of PCIe less is reached than of NVLink: packets are small.
    link, nic = sheet.link * (1.0 if sheet.link >= PCIE else 0.8), sheet.nic
    lines = {
        LL: Line(7000.0, 1200.0, 0.27 * link),
        SIMPLE: Line(10000.0, 9000.0, 0.8 * link),
        MESSAGE_LL: Line(9000.0, 0.0, 7.0),
        MESSAGE: Line(14000.0, 4000.0, 0.7 * link),
    }
    network = {
        LL: Outer(1200.0, 8000.0, 0.25 * nic),
        LL128: Outer(3000.0, _LL128_HOP, 0.9 * nic * LL128_DATA),
        SIMPLE: Outer(6000.0, 15000.0, 0.9 * nic),
        MESSAGE: Outer(10000.0, 20000.0, 0.9 * nic),
        SEND: Outer(0.0, 15000.0, 0.5 * nic),
        CROWDED: Outer(0.0, 15000.0, 0.3 * nic),
    }
    if has_ll128(sheet):
        lines[LL128] = Line(15000.0, 1500.0, 0.6 * link)
    if nvls:
        lines[NVLS] = Line(30000.0, 0.0, 0.65 * link)
    own = {"all-gather": 0.5, "all-reduce": 0.5, "all-to-all": 0.5, "reduce-scatter": 0.5}
    return Mechanism(lines, network, own, 1e6, 2000.0, 200.0, 400.0, link / 22, usual_sharing(sheet))


def usual_sharing(sheet: DataSheet) -> dict[str, dict[int, float]]:
    """Return how much slower links are for each number of members; the bandwidth of a line is that where it is 1."""
    if sheet.mesh:
        return mesh_sharing(sheet)
    if sheet.link < PCIE:
        # A host's links are shared by all cards that it has.
        return {kind: {2: 1.0, 4: 2.0, 8: 4.0} for kind in (LL, SIMPLE, MESSAGE, GATHER)}
    return {}


def constants_of(mechanism: Mechanism) -> dict[Key, float]:
    """Return all constants by name."""
    found: dict[Key, float] = {}
    given: list[tuple[str, Line | Outer]] = [
        (f"lines {name}", line) for name, line in mechanism.lines.items()
    ]
    given += [(f"network {name}", outer) for name, outer in mechanism.network.items()]
    for part, each in given:
        found |= {(part, key): value for key, value in each._asdict().items() if value}
    # Its words of 128 bytes hold 120 of data: it follows from that of Simple.
    found.pop((f"network {LL128}", "bandwidth"), None)
    found |= {("own", name): value for name, value in mechanism.own.items()}
    # 1: what the bandwidth is for, no constant.
    found |= {
        (f"sharing {kind}", str(n)): x
        for kind, known in mechanism.sharing.items()
        for n, x in known.items()
        if x != 1
    }
    one = {
        "saturation": mechanism.saturation,
        "ramp": mechanism.ramp,
        "gather": mechanism.gather,
        "peer": mechanism.peer,
        "channel": mechanism.channel,
    }
    return found | {("all", name): value for name, value in one.items() if 0 < value < math.inf}


def with_constants(mechanism: Mechanism, values: Mapping[Key, float]) -> Mechanism:
    """Return the mechanism with these constants instead of its own."""

    def fields(part: str, line: Line | Outer) -> list[float]:
        return [values.get((part, key), value) for key, value in line._asdict().items()]

    outer = {name: Outer(*fields(f"network {name}", line)) for name, line in mechanism.network.items()}
    if LL128 in outer:
        outer[LL128] = outer[LL128]._replace(bandwidth=outer[SIMPLE].bandwidth * LL128_DATA)
    return Mechanism(
        {name: Line(*fields(f"lines {name}", line)) for name, line in mechanism.lines.items()},
        outer,
        {name: values.get(("own", name), value) for name, value in mechanism.own.items()},
        values.get(("all", "saturation"), mechanism.saturation),
        values.get(("all", "ramp"), mechanism.ramp),
        values.get(("all", "gather"), mechanism.gather),
        values.get(("all", "peer"), mechanism.peer),
        values.get(("all", "channel"), mechanism.channel),
        {
            kind: {n: values.get((f"sharing {kind}", str(n)), value) for n, value in known.items()}
            for kind, known in mechanism.sharing.items()
        },
    )


def fit_mechanism(
    samples: Iterable[Sample],
    sheet: DataSheet,
    start: Mechanism,
    prior_spread: float = PRIOR,
    *,
    inside: bool = False,
) -> Fitted:
    """Return the mechanism that fits the samples of one machine best.

    At most half as many constants move as there are samples: those that they tell most.

    Args:
        samples: Within a node and between several.
        sheet: Data sheet of the device: no link and no NIC carries more than it says.
        start: The prior.
        prior_spread: Standard deviation of the logarithm of its constants.
        inside: A constant that would end at its largest value stays at its prior instead.
    """
    samples = list(samples)
    held: frozenset[Key] = frozenset()
    if all(sample.nodes == 1 or sample.size >= _TELLS for sample in samples):
        held = frozenset({(f"network {LL128}", "hop")})
    found = _solved(samples, sheet, start, prior_spread, held)
    # A bandwidth at that of the data sheet stands for something else that is too slow.
    while inside and (more := frozenset(_at_most(found.mechanism, sheet, start)) - held):
        held |= more
        found = _solved(samples, sheet, start, prior_spread, held)
    return found


def _at_most(mechanism: Mechanism, sheet: DataSheet, start: Mechanism) -> list[Key]:
    """Return the constants that moved to their largest values."""
    prior = constants_of(start)
    return [
        key
        for key, value in constants_of(mechanism).items()
        if value >= _most(key, sheet) * (1 - _STEP) and value > prior[key]
    ]


def _solved(
    samples: Sequence[Sample], sheet: DataSheet, start: Mechanism, prior_spread: float, held: frozenset[Key]
) -> Fitted:
    nvls = NVLS in start.lines
    rows = [
        Row(
            s.operation, s.members, s.nodes, work(s.operation, s.per_node, s.nodes, s.size, sheet, nvls), s.ns
        )
        for s in samples
    ]
    prior = constants_of(start)
    keys = list(prior)
    most = np.array([math.log(_most(key, sheet)) for key in keys])
    first = np.minimum(np.log(list(prior.values())), most)
    measured = np.log([row.ns for row in rows])
    # Below `SMALL` mostly launches are measured, which counts less.
    noise = np.array([NOISE if s.size >= SMALL else NOISE_SMALL for s in samples])

    def mechanism_of(point: Floats) -> Mechanism:
        return with_constants(start, dict(zip(keys, np.exp(point).tolist(), strict=True)))

    table = Rows(rows, start, keys)

    def residuals(*points: Floats) -> Floats:
        times = table.times(np.stack([np.exp(point) for point in points]))
        off: Floats = np.stack([(np.log(predicted) - measured) / noise for predicted in times])
        return off

    point, damping = first.copy(), 1e-2
    (off,) = residuals(point)
    cost = _cost(off) + _prior(point, first, prior_spread)
    slopes = np.zeros((len(rows), len(keys)))
    free = [number for number, key in enumerate(keys) if key not in held]
    for turn in range(_ROUNDS):
        if free:
            moved = np.tile(point, (len(free), 1))
            moved[np.arange(len(free)), free] += _STEP
            slopes[:, free] = ((residuals(*moved) - off) / _STEP).T
        if turn == 0 and len(free) > len(rows) // 2:
            free = told(slopes, len(rows)).tolist()
            # The prior alone pulls at the others, which stay where it is.
            slopes[:, [number for number in range(len(keys)) if number not in free]] = 0
        # Iteratively reweighted: far residuals count less.
        weights = 1 / np.sqrt(1 + (off / _FAR) ** 2)
        normal = slopes.T @ (weights[:, None] * slopes) + np.eye(len(keys)) / prior_spread**2
        gradient = slopes.T @ (weights * off) + (point - first) / prior_spread**2
        saved = 0.0
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            tried = np.minimum(point + np.clip(step, -1, 1), most)
            (off_there,) = residuals(tried)
            cost_there = _cost(off_there) + _prior(tried, first, prior_spread)
            if cost_there < cost:
                saved = cost - cost_there
                point, off, cost, damping = tried, off_there, cost_there, damping / 5
                break
            damping *= 4
        if saved < _SETTLED * cost:
            break
    moving = int((np.abs(slopes).max(axis=0) > 1).sum()) if rows else 0
    return Fitted(mechanism_of(point), moving, cost)


def _most(key: Key, sheet: DataSheet) -> float:
    """Return the largest value of a constant: bandwidths end at those of the data sheet."""
    part, name = key
    if name == "bandwidth":
        return sheet.nic if part.startswith("network") else sheet.link
    if part == "own":
        # An all-reduce passes its own part twice.
        return 2.0 if name == "all-reduce" else 1.0
    return sheet.link if name == "channel" else math.inf


def _cost(off: Floats) -> float:
    return float((2 * _FAR**2 * (np.sqrt(1 + (off / _FAR) ** 2) - 1)).sum())


def _prior(point: Floats, first: Floats, spread: float) -> float:
    return float(((point - first) ** 2).sum()) / spread**2


def thinned(samples: Sequence[Sample], most: int = 64) -> list[Sample]:
    """Return at most so many samples of each operation and members, evenly in the logarithm of sizes."""
    curves: dict[tuple[str, int, int], list[Sample]] = {}
    for sample in sorted(samples, key=lambda sample: sample.size):
        curves.setdefault((sample.operation, sample.per_node, sample.nodes), []).append(sample)
    found = []
    for curve in curves.values():
        if len(curve) > most:
            sizes = np.log([sample.size for sample in curve])
            wanted = np.linspace(sizes[0], sizes[-1], most)
            curve = [curve[at] for at in sorted(set(np.searchsorted(sizes, wanted).tolist()))]
        found += curve
    return found
