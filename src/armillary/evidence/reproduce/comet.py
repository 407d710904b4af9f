"""COMET (arXiv 2211.16648): Transformer-1T and a DLRM on 1,024 nodes of variable compute, memory and network.

The method: divide the workload (MPx_DPy, x y = 1,024; the DLRM onto as few nodes as hold it), count what a node
holds, simulate each plan, sweep memory and network, choose. Only the abstract is public where we can read it, and
that the case studies are of a Transformer and a DLRM: no table, equation or sweep, and no code. So trends are judged,
and two ratios that are upper ends of something we do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from armillary.base.units import format_bandwidth, format_bytes, format_flops, format_time
from armillary.evidence.reproduce.comet_assumptions import NODES, Assumptions
from armillary.evidence.reproduce.comet_claims import claims, gigabytes
from armillary.evidence.reproduce.comet_clusters import cluster
from armillary.evidence.reproduce.comet_dlrm import FoundDlrm, explore_dlrm
from armillary.evidence.reproduce.comet_figures import draw
from armillary.evidence.reproduce.comet_sweep import (
    CAPACITIES,
    FACTORS,
    RATES,
    SWEPT,
    Best,
    Choice,
    Found,
    explore,
)
from armillary.evidence.reproduce.comet_workload import name
from armillary.evidence.reproduce.outcome import Grid, Outcome

NONE = "-"
_RATES = tuple(f"{rate:g}" for rate in RATES)


def run(chosen: Assumptions) -> Outcome:
    """Simulate all plans and sweeps, and judge what is known of the paper."""
    found, dlrm = explore(chosen), explore_dlrm(chosen)
    title = (
        f"Transformer-1T, {chosen.batch:,} sequences a step, sharding {chosen.sharding}, and a DLRM of "
        f"{chosen.dlrm_parameters / 1e12:.3g} T parameters, {chosen.dlrm_batch:,} samples, on {NODES:,} nodes"
    )
    expansion = f"{gigabytes(chosen.expansion_capacity)} at {format_bandwidth(chosen.expansion)}"
    grids = (
        _plans(found, chosen),
        _hybrid(found),
        _expansion(found),
        _pairs(
            f"MP and s of the best plan, without / with {expansion}, by bandwidth within (down) and between pods",
            [format_bandwidth(factor * chosen.intra) for factor in FACTORS],
            [format_bandwidth(factor * chosen.inter) for factor in FACTORS],
            [[found.network[intra, inter] for inter in FACTORS] for intra in FACTORS],
        ),
        _pairs(
            "The same by FLOP/s of a node (down) and bandwidth between pods",
            [format_flops(factor * chosen.peak) for factor in FACTORS],
            [format_bandwidth(factor * chosen.inter) for factor in FACTORS],
            [[found.compute[peak, inter] for inter in FACTORS] for peak in FACTORS],
        ),
        _clusters(
            found.clusters, chosen, f"Clusters of {NODES:,} nodes, with {expansion} more or without", name
        ),
        _sizes(dlrm, chosen),
        _sizes_expanded(dlrm),
        _clusters(
            dlrm.clusters, chosen, "The same, DLRMs side by side: nodes of each, and node time", _nodes
        ),
    )
    judged = claims(found, dlrm, chosen)
    return Outcome(title, grids, judged, lambda figure: draw(figure, found, dlrm, chosen))


def _plans(found: Found, chosen: Assumptions) -> Grid:
    rows = tuple(
        (
            name(plan.mp), gigabytes(plan.needed), "yes" if plan.fits else "no", format_time(plan.time.total),
            format_time(plan.time.compute), format_time(plan.time.exposed), format_bytes(plan.in_pod),
            format_bytes(plan.between),
        )
        for plan in found.plans
    )  # fmt: skip
    header = ("plan", "needed", "fits", "step", "compute", "exposed comm.", "sent in pod", "between pods")
    return Grid(f"Plans, as if each fitted into {gigabytes(chosen.capacity)}", header, rows)


def _hybrid(found: Found) -> Grid:
    # Only MP that are shown in tables; the others are several times slower.
    rows = tuple((name(mp), *(_seconds(found.hybrid.get((mp, rate))) for rate in RATES)) for mp in SWEPT)
    return Grid("Step in s by GB/s of the memory expansion, as large as it takes", ("plan", *_RATES), rows)


def _expansion(found: Found) -> Grid:
    own = found.fitting()
    rows = []
    # By capacity (down) and bandwidth (across): the best plan that fits then.
    for capacity in CAPACITIES:
        bests = [found.best(capacity, rate) for rate in RATES]
        rows.append((gigabytes(capacity), *(_gain(best, own.time.total if own else 0) for best in bests)))
    title = "Best MP and gain by capacity of the expansion (down) and its GB/s"
    return Grid(title, ("", *_RATES), tuple(rows))


def _pairs(title: str, down: Sequence[str], across: Sequence[str], bests: Sequence[Sequence[Best]]) -> Grid:
    rows = tuple((word, *map(_pair, row)) for word, row in zip(down, bests, strict=True))
    return Grid(title, ("", *across), rows)


def _clusters(
    clusters: Mapping[str, Best], chosen: Assumptions, title: str, words: Callable[[int], str]
) -> Grid:
    # Over both columns: ratios compare with the fastest of all.
    fastest = min((each.time for best in clusters.values() for each in best if each), default=0)
    rows = []
    for word, best in clusters.items():
        # Peak and memory depend on the cluster, which is loaded for them.
        platform = cluster(word, chosen)
        memory = f"{platform.npu.memory.capacity / 1e9:.3g} GB"
        row = [word, format_flops(platform.npu.peak_flops), memory]
        for each in best:
            row += (
                [words(each.mp), format_time(each.time), f"{each.time / fastest:.2f}x"]
                if each
                else [NONE] * 3
            )
        rows.append(tuple(row))
    header = ("cluster", "FLOP/s", "memory", "fits", "time", "to best", "expanded", "time", "to best")
    return Grid(title, header, tuple(rows))


def _sizes(found: FoundDlrm, chosen: Assumptions) -> Grid:
    rows = tuple(
        (
            f"{size.nodes}", gigabytes(size.needed), "yes" if size.fits else "no", format_time(size.time.total),
            format_time(size.time.compute), format_time(size.time.exposed), format_time(size.node_time),
        )
        for size in found.sizes
    )  # fmt: skip
    header = ("nodes", "needed", "fits", "step", "compute", "exposed comm.", "node time")
    return Grid(
        f"A DLRM by its nodes, as if each fitted into {gigabytes(chosen.capacity)}; node time is step times nodes",
        header,
        rows,
    )


def _sizes_expanded(found: FoundDlrm) -> Grid:
    own = found.fitting()
    rows = []
    for capacity in CAPACITIES:
        bests = [found.best(capacity, rate) for rate in RATES]
        rows.append((gigabytes(capacity), *(_gain(best, own.node_time if own else 0) for best in bests)))
    title = "Best number of nodes and gain in node time by capacity of the expansion (down) and its GB/s"
    return Grid(title, ("", *_RATES), tuple(rows))


def _nodes(nodes: int) -> str:
    return f"{nodes}"


def _seconds(time: float | None) -> str:
    return NONE if time is None else f"{time / 1e9:.1f}"


def _gain(best: Choice | None, own: int) -> str:
    if best is None:
        return NONE
    # Without a plan that fits by itself there is no gain, only a time.
    return f"{best.mp} {own / best.time:.2f}x" if own else f"{best.mp} {format_time(best.time)}"


def _pair(best: Best) -> str:
    return " / ".join(f"{each.mp} {_seconds(each.time)}" if each else NONE for each in best)
