"""The building blocks of ASTRA-sim 2.0: Ring, FullyConnected and Switch, each with the algorithm that suits it.

The claim (ISPASS 2023 talk): with ring, direct and halving-doubling there is no network congestion, so that
hops · latency + size / bandwidth is enough. Here every algorithm runs on every block, in the message evaluator too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from armillary.base.units import format_bytes, format_time
from armillary.collective.algorithms import rounds_for
from armillary.engine import simulate
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.evidence.reproduce.judge import Case, at_most, joined, percent, share, stated, times
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import TALK
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension, Port, links_per_npu
from armillary.report import figures
from armillary.trace import GraphBuilder, Trace

if TYPE_CHECKING:
    from armillary.platform.network import TopologyName

LISTED: dict[TopologyName, str] = {"Ring": "ring", "FullyConnected": "direct", "Switch": "halvingDoubling"}
"""Block -> the algorithm that the slides list for it."""
ALGORITHMS = ("ring", "direct", "halvingDoubling", "recursiveDoubling", "doubleBinaryTree")
IN_ASTRA_SIM = ("ring", "direct", "halvingDoubling")
"""Those whose time by the formula can be written down for ASTRA-sim's version of them."""
COLOURS = dict(
    zip(
        ALGORITHMS,
        (figures.BLUE, figures.VERMILION, figures.GREEN, figures.PURPLE, figures.ORANGE),
        strict=True,
    )
)
# 1 %: rounding of ns in each round, and nothing else.
SAME = 0.01
"""Times that differ by less than this part are called equal."""


def power(text: str) -> int:
    """Return a number of NPUs.

    Raises:
        ValueError: it is not a power of two from 4 to 256.
    """
    # Compared as text, so that "08" is refused as well.
    if text not in {str(1 << k) for k in range(2, 9)}:
        raise ValueError(f"got {text!r}, expected a power of two from 4 to 256, as halving-doubling wants")
    return int(text)


@dataclass(frozen=True)
class Assumptions:
    """What the slides do not say."""

    npus: tuple[int, ...] = assumed(
        "4,8,16,32",
        readers.several(power),
        "Sizes of blocks, as in the case studies.",
        others=("64",),
    )
    sizes: tuple[int, ...] = assumed(
        "64 KiB,1 MiB,16 MiB,1 GiB",
        readers.several(readers.size),
        "Sizes of the all-reduce, from latency-bound to bandwidth-bound.",
        others=("1 KiB", "10 GiB"),
    )
    bandwidth: float = assumed(
        "100 GB/s",
        readers.bandwidth,
        "Bandwidth of all links of an NPU together, as in the FullyConnected dimension of Conv-3D in the case studies.",
        others=("10 GB/s", "1 TB/s"),
    )
    latency: float = assumed(
        "500 ns",
        readers.time,
        "Latency of a hop, as in the case studies here; not stated.",
        others=("20 ns", "5 us"),
    )
    network_model: str = choice(
        "flow",
        ("flow", "congestion"),
        "How messages share links: flow divides them fairly, in congestion messages wait for each other.",
    )


class Setting(NamedTuple):
    """An all-reduce of `size` bytes among `n` NPUs of a block."""

    block: TopologyName
    n: int
    size: int


class Times(NamedTuple):
    """Of one algorithm, in ns: by the formula, in profile physical, with messages moved, in profile astra-sim."""

    rounds: int
    formula: float
    physical: int
    moved: int
    astra_formula: float
    astra: int


Found = dict[Setting, dict[str, Times]]


def run(chosen: Assumptions) -> Outcome:
    """Run every algorithm on every block, and judge what the slides say."""
    cases = [Setting(block, n, size) for block in LISTED for n in chosen.npus for size in chosen.sizes]
    found: Found = {
        case: {algorithm: _times(case, algorithm, chosen) for algorithm in ALGORITHMS} for case in cases
    }
    moved = f"messages moved ({chosen.network_model})"
    return Outcome(
        "Building blocks: all-reduce by every algorithm, one chunk",
        (_formula_grid(found, chosen), *(_algorithm_grid(block, found, chosen, moved) for block in LISTED)),
        (
            _formula(found, moved),
            _no_congestion(found, moved),
            *(_fastest(block, found, chosen, moved) for block in LISTED),
        ),
        lambda figure: _draw(figure, found, chosen, moved),
    )


def _times(case: Setting, algorithm: str, chosen: Assumptions) -> Times:
    links = links_per_npu(case.block, case.n)
    port = Port(chosen.bandwidth, chosen.bandwidth)
    # The bandwidth is of an NPU; links divide it.
    link = chosen.bandwidth / links
    dimension = Dimension("block", case.block, case.n, link, chosen.latency, port)
    platform = Platform(
        (dimension,), Npu(endpoint_delay=0), collectives=Collectives({"all-reduce": (algorithm,)})
    )
    builder = GraphBuilder()
    builder.all_reduce("all-reduce", size=case.size)
    trace = Trace.replicate(builder.graph(), case.n)
    # 0: not in ASTRA-sim, or not comparable there.
    astra_formula, astra = 0.0, 0
    if algorithm in IN_ASTRA_SIM:
        astra_formula = _astra_formula(case, algorithm, link, chosen.latency)
        astra = simulate(trace, platform, profile="astra-sim").total_ticks
    return Times(
        rounds_for(algorithm, "all-reduce", case.n).count,
        formula(case, algorithm, link, chosen.latency),
        simulate(trace, platform).total_ticks,
        simulate(trace, platform, network_model=chosen.network_model).total_ticks,
        astra_formula,
        astra,
    )


def formula(case: Setting, algorithm: str, link: float, latency: float) -> float:
    """Return the ns of all rounds if each message had its links for itself: hops · latency + size / bandwidth."""
    total = 0.0
    for part in rounds_for(algorithm, "all-reduce", case.n).rounds:
        moves = part.base
        hops = _hops(case.block, (moves.target - moves.source) % case.n, case.n)
        bytes_ = case.size * moves.numerator / moves.denominator
        # The slowest message of a round ends it.
        total += part.repeat * float((hops * latency + bytes_ / link).max())
    return total


def _hops(block: str, step: Any, n: int) -> Any:
    # On a ring the shorter way; other blocks have one distance.
    return np.minimum(step, n - step) if block == "Ring" else {"FullyConnected": 1, "Switch": 2}[block]


def _astra_formula(case: Setting, algorithm: str, link: float, latency: float) -> float:
    """Return the same for ASTRA-sim's versions, whose ring goes one way only."""
    n = case.n
    if algorithm == "halvingDoubling":
        # Round k: a distance of 2**k, half as many bytes as before.
        rounds = [(1 << k, case.size >> (k + 1), 1) for k in range(n.bit_length() - 1)]
    else:
        # Its direct algorithm is one step over the farthest distance.
        rounds = [(1, case.size // n, n - 1)] if algorithm == "ring" else [(n // 2, case.size // n, 1)]
    each = (times * (_hops(case.block, step, n) * latency + part / link) for step, part, times in rounds)
    # Reduce-scatter, and the same back as all-gather.
    return 2 * float(sum(each))


def _listed(found: Found) -> dict[Setting, Times]:
    return {case: row[LISTED[case.block]] for case, row in found.items()}


def _formula_grid(found: Found, chosen: Assumptions) -> Grid:
    rows = [
        (
            f"{case.block}, {format_bytes(case.size)}",
            LISTED[case.block],
            *map(format_time, times[1:]),
        )
        for case, times in _listed(found).items()
        # Only the largest block: smaller ones say the same.
        if case.n == chosen.npus[-1]
    ]
    header = (
        "all-reduce",
        "algorithm",
        "formula",
        "physical",
        chosen.network_model,
        "its formula",
        "astra-sim",
    )
    return Grid(f"The listed algorithms, {chosen.npus[-1]} NPUs", header, tuple(rows))


def _algorithm_grid(block: str, found: Found, chosen: Assumptions, moved: str) -> Grid:
    rows = []
    for case, row in found.items():
        # The smallest and the largest block.
        if case.block == block and case.n in (chosen.npus[0], chosen.npus[-1]):
            cells = (f"{format_time(each.moved)} {_slowdown(each):.1f}x" for each in row.values())
            rows.append((f"{case.n} NPUs, {format_bytes(case.size)}", *cells))
    return Grid(f"{block}: {moved}, and how much congestion slows them down", ("", *ALGORITHMS), tuple(rows))


def _slowdown(times: Times) -> float:
    return times.moved / times.formula


def _over(time: float, by: float, rounds: int) -> float:
    """Return the quotient of two times; 1 if they differ by no more than a ns that each round may be rounded by."""
    return 1.0 if abs(time - by) <= rounds else time / by


def _formula(found: Found, moved: str) -> Claim:
    listed = _listed(found).values()
    pairs = {
        "physical": [(each.physical, each.formula, each.rounds) for each in listed],
        moved: [(each.moved, each.formula, each.rounds) for each in listed],
        "astra-sim": [(each.astra, each.astra_formula, each.rounds) for each in listed],
    }
    off = {name: max(abs(time / by - 1) for time, by, _ in each) for name, each in pairs.items()}
    # ±1 %, tighter than the usual tolerance: a formula either holds or not.
    expected = stated(1.0, percent, SAME)
    cases = [Case(name, _over(*each), expected) for name, group in pairs.items() for each in group]
    return Claim(
        "A message takes hops · latency + size / bandwidth",
        TALK,
        f"the sum over all rounds differs by at most "
        f"{joined([f'{share(each, 2)} in {name}' for name, each in off.items()])}",
        tuple(cases),
    )


def _no_congestion(found: Found, moved: str) -> Claim:
    listed = _listed(found).values()
    others = {
        (case.block, algorithm): _slowdown(times)
        for case, row in found.items()
        for algorithm, times in row.items()
        if algorithm != LISTED[case.block]
    }
    last = list(found)[-1]
    clear = sorted(f"{name} on {block}" for (block, name), each in others.items() if each <= 1 + SAME)
    text = f"{moved}: slower than each message alone by at most {percent(max(map(_slowdown, listed)))}"
    # Text only: verdicts are from `cases`.
    worst = max(others, key=lambda key: others[key])
    text += f"; another algorithm, {worst[1]} on {worst[0]}, is slowed down {others[worst]:.1f}x"
    if clear:
        text += f"; there is none either for {joined(clear)} ({last.n} NPUs, {format_bytes(last.size)})"
    return Claim(
        "There is no network congestion with the listed algorithms",
        TALK,
        text,
        tuple(
            Case(block, _over(each.moved, each.formula, each.rounds), at_most(1 + SAME, percent))
            for (block, *_), each in _listed(found).items()
        ),
    )


def _fastest(block: TopologyName, found: Found, chosen: Assumptions, moved: str) -> Claim:
    cases, lost = list[Case](), dict[Setting, str]()
    mine = {case: row for case, row in found.items() if case.block == block}
    for case, row in mine.items():
        best = min(row, key=lambda name: row[name].moved)
        # The claim is about which is fastest, so its own time is compared with the best.
        over = row[LISTED[block]].moved / row[best].moved
        cases.append(Case(f"{case.n} NPUs, {format_bytes(case.size)}", over, at_most(1 + SAME, times)))
        if not cases[-1].agrees:
            lost[case] = best
    text = f"its time over that of the fastest; {moved}"
    if lost:
        # The case in which the listed algorithm loses most is named.
        worst = max(lost, key=lambda case: mine[case][LISTED[block]].moved / mine[case][lost[case]].moved)
        row, best = mine[worst], lost[worst]
        ratio = row[LISTED[block]].moved / row[best].moved
        text += f"; {best} is {ratio:.1f}x faster for {format_bytes(worst.size)} on {worst.n} NPUs, by fewer latencies"
        if _slowdown(row[best]) > 1 + SAME:
            text += f", although congestion slows it down {_slowdown(row[best]):.1f}x"
        largest = max(case.size for case in lost)
        if largest < max(chosen.sizes):
            text += f"; none is above {format_bytes(largest)}"
    return Claim(f"On a {block}, {LISTED[block]} is the algorithm to take", TALK, text, tuple(cases))


def _draw(figure: Any, found: Found, chosen: Assumptions, moved: str) -> None:
    n = chosen.npus[-1]
    panels = figures.panels(figure, [f"{block}, {n} NPUs" for block in LISTED], share=True)
    for axes, block in zip(panels, LISTED, strict=True):
        # Of the largest block, as in the table.
        mine = {case.size: row for case, row in found.items() if case.block == block and case.n == n}
        ratios = {
            name: [row[name].moved / row[LISTED[block]].moved for row in mine.values()] for name in ALGORITHMS
        }
        # The listed one is drawn thick: it is 1 everywhere.
        figures.curves(axes, list(mine), ratios, COLOURS, thick=LISTED[block])
        figures.sizes(axes, list(mine), format_bytes)
        figures.written(axes.yaxis, lambda value: f"{value:g}x")
        axes.set_xlabel("size of the all-reduce")
    panels[0].set_ylabel(f"time to that of the listed algorithm (thick)\n{moved}")
    figures.legend(figure)
