"""The page of a machine that was looked for: the answer, what money or power buys, machines, and workloads."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.explore.codesign.found import Designs
from armillary.explore.codesign.show import against, assumed, binding, headline, reasons
from armillary.explore.codesign.worth import TITLES
from armillary.report.page.blocks import Block, lines, table, text
from armillary.report.page.blocks import headline as answer
from armillary.report.page.shown import Shown


@dataclass(frozen=True)
class ShownDesigns(Designs, Shown):
    """The result of a search for a machine, which shows itself as a page."""

    @property
    def title(self) -> str:
        """What was looked for."""
        return f"Machine for {', '.join(each.name for each in self.asked.mix)}"

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page, see `Shown.blocks`."""
        return _blocks(self)


def _blocks(found: Designs) -> list[Block]:
    budget = [(name, f"{TITLES[name]}, {'W' if name == 'power' else 'USD'}") for name in found.asked.budget]
    first, *rest = headline(found)
    name, _, said = first.removeprefix("Best: ").partition(", ")
    blocks = [
        answer(name, [said, *rest, *binding(found)], notes=[*assumed(found), *found.best.worth.missing])
    ]
    for key, title in budget:
        if len(points := _front(found, key)) > 1:
            best = [("best that was simulated", points)]
            blocks.append(lines(f"Goodput against {TITLES[key]}", best, f"{title}|number", "goodput|number"))
    blocks.append(
        table(
            "Machines",
            [
                ("machine", "text"), ("NPUs", "count"), ("goodput", "number"), ("at least", "number"),
                ("at most", "number"), ("of the best", "text"), *((title, "number") for _, title in budget),
            ],
            [
                [
                    each.name, each.machine.npus, each.goodput, *(each.interval or (None, None)),
                    against(found, each), *(each.worth.of(key) for key, _ in budget),
                ]
                for each in found.designs
            ],
            "Goodput: how much of the mix a machine completes in the time in which the reference completes it once, "
            "with the interval in which 9 of 10 measurements are expected.",
        )
    )  # fmt: skip
    columns = [
        ("workload", "text"), ("a second", "number"), ("of", "text"), ("share of the time", "share"), ("how", "text"),
        ("most of it", "text"),
    ]  # fmt: skip
    rows = [
        [each.name, 1 / taken.seconds, each.unit, share, taken.how, taken.limits]
        for each, taken, share in zip(found.asked.mix, found.best.taken, found.best.shares, strict=True)
    ]
    blocks.append(table(f"The mix on {found.best.name}", columns, rows))
    if found.rejected:
        blocks.append(text("Impossible", [f"On {'; '.join(names)}: {why}" for why, names in reasons(found)]))
    return blocks


def _front(found: Designs, key: str) -> list[tuple[float, float]]:
    """Return (what counts against a budget, goodput) of the designs of which none that takes less does more."""
    points: list[tuple[float, float]] = []
    for taken, goodput in sorted((each.worth.of(key) or 0.0, each.goodput) for each in found.designs):
        if not points or goodput > points[-1][1]:
            points.append((taken, goodput))
    return points
