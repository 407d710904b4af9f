"""What COMET claims, as far as it is known, judged by our sweeps."""

from __future__ import annotations

from armillary.study.reproduce.comet_assumptions import Assumptions
from armillary.study.reproduce.comet_clusters import BASE
from armillary.study.reproduce.comet_sweep import CAPACITIES, RATES, Best, Found
from armillary.study.reproduce.comet_workload import name
from armillary.study.reproduce.judge import joined, percent, verdict
from armillary.study.reproduce.outcome import Claim
from armillary.study.reproduce.sources import COMET, COMET_RECALLED
from armillary.units import format_bandwidth, format_time

CLUSTER_SPREAD, MEMORY_GAIN = 7.7, 1.4
"""The only two numbers that are public."""
CLOSE = 0.1
"""Within this part of a stated ratio a claim holds."""
NOTHING = 0.02
"""A step that gets less than this part shorter has gained nothing."""
RECALLED_FREE, RECALLED_FITS = 8, 64
"""MP of the best plans with and without memory expansion, recalled, unverified."""


def claims(found: Found, chosen: Assumptions) -> tuple[Claim, ...]:
    """Judge the trends, then the two ratios."""
    return (
        _low_mp(found),
        _free_plan(found),
        _fitting_plan(found),
        _threshold(found),
        _memory_gain(found, chosen),
        _spread(found, chosen),
    )


def gigabytes(size: float) -> str:
    """Return a size as data sheets do: ``"80 GB"``."""
    return f"{size / 1e9:,.0f} GB"


def threshold(found: Found) -> float | None:
    """Return the least bandwidth of the expansion within `NOTHING` of the fastest step; None: there is no step."""
    times = {rate: best.time for rate in RATES if (best := found.best(CAPACITIES[-1], rate))}
    if not times:
        return None
    return next(rate for rate, time in times.items() if time <= (1 + NOTHING) * min(times.values()))


def _low_mp(found: Found) -> Claim:
    best, fits = found.unbounded(), found.fitting()
    text = f"{name(best.mp)} is fastest, {format_time(best.time.total)}, and needs {gigabytes(best.needed)}"
    text += (
        f"; of what fits {name(fits.mp)}, {format_time(fits.time.total)} ({percent(fits.time.total / best.time.total)})"
        if fits
        else "; no plan fits"
    )
    low = fits is not None and best.mp < fits.mp
    return Claim(
        "Low MP is fastest but does not fit into a node's memory; what fits has a higher MP and is slower",
        COMET_RECALLED,
        text,
        verdict(low and not best.fits, not best.fits),
    )


def _free_plan(found: Found) -> Claim:
    best = found.unbounded()
    ratio = next(plan.time.total for plan in found.plans if plan.mp == RECALLED_FREE) / best.time.total
    return Claim(
        f"With memory without end {name(RECALLED_FREE)} is fastest",
        COMET_RECALLED,
        f"{name(best.mp)} is; {name(RECALLED_FREE)} takes {percent(ratio)}",
        verdict(best.mp == RECALLED_FREE, ratio <= 1 + CLOSE),
    )


def _fitting_plan(found: Found) -> Claim:
    fits = found.fitting()
    also = joined([name(plan.mp) for plan in found.plans if plan.fits])
    return Claim(
        f"Of the plans that fit into a node's memory {name(RECALLED_FITS)} is fastest",
        COMET_RECALLED,
        f"{name(fits.mp)} is; {also} fit" if fits else "no plan fits",
        verdict(fits is not None and fits.mp == RECALLED_FITS),
    )


def _threshold(found: Found) -> Claim:
    rate, fits = threshold(found), found.fitting()
    pays = [
        each
        for each in RATES
        if fits and (best := found.best(CAPACITIES[-1], each)) and best.time < (1 - NOTHING) * fits.time.total
    ]
    if rate is None:
        text = "no plan can be held"
    else:
        text = f"from {format_bandwidth(rate)} on a step gets less than {100 * NOTHING:.0f} % shorter"
        if fits:
            text += (
                f"; below {format_bandwidth(pays[0])} an expansion gains nothing"
                if pays
                else "; no expansion gains anything"
            )
    return Claim(
        "There is a bandwidth of the expansion beyond which nothing is gained",
        COMET_RECALLED,
        text,
        verdict(rate is not None and bool(pays) and rate < RATES[-1]),
    )


def _memory_gain(found: Found, chosen: Assumptions) -> Claim:
    fits = found.fitting()
    bests = [found.best(capacity, rate) for capacity in CAPACITIES for rate in RATES]
    top = min((best for best in bests if best), key=lambda best: best.time, default=None)
    text, gain = f"{BASE} cannot hold any plan without it", 0.0
    if fits and top:
        gain = fits.time.total / top.time
        text = f"by up to {gain:.2f}x on the base cluster ({name(top.mp)} instead of {name(fits.mp)})"
    others = [best.gain for best in (*found.network.values(), *found.compute.values()) if best.gain]
    if others:
        text += (
            f"; with other FLOP/s and networks by {min(others):.2f}x to {max(others):.2f}x at "
            f"{format_bandwidth(chosen.expansion)}, most where compute is fast and pods are far"
        )
    return Claim(
        f"Memory expansion gains up to {MEMORY_GAIN}x",
        COMET,
        f"{text}; on which cluster the paper found it is not public",
        verdict(abs(gain / MEMORY_GAIN - 1) <= CLOSE, max(others, default=0.0) >= MEMORY_GAIN),
    )


def _spread(found: Found, chosen: Assumptions) -> Claim:
    presets = {
        f"{cluster}{how}": each.time
        for cluster, best in found.clusters.items()
        for how, each in zip(("", " with expansion"), best, strict=True)
        if each
    }
    swept = [each.time for best in _all(found) for each in best if each]
    text, between, reached = "no plan can be held", 0.0, 0.0
    if presets and swept:
        slow, fast = max(presets, key=presets.__getitem__), min(presets, key=presets.__getitem__)
        between, reached = presets[slow] / presets[fast], max(swept) / min(swept)
        text = (
            f"presets by up to {between:.2f}x ({slow} against {fast}); our sweep of FLOP/s, networks and memory by up "
            f"to {reached:.2f}x, which says how far we swept: half to four times each"
        )
    return Claim(
        f"Cluster configurations differ by up to {CLUSTER_SPREAD}x",
        COMET,
        f"{text}; which configurations the paper compares, and on which of its models, is not public",
        verdict(abs(between / CLUSTER_SPREAD - 1) <= CLOSE, reached >= (1 - CLOSE) * CLUSTER_SPREAD),
    )


def _all(found: Found) -> tuple[Best, ...]:
    return (*found.network.values(), *found.compute.values())
