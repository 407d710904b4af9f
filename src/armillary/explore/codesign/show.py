"""A machine that was looked for: for people, and for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base.units import format_count
from armillary.explore.codesign.found import Design, Designs
from armillary.explore.codesign.worth import TITLES, amount

if TYPE_CHECKING:
    from rich.table import Table


def headline(found: Designs) -> list[str]:
    """Return the answer, how sure it is, and how much is left, a line each."""
    best = found.best
    costs = [
        f"{TITLES[name]} {amount(name, value)} of {amount(name, most)}"
        for name, most in found.asked.budget.items() if (value := best.worth.of(name)) is not None
    ]  # fmt: skip
    lines = [
        f"Best: {best.name}, {times(best.goodput)} the goodput of {found.reference.name}{_interval(best)}; "
        f"{', '.join(costs)}"
    ]
    if any(each.by_links for each in found.asked.entries):
        lines.append(
            "Collectives follow the links of the machines, as their rates vary; those that were measured take 1.5 "
            "times as long from 64 MiB on"
        )
    done, within = len(found.designs), found.affordable
    impossible = f", {len(found.rejected)} impossible (below)" if found.rejected else ""
    count = (
        f"{done} of {within:,} within the budget simulated{impossible}, of {found.points:,} machines in all"
    )
    if found.left:
        lines.append(f"Not proved: {count}; another may be better by {100 * found.gap:.3g} % at most")
    else:
        lines.append(f"Proved: {count}; by their bounds none of the others is better")
    if (cheap := found.cheapest) is not found.best:
        name = next(iter(found.asked.budget))
        lines.append(
            f"The model cannot tell {cheap.name} from it: {times(cheap.goodput)} for {TITLES[name]} "
            f"{amount(name, cheap.worth.of(name) or 0.0)}, the least of those"
        )
    if found.ideal != float("inf"):
        lines.append(
            "What is left: with all kernels at the peaks of operations and memory and a network that takes no time, "
            f"no machine within the budget does more than {times(found.ideal)}, of which the best reaches "
            f"{100 * best.goodput / found.ideal:.3g} %"
        )
    return lines


def binding(found: Designs) -> list[str]:
    """Return which budget stands in the way of better machines, a line each."""
    lines = [
        f"Binds: {' and '.join(TITLES[name] for name in names)}: {each.count:,} machine{'s' * (each.count > 1)} beyond "
        f"{'it' if len(names) == 1 else 'both' if len(names) == 2 else 'all'} may do up to {times(each.most)}"
        for names, each in found.beyond.items()
    ]
    if not lines:
        lines = ["Binds: the space, not the budget: no machine beyond it may be better"]
    return lines


def designs_table(found: Designs, top: int) -> Table:
    """Return a row for each of the best designs."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("machine")
    for name in (
        "NPUs",
        "goodput",
        "90 % interval",
        "of the best",
        *(TITLES[name] for name in found.asked.budget),
    ):
        table.add_column(name, justify="right")
    for each in found.designs[:top]:
        low_high = "not known" if each.interval is None else " to ".join(map(times, each.interval))
        table.add_row(
            each.name, format_count(each.machine.npus), times(each.goodput), low_high, against(found, each),
            *(amount(name, each.worth.of(name) or 0.0) for name in found.asked.budget),
        )  # fmt: skip
    return table


def details(found: Designs) -> list[str]:
    """Return what each workload does on the best machine, what is assumed, and what is not counted."""
    best = found.best
    lines = [
        f"{each.name}: {1 / taken.seconds:,.4g} {each.unit} a second, {100 * share:.0f} % of the mix's time; "
        f"{taken.how}; most of it: {taken.limits}"
        for each, taken, share in zip(found.asked.mix, best.taken, best.shares, strict=True)
    ]
    lines += [f"Assumed: {text}" for text in assumed(found)]
    lines += [f"Not in cost and power: {text}" for text in best.worth.missing]
    return lines + [f"Impossible on {'; '.join(names)}: {why}" for why, names in reasons(found)]


def assumed(found: Designs) -> list[str]:
    """Return what is assumed of the best machine, each once."""
    return [*dict.fromkeys(text for taken in found.best.taken for text in taken.assumptions)]


def reasons(found: Designs) -> list[tuple[str, list[str]]]:
    """Return why the mix is impossible, and the names of the machines on which it is for that reason."""
    machines: dict[str, list[str]] = {}
    for name, why in found.rejected.items():
        machines.setdefault(why.replace(f" of {name}", ""), []).append(name)
    return [*machines.items()]


def codesign_json(found: Designs) -> dict[str, Any]:
    """Return the result as plain values, in s, USD and W."""
    return {
        "reference": found.reference.name,
        "budget": dict(found.asked.budget),
        "proved": not found.left,
        "gap_ratio": found.gap,
        "ideal_goodput": None if found.ideal == float("inf") else found.ideal,
        "machines": found.points,
        "within_budget": found.affordable,
        "simulated": len(found.designs),
        "given_up": found.given_up,
        "not_looked_at": found.left,
        "cheapest_not_told_apart": found.cheapest.name,
        "binding": [
            {
                "budgets": list(names),
                "machines": each.count,
                "goodput_at_most": None if each.most == float("inf") else each.most,
            }
            for names, each in found.beyond.items()
        ],
        "impossible": dict(found.rejected),
        "designs": [_design_json(found, each) for each in found.designs],
    }


def _design_json(found: Designs, each: Design) -> dict[str, Any]:
    return {
        "machine": each.name,
        "npus": each.machine.npus,
        "goodput": each.goodput,
        "interval": None if each.interval is None else list(each.interval),
        "differs_from_best": each.differs(found.best),
        "capital_usd": each.worth.capital,
        "cost_per_year_usd": each.worth.cost_per_year,
        "power_w": each.worth.power,
        "not_in_the_cost": list(each.worth.missing),
        "workloads": [
            {
                "workload": one.name, "unit": one.unit, "per_second": 1 / taken.seconds,
                "share_of_time": share, "how": taken.how, "limits": taken.limits,
                "assumptions": list(taken.assumptions),
            }
            for one, taken, share in zip(found.asked.mix, each.taken, each.shares, strict=True)
        ],
    }  # fmt: skip


def times(goodput: float) -> str:
    """Return "2.31x"."""
    return f"{goodput:,.2f}x"


def _interval(best: Design) -> str:
    if best.interval is None:
        return " (90 % interval not known)"
    low, high = map(times, best.interval)
    return f" (90 % interval {low} to {high})"


def against(found: Designs, each: Design) -> str:
    """Return "97.2 %, not told apart": what a design does of the best."""
    if each is found.best:
        return "the best"
    word = "" if each.differs(found.best) else ", not told apart"
    return f"{100 * each.goodput / found.best.goodput:.1f} %{word}"
