"""A predicted training step: what it takes, of what it consists, what would change it, and how it shows itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError
from armillary.base.portable import hypot, log
from armillary.base.units import format_bytes, format_count, format_time
from armillary.compute.machine import Machine
from armillary.explore.training.fitted import NORMAL
from armillary.explore.training.interval import off_by_levels
from armillary.explore.training.mean_step import on_machine
from armillary.explore.training.parts import TITLES, exposed, limit
from armillary.explore.training.plan_changes import plan_changes
from armillary.explore.training.software import Software
from armillary.explore.training.step import Step, extent, simulated
from armillary.explore.what_if import Tried
from armillary.explore.what_if import changes as machine_changes
from armillary.platform.files.preset import merged
from armillary.report.memory_fit import Memory
from armillary.report.page.blocks import Block, bars, changes, table, text
from armillary.report.page.blocks import headline as answer
from armillary.report.page.shown import Shown
from armillary.report.table import Parts, ResultTable
from armillary.workload.plan.schema import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from armillary.engine.common.timeline import Timeline
    from armillary.report.lower_bound import Bound

BY_LEVELS = "approximate: by levels of the graph"
MOST_TRIED = 400_000
"""Nodes of a simulated step up to which changes of plan and machine are simulated, which takes a minute."""


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """A predicted training step.

    Attributes:
        model: Name of the model.
        machine: The machine.
        software: What it is trained with.
        plan: As it is run, with all that was chosen.
        step_time_s: Time of a step in s; of all steps, with `plan.iterations` of them, as all that follows.
        interval_s: Between which 9 of 10 measured steps are expected, in s.
        mfu: FLOP that the model needs, over the peak in the precision of its GEMMs, as a share.
        memory: Of the fullest rank.
        parts: Part of the step -> s, see `armillary.explore.training.parts`.
        tokens: Of a step, over all replicas; 0: the model takes no tokens.
        assumptions: Sentences: what nobody said and moves the answer.
        step: What was simulated.
        again: Predicts a step of other keys of a plan.
    """

    model: str
    machine: Machine
    software: Software
    plan: Plan
    step_time_s: float
    interval_s: tuple[float, float]
    mfu: float
    memory: Memory
    parts: Mapping[str, float]
    tokens: int
    assumptions: tuple[str, ...]
    step: Step
    again: Callable[[Mapping[str, Any]], Prediction] = field(compare=False)

    def __repr__(self) -> str:
        """Return three lines: the answer, memory, and the plan with what takes most of the step."""
        return f"{headline(self)}\nMemory: {memory_text(self)}\n{plan_text(self.plan)}; most of it: {self.limits}"

    @property
    def title(self) -> str:
        """Model, machine and batch."""
        return f"{self.model} on {self.machine.name}, batch {self.plan.batch:,}"

    @property
    def limits(self) -> str:
        """What takes most of the step, in words."""
        title, seconds = limit(self.parts)
        return f"{title}, {100 * seconds / self.step_time_s:.0f} % of the step"

    @property
    def approximate(self) -> bool:
        """Whether the network is a graph that is taken by its levels, see `armillary.explore.training.levels`."""
        return self.machine.cut is not None

    @property
    def step_time(self) -> float:
        """Time of a step in s, as of all results."""
        return self.step_time_s

    @property
    def interval(self) -> tuple[float, float]:
        """Between which times, in s, 9 of 10 measured steps are expected."""
        return self.interval_s

    @property
    def breakdown(self) -> Parts:
        """Part of the step -> s, the largest first; a table, too."""
        return Parts(dict(sorted(self.parts.items(), key=lambda each: -each[1])))

    @property
    def bound(self) -> Bound:
        """What the step that `timeline` shows cannot be faster than, see `armillary.report.bound`."""
        from armillary.report.lower_bound import bound

        return bound(self.timeline())

    @property
    def collectives(self) -> ResultTable:
        """A row for each kind of collective of `timeline`: ``pandas.DataFrame(found.collectives)``."""
        from armillary.report.communication import collective_rows

        return collective_rows(self.timeline())

    def timeline(self, *, whole: bool = False) -> Timeline:
        """Simulate the step again and return it; of many microbatches those until they repeat, unless `whole`."""
        shown = self.step if whole else extent(self.step).first
        return simulated(shown, self.software.fitted.constants)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | None:
        """Draw the breakdown of `timeline` into a .png, .svg or .pdf file, or return matplotlib's figure.

        Raises:
            InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
        """
        from armillary.report.picture import breakdown_picture

        return breakdown_picture(self.timeline(), path)

    def tried(self) -> list[Tried]:
        """Simulate changes of plan and machine, and return what each does to the time, the best first.

        None of a step that is too large to be simulated often.
        """
        if len(self.timeline().node_start) > MOST_TRIED:
            return []
        return sorted([*self._other_plans(), *self._other_machines()], key=lambda each: each.rank)

    def _other_plans(self) -> Iterator[Tried]:
        for words, keys in plan_changes(self.step.model, self.plan):
            try:
                other = self.again(merged(self.step.plan, keys))
            except InputError:
                # The model or the machine does not allow this one.
                continue
            fits = other.memory.fits is not False
            yield Tried(words, other.step_time_s, "" if fits else f"memory: {memory_text(other)}", fits)

    def _other_machines(self) -> Iterator[Tried]:
        constants = self.software.fitted.constants
        for words, platform, remark in machine_changes(on_machine(self.step, constants)[0]):
            yield Tried(words, on_machine(self.step, constants, platform)[1], remark)

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page."""
        from armillary.report.page.memory import memory_block
        from armillary.report.page.run import details_of, reasons_of
        from armillary.workload.generate import footprint_of

        run = self.timeline()
        return [
            *self._answer(), *(self._changed() if changes else []), *self._shown_part(), *reasons_of(run),
            *details_of(run), memory_block(footprint_of(self.step.model, self.plan), self.memory.capacity_bytes),
        ]  # fmt: skip

    def _answer(self) -> list[Block]:
        first, _, rest = headline(self).partition(" (")
        memory = f"Memory: {memory_text(self)}"
        too_much = self.memory.fits is False
        lines = [rest.replace(")", "", 1), "" if too_much else memory, f"Plan: {plan_text(self.plan)}"]
        lines.append(f"Most of it: {self.limits}")
        rows = [("step", dict(self.parts))]
        return [
            answer(first, lines, alarm=memory if too_much else "", notes=self.assumptions),
            bars("What the step consists of", rows, TITLES),
        ]

    def _changed(self) -> list[Block]:
        note = "Each was simulated, with nothing else changed; `armillary plan` searches all plans."
        rows = [(each.text, each.seconds, each.remark, each.allowed) for each in self.tried()]
        return [changes("What a change would do", self.step_time_s, rows, note)] if rows else []

    def _shown_part(self) -> list[Block]:
        shown = extent(self.step).first
        if shown.plan["batch"] == self.step.plan["batch"]:
            return []
        unit, count, _ = self.step.rounds()
        return [
            text("The simulated part", [
                f"What follows shows {shown.plan['batch'] // unit:,} of the {count:,} microbatches of a replica: once "
                "the pipeline is full each further round takes the same. The step time counts all of them."
            ])
        ]  # fmt: skip


def seconds_text(seconds: float) -> str:
    """Return a time with its unit."""
    return format_time(seconds * 1e9)


def headline(found: Prediction) -> str:
    """Return "Step 6.9 s (90 % interval 6.2 s to 7.6 s), 49.4 % MFU, 76,000 tokens/s on 8 devices"."""
    low, high = (seconds_text(each) for each in found.interval_s)
    steps = found.plan.iterations
    name = "Step" if steps == 1 else f"{format_count(steps)} steps"
    interval = f"(90 % interval {low} to {high})"
    text = f"{name} {seconds_text(found.step_time_s)} {interval}, {100 * found.mfu:.1f} % MFU"
    if found.tokens:
        rate = found.tokens / found.step_time_s
        text += f", {rate:,.0f} tokens/s, {rate / found.machine.npus:,.0f} per device"
    text += f", on {format_count(found.machine.npus)} device{'s' * (found.machine.npus != 1)}"
    return f"{text}; {BY_LEVELS}" if found.approximate else text


def memory_text(found: Prediction) -> str:
    """Return "fits: 57.1 GiB of 74.5 GiB, of which 54.2 GiB are allocated at the peak", or that it does not."""
    memory = found.memory
    peak = f"{format_bytes(memory.peak_bytes)} are allocated at the peak"
    if memory.capacity_bytes is None:
        return f"{format_bytes(memory.needed_bytes)}, of which {peak}; the machine does not say what it has"
    word = "fits" if memory.fits else "DOES NOT FIT"
    return f"{word}: {format_bytes(memory.needed_bytes)} of {format_bytes(memory.capacity_bytes)}, of which {peak}"


def plan_text(plan: Plan) -> str:
    """Return a plan in a line: tp 4, pp 2 (virtual 5), dp 64, microbatch 1, zero-1."""
    own = plan.parallel
    parts = [f"{axis} {value}" for axis in ("tp", "pp", "cp", "ep") if (value := getattr(own, axis)) > 1]
    if plan.pipeline.virtual > 1:
        parts.append(f"virtual {plan.pipeline.virtual}")
    parts.append(f"dp {plan.ranks // (own.tp * own.pp * own.cp)}")
    parts += [f"microbatch {plan.microbatch}", plan.data.sharding]
    parts += [] if plan.recompute == "none" else [f"{plan.recompute} recomputation"]
    if plan.checkpoint_every:
        how = "beside which training goes on" if plan.checkpoint_async else "beside which nothing runs"
        every = f"every {plan.checkpoint_every:,} steps" if plan.checkpoint_every > 1 else "after each step"
        parts.append(f"a checkpoint {every}, {how}")
    if plan.numbers.recipe:
        parts.append(f"{plan.numbers.compute} ({plan.numbers.recipe})")
    return ", ".join(parts)


def tells_apart(one: Prediction, other: Prediction) -> bool:
    """Return whether two plans of a model on a machine differ by more than the model can tell.

    What a model and a machine do to all plans alike cancels. What remains is what the steps of a software differ by, of
    both, and what follows from how much more the one exposes of communication and waiting.
    """
    known = one.software.fitted.spread
    exposes = known.exposed * (exposed(other.parts) - exposed(one.parts))
    low, high = log_ratio(other, one, hypot(known.step, known.step, exposes))
    return not low <= 0 <= high


def log_ratio(one: Prediction, other: Prediction, spread: float) -> tuple[float, float]:
    """Return between which ln(measured time of one / of another) is in 9 of 10 cases.

    Args:
        one: A step.
        other: Another.
        spread: Standard deviation of it, but for what levels of a graph leave out.
    """
    (less, more), (least, most) = (
        off_by_levels(each.parts) if each.approximate else (0.0, 0.0) for each in (one, other)
    )
    ratio, wide = log(one.step_time_s / other.step_time_s), NORMAL * spread
    return ratio - hypot(wide, less, most), ratio + hypot(wide, more, least)


def behind(best: Prediction, other: Prediction) -> str:
    """Return "3.2 %", and whether the model can tell; "" of the best itself."""
    if other is best:
        return ""
    share = other.step_time_s / best.step_time_s - 1
    sure = tells_apart(best, other)
    return f"{100 * share:.1f} %" + ("" if sure else ", less than the model can tell")


def plans_block(title: str, found: Sequence[Prediction]) -> Block:
    """Return a table of predictions, best first, and how much slower each is than the first."""
    columns = (
        ("plan", "text"), ("step", "time"), ("from", "time"), ("to", "time"), ("MFU", "share"), ("memory", "size"),
        ("fits", "text"), ("slower than the first", "text"),
    )  # fmt: skip
    fits = {True: "yes", False: "NO", None: "not known"}
    return table(title, columns, [
        [
            plan_text(each.plan), each.step_time_s, *each.interval_s, each.mfu, each.memory.needed_bytes,
            fits[each.memory.fits], behind(found[0], each),
        ]
        for each in found
    ])  # fmt: skip
