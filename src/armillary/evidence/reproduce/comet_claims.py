"""What COMET claims, as far as it is known, judged by our sweeps."""

from __future__ import annotations

from math import inf, nan

from armillary.base.units import format_bandwidth, format_time
from armillary.evidence.reproduce.comet_assumptions import Assumptions
from armillary.evidence.reproduce.comet_clusters import BASE
from armillary.evidence.reproduce.comet_dlrm import FoundDlrm
from armillary.evidence.reproduce.comet_sweep import CAPACITIES, RATES, Found
from armillary.evidence.reproduce.comet_workload import name
from armillary.evidence.reproduce.judge import Case, above, at_most, below, joined, percent, stated
from armillary.evidence.reproduce.outcome import Claim
from armillary.evidence.reproduce.sources import COMET, COMET_RECALLED

CLUSTER_SPREAD, MEMORY_GAIN = 7.7, 1.4
"""The only two numbers that are public; on which of its two models the paper finds them is not."""
NOTHING = 0.02
"""A step that gets less than this part shorter has gained nothing."""
RECALLED_FREE, RECALLED_FITS = 8, 64
"""MP of the best plans with and without memory expansion, recalled, unverified."""
TRANSFORMER, DLRM = "Transformer-1T", "DLRM"


def claims(found: Found, dlrm: FoundDlrm, chosen: Assumptions) -> tuple[Claim, ...]:
    """Judge the trends, then the two ratios, each on both models."""
    return (
        _low_mp(found),
        _free_plan(found),
        _fitting_plan(found),
        _threshold(found),
        _memory_gain(found, dlrm, chosen),
        _spread(found, dlrm),
    )


def gigabytes(size: float) -> str:
    """Return a size as data sheets do: ``"80 GB"``."""
    return f"{size / 1e9:,.0f} GB"


def threshold(found: Found) -> float | None:
    """Return the least bandwidth of the expansion within `NOTHING` of the fastest step; None: there is no step."""
    times = {rate: best.time for rate in RATES if (best := found.best(CAPACITIES[-1], rate))}
    if not times:
        return None
    # The first, as RATES ascend.
    return next(rate for rate, time in times.items() if time <= (1 + NOTHING) * min(times.values()))


def _low_mp(found: Found) -> Claim:
    best, fits = found.unbounded(), found.fitting()
    text = f"{name(best.mp)} is fastest, {format_time(best.time.total)}, and needs {gigabytes(best.needed)}; of what "
    text += f"fits {name(fits.mp)}, {format_time(fits.time.total)}" if fits else "fits there is none"
    return Claim(
        "Low MP is fastest but does not fit into a node's memory; what fits has a higher MP and is slower",
        COMET_RECALLED,
        text,
        # Three facts that together make the claim.
        (
            Case("memory that the fastest needs", best.needed / found.local, above(1)),
            Case("MP of what fits", fits.mp / best.mp if fits else nan, above(1)),
            Case("its step", fits.time.total / best.time.total if fits else nan, above(1)),
        ),
    )


def _free_plan(found: Found) -> Claim:
    stated_plan = next(plan for plan in found.plans if plan.mp == RECALLED_FREE).time.total
    # Recalled, not public: the plan is compared with the best of all others.
    best = min((plan for plan in found.plans if plan.mp != RECALLED_FREE), key=lambda plan: plan.time.total)
    return Claim(
        f"With memory without end {name(RECALLED_FREE)} is fastest",
        COMET_RECALLED,
        f"beside it {name(best.mp)} is; their steps differ by {percent(stated_plan / best.time.total)}",
        (Case("step, to the best of the others", stated_plan / best.time.total, at_most(1)),),
    )


def _fitting_plan(found: Found) -> Claim:
    fit = {plan.mp: plan.time.total for plan in found.plans if plan.fits}
    # inf: without another plan that fits it is the fastest.
    others = min((time for mp, time in fit.items() if mp != RECALLED_FITS), default=inf)
    also = joined([name(mp) for mp in fit])
    return Claim(
        f"Of the plans that fit into a node's memory {name(RECALLED_FITS)} is fastest",
        COMET_RECALLED,
        f"{also} fit" if fit else "no plan fits",
        (Case("step, to the best of the others", fit.get(RECALLED_FITS, nan) / others, at_most(1)),),
    )


def _threshold(found: Found) -> Claim:
    rate, fits = threshold(found), found.fitting()
    # The two largest bandwidths: between them nothing may be gained.
    last, most = (found.best(CAPACITIES[-1], each) for each in RATES[-2:])
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
    ends = " to ".join(format_bandwidth(each) for each in RATES[-2:])
    return Claim(
        "There is a bandwidth of the expansion beyond which nothing is gained",
        COMET_RECALLED,
        text,
        (
            Case("gain in all", fits.time.total / most.time if fits and most else nan, above(1 + NOTHING)),
            Case(f"from {ends}", last.time / most.time if last and most else nan, below(1 + NOTHING)),
        ),
    )


def _memory_gain(found: Found, dlrm: FoundDlrm, chosen: Assumptions) -> Claim:
    fits = found.fitting()
    bests = [found.best(capacity, rate) for capacity in CAPACITIES for rate in RATES]
    # Over all capacities and bandwidths: "up to" is the best of them.
    top = min((best for best in bests if best), key=lambda best: best.time, default=None)
    text, gain = f"{BASE} holds no plan of {TRANSFORMER} without it", nan
    if fits and top:
        gain = fits.time.total / top.time
        text = f"{BASE}: {name(top.mp)} instead of {name(fits.mp)}"
    # Gains with other machines are shown, not judged.
    others = [best.gain for best in (*found.network.values(), *found.compute.values()) if best.gain]
    if others:
        text += f", with other FLOP/s and networks {min(others):.2f}x to {max(others):.2f}x"
    node_time, size = dlrm.gain()
    own = dlrm.fitting()
    if size and own:
        usual = dlrm.best(CAPACITIES[-1], chosen.expansion)
        text += f"; {DLRM} on {size.mp} nodes instead of {own.nodes} at {format_bandwidth(RATES[-1])}"
        text += (
            f", {own.node_time / usual.time:.2f}x at {format_bandwidth(chosen.expansion)}" if usual else ""
        )
    else:
        text += f"; no {DLRM} fits without it"
    return Claim(
        f"Memory expansion gains up to {MEMORY_GAIN}x",
        COMET,
        f"{text}; on which model and cluster the paper found it is not public",
        # 0 means that no node holds the DLRM alone: not a number.
        (Case(TRANSFORMER, gain, stated(MEMORY_GAIN)), Case(DLRM, node_time or nan, stated(MEMORY_GAIN))),
    )


def _spread(found: Found, dlrm: FoundDlrm) -> Claim:
    cases, texts = [], []
    for model, clusters in ((TRANSFORMER, found.clusters), (DLRM, dlrm.clusters)):
        presets = {
            # With and without expansion: "configurations" may mean either.
            f"{cluster}{how}": each.time
            for cluster, best in clusters.items()
            for how, each in zip(("", " with expansion"), best, strict=True)
            if each
        }
        # An empty default: no cluster holds the model.
        slow, fast = (pick(presets, key=presets.__getitem__, default="") for pick in (max, min))
        cases.append(Case(model, presets[slow] / presets[fast] if presets else nan, stated(CLUSTER_SPREAD)))
        texts.append(f"{model}: {slow} against {fast}" if presets else f"no cluster holds a {model}")
    return Claim(
        f"Cluster configurations differ by up to {CLUSTER_SPREAD}x",
        COMET,
        f"{'; '.join(texts)}; which configurations the paper compares, and on which model, is not public",
        tuple(cases),
    )
