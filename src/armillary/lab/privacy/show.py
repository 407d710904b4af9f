"""Tables and a picture of the success of attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.lab.privacy.evaluate import RULES, Evaluation
from armillary.lab.privacy.public import PLAIN, PRIOR, PUBLIC, Named
from armillary.lab.privacy.rules import Guess

if TYPE_CHECKING:
    from rich.table import Table

SECRETS = ("hidden", "layers", "tp", "pp", "dp")
"""Attributes that the picture shows."""
STYLES: tuple[Literal[":", "--"], ...] = (":", "--")
_PUBLIC = "#E69F00"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")


def guesses_table(guesses: Sequence[Guess]) -> Table:
    """Return the guesses of an attack by rules as a table."""
    table = _table("attribute", "value", "why")
    for guess in guesses:
        table.add_row(guess.attribute, "unknown" if guess.value is None else f"{guess.value:,}", guess.why)
    return table


def remains_tables(found: dict[str, Any]) -> list[Table]:
    """Return what a trace reveals before and after, as tables; see `remains`."""
    times = _table("machine", "original", "obfuscated")
    from armillary.base.units import format_time

    for row in found["obfuscation"]["times"]:
        times.add_row(row["machine"], format_time(row["original_ns"]), f"{100 * row['error']:+.2f} %")
    clear = _table("in clear", "before", "after")
    for row in found["in_clear"]:
        clear.add_row(row["what"], row["before"], row["after"])
    guessed = _table("rules find", "before", "after")
    for row in found["attack"]:
        guessed.add_row(
            row["attribute"],
            *(_value(row[side]) for side in ("before", "after")),
        )
    return [times, clear, guessed]


def _value(found: int | str | None) -> str:
    return "unknown" if found is None else found if isinstance(found, str) else f"{found:,}"


def evaluation_tables(found: Evaluation) -> list[Table]:
    """Return the shares of runs in which attacks find each attribute: those that learn, then those by rules."""
    names = list(found.prior)
    learned = _table("learned attack, %", *names, "error", "elsewhere")
    learned.add_row("prior", *(_percent(found.prior[name]) for name in names), "", "")
    for count, floor in found.floors.items():
        what = f"time, {count} machine{'s' * (count > 1)}"
        learned.add_row(what, *(_percent(floor[name]) for name in names), "", "")
    rules = _table("attack by rules, %", *RULES)
    for each in found.outcomes:
        errors = (100 * np.abs(each.errors).mean(), 100 * np.abs(each.elsewhere).mean())
        cells = (_percent(each.learned[name]) for name in names)
        learned.add_row(each.setting.name, *cells, *(f"{error:.1f}" for error in errors))
        rules.add_row(each.setting.name, *(_percent(each.rules[name]) for name in RULES))
    return [learned, rules]


def public_table(named: Sequence[Named]) -> Table:
    """Return the shares of runs of public models that the total of their gradients names, with intervals."""
    table = _table("named by its gradients", "public model, %", "95 % interval")
    table.add_row("prior", _percent(PRIOR), "")
    for each in named:
        low, high = each.interval
        table.add_row(each.setting, _percent(each.share), f"{_percent(low)} to {_percent(high)}")
    return table


def not_hidden(named: Sequence[Named]) -> str:
    """Return one sentence that lists the settings at which the model can be named: intervals above the prior."""
    told = [each.setting for each in named if each.setting != PLAIN and each.interval[0] > PRIOR]
    if not told:
        return f"the total of gradients names a public model no more often than 1 in {len(PUBLIC)}"
    return (
        f"not hidden: the total of gradients names a public model more often than 1 in {len(PUBLIC)} at "
        f"{', '.join(told)}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _table(*columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, no_wrap=column == columns[0])
    return table


def trade_off_picture(found: Evaluation, path: Path, named: Sequence[Named] = ()) -> None:
    """Draw the success of the attack over the error of simulated times, and how often public models are named.

    Raises:
        InputError: the suffix is not that of a picture, or matplotlib is not installed.
    """
    check_picture(path)
    figure = new_figure(15 + 3 * bool(named), 4.6)
    error = [100 * float(np.abs(each.errors).mean()) for each in found.outcomes]
    # Settings that hold on fewer machines than the others get open marks.
    many = max(each.setting.machines for each in found.outcomes)
    places = figure.subplots(1, len(SECRETS) + bool(named), sharey=True)
    panels = zip(places[: len(SECRETS)], SECRETS, _COLOURS, strict=True)
    for axes, name, colour in panels:
        for each, x in zip(found.outcomes, error, strict=True):
            few = each.setting.machines < many
            marker = {"marker": "o", "color": colour, "fillstyle": "none" if few else "full"}
            axes.plot(x, 100 * each.learned[name], **marker)
            axes.plot(x, 100 * each.rules[name], "x", color="#555555")
        last = -100.0
        for number, (x, each) in enumerate(zip(error, found.outcomes, strict=True), 1):
            y = 100 * each.learned[name]
            # Two numbers at nearly the same height would overlap: one goes above its mark, the other below.
            above = y - last > 0 if abs(y - last) < 3 else True
            place = (5, 5 if above else -12)
            axes.annotate(str(number), (x, y), place, textcoords="offset points", fontsize=9)
            last = y
        prior = 100 * found.prior[name]
        # What anybody finds by guessing the most frequent value, and ten points more.
        axes.axhspan(prior, prior + 10, color=colour, alpha=0.12)
        for style, floor in zip(STYLES, found.floors.values(), strict=False):
            axes.axhline(100 * floor[name], color="#555555", linestyle=style, linewidth=1)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("mean error of simulated times (%)")
        axes.set_ylim(0, 103)
        axes.grid(alpha=0.3)
    if named:
        _draw_public(
            places[-1], named, dict(zip([each.setting.name for each in found.outcomes], error, strict=True))
        )
    figure.axes[0].set_ylabel(f"share of {found.runs} runs in which the attack is right (%)")
    figure.legend(handles=_legend(found, many), loc="outside upper center", ncols=6, fontsize=8)
    text = ";  ".join(f"{number} {each.setting.name}" for number, each in enumerate(found.outcomes, 1))
    figure.supxlabel(text, fontsize=8)
    save_figure(figure, path)


def _draw_public(axes: Any, named: Sequence[Named], error: Mapping[str, float]) -> None:
    """Draw shares with intervals over the errors of their settings, numbered as in the other panels."""
    numbers = {name: number for number, name in enumerate(error, 1)}
    last = -100.0
    for each in named:
        if each.setting not in error:
            continue
        x, y = error[each.setting], 100 * each.share
        low, high = (100 * bound for bound in each.interval)
        axes.errorbar(x, y, [[y - low], [high - y]], marker="s", color=_PUBLIC, capsize=3, linestyle="")
        place = (5, 5 if y - last > 0 or abs(y - last) >= 3 else -12)
        axes.annotate(str(numbers[each.setting]), (x, y), place, textcoords="offset points", fontsize=9)
        last = y
    axes.axhspan(100 * PRIOR, 100 * PRIOR + 10, color=_PUBLIC, alpha=0.12)
    axes.set_title(f"public model, by its gradients ({named[0].runs} runs)", fontsize=10)
    axes.set_xlabel("mean error of simulated times (%)")
    axes.grid(alpha=0.3)


def _legend(found: Evaluation, many: int) -> list[Any]:
    """Return the handles of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks = [Line2D([], [], color="#555555", marker="o", linestyle="", label="learned attack")]
    if any(each.setting.machines < many for each in found.outcomes):
        few = "learned attack, one machine kept"
        marks.append(Line2D([], [], color="#555555", marker="o", fillstyle="none", linestyle="", label=few))
    marks.append(Line2D([], [], color="#555555", marker="x", linestyle="", label="attack by rules"))
    for style, count in zip(STYLES, found.floors, strict=False):
        what = f"from the time on {count} machine{'s' * (count > 1)} alone"
        marks.append(Line2D([], [], color="#555555", linestyle=style, linewidth=1, label=what))
    return [*marks, Patch(color="#555555", alpha=0.12, label="prior to prior + 10 points")]
