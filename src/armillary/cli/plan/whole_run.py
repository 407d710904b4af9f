"""`armillary plan whole-run`: days, NPU years, energy and money of a training run, with failures and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.base.errors import InputError
from armillary.cli.command import Command, option
from armillary.cli.options import json_option, plot_option, programs_option, ranks_option, seed_option
from armillary.cli.outputs import say, show_table, working, write_json
from armillary.cli.plan import SUBCOMMANDS
from armillary.cli.values import complete_costs, complete_failures

if TYPE_CHECKING:
    from armillary.explore.cost.schema import Costs
    from armillary.explore.cost.step import Step
    from armillary.explore.whole_run.goodput import Checkpoints
    from armillary.explore.whole_run.run import WholeRun, Work

# Not checked for existence here: a study is read with errors of its own.
_PATH = click.Path(path_type=Path)
_HELP = f"""{SUBCOMMANDS["whole-run"]}

The work is STUDY, which is simulated, with --tokens; or --step-time, --tokens-per-step, --ranks and --tokens; or
--flops, --rate and --ranks. --mtbf adds failures: a preset (llama-3), a file, or the mean time between failures of one
NPU ("50000 h").
"""


_WORK, _FAILURES, _CHECKPOINTS = "The work", "Failures and repair", "Checkpoints"


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        'armillary plan whole-run --flops 3.14e23 --rate "28 TFLOP/s" --ranks 1024 --costs v100-cloud',
        "armillary plan whole-run examples/llama.yaml --tokens 15T",
    ),
)
@click.argument("study", type=_PATH, required=False)
@option("--tokens", metavar="COUNT", heading=_WORK, help="Tokens of the whole run, e.g. 15.6T.")
@option("--step-time", metavar="TIME", heading=_WORK, help="Time of a step, instead of a study.")
@option(
    "--tokens-per-step", metavar="COUNT", heading=_WORK, help="Tokens per step, with --step-time, e.g. 16M."
)
@ranks_option("Number of NPUs, without a study.", heading=_WORK)
@option(
    "--flops",
    metavar="COUNT",
    heading=_WORK,
    help="Operations of the whole run, instead of tokens, e.g. 3.14e23.",
)
@option("--rate", metavar="FLOPS", heading=_WORK, help='Rate of an NPU, with --flops, e.g. "28 TFLOP/s".')
@option(
    "--mtbf",
    metavar="FAILURES",
    heading=_FAILURES,
    shell_complete=complete_failures,
    help="Preset, file, or mean time between failures of an NPU.",
)
@option(
    "--restart",
    metavar="TIME",
    heading=_FAILURES,
    default="5 min",
    show_default=True,
    help="Time from a failure until work resumes.",
)
@option(
    "--spares",
    type=click.IntRange(0),
    metavar="N",
    heading=_FAILURES,
    help="Number of spare nodes; by default unlimited.",
)
@option(
    "--repair",
    metavar="TIME",
    heading=_FAILURES,
    default="1 day",
    show_default=True,
    help="Time to repair a node, with --spares.",
)
@option("--play", is_flag=True, heading=_FAILURES, help="Also simulate 30 runs of 1,000 failures each.")
@seed_option("Random seed for --play.  [default: 0]", heading=_FAILURES)
@option(
    "--checkpoint",
    metavar="TIME",
    heading=_CHECKPOINTS,
    help="Time for which a checkpoint stops work; by default computed from its size.",
)
@option(
    "--checkpoint-size",
    metavar="SIZE",
    heading=_CHECKPOINTS,
    help="Size of a checkpoint; by default 14 bytes per parameter of the study.",
)
@option(
    "--checkpoint-bandwidth",
    metavar="BANDWIDTH",
    heading=_CHECKPOINTS,
    help='Bandwidth of the storage, e.g. "2 TB/s".',
)
@option(
    "--asynchronous",
    metavar="TIME",
    heading=_CHECKPOINTS,
    help="Time for which an asynchronous checkpoint stops work; the rest is written later.",
)
@option(
    "--interval",
    metavar="TIME",
    heading=_CHECKPOINTS,
    help="Work between checkpoints; by default the best interval.",
)
@option(
    "--costs",
    metavar="COSTS",
    heading=_WORK,
    shell_complete=complete_costs,
    help="Prices and energies: a file, or a preset.",
)
@plot_option("goodput against NPUs and interval")
@json_option()
@programs_option
def command(
    study: Path | None,
    tokens: str | None,
    step_time: str | None,
    tokens_per_step: str | None,
    ranks: int | None,
    flops: str | None,
    rate: str | None,
    mtbf: str | None,
    checkpoint: str | None,
    checkpoint_size: str | None,
    checkpoint_bandwidth: str | None,
    asynchronous: str | None,
    interval: str | None,
    restart: str,
    spares: int | None,
    repair: str,
    costs: str | None,
    play: bool,
    seed: int | None,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Sum up and print."""
    from armillary.explore.cost import load_costs
    from armillary.explore.whole_run import monte_carlo, show
    from armillary.explore.whole_run.failures import load_failures
    from armillary.explore.whole_run.goodput import Checkpoints, Recovery
    from armillary.explore.whole_run.quantities import parse_seconds
    from armillary.explore.whole_run.run import whole_run
    from armillary.report.memory_fit import memory_fit
    from armillary.report.summary import first_lines

    # Both are about failures.
    if (plot or play) and not mtbf:
        raise click.UsageError("--plot and --play need --mtbf")
    if seed is not None and not play:
        raise click.UsageError("--seed needs --play")
    known = load_costs(costs) if costs else None
    failures = load_failures(mtbf) if mtbf else None
    pause = parse_seconds("--asynchronous", asynchronous) if asynchronous else None
    step, work = _work(study, tokens, step_time, tokens_per_step, ranks, flops, rate)
    # 0 s: nothing fails, and no checkpoint is needed.
    stops = Checkpoints(0.0)
    if failures:
        stops = _checkpoints(step, checkpoint, checkpoint_size, checkpoint_bandwidth, pause)
    recovery = Recovery(parse_seconds("--restart", restart), spares, parse_seconds("--repair", repair))
    between = parse_seconds("--interval", interval) if interval is not None else None
    # 0 would be a checkpoint without work between; None asks for the best.
    if between == 0:
        raise InputError(
            f"--interval: got '{interval}', expected more than 0, or no interval for the best one"
        )
    run = whole_run(work, failures, stops, recovery, between)
    money = _money(run, step, known) if known else {}
    for line in first_lines(step.timeline) if step else ():
        click.echo(line)
    show_table(show.run_table(run, failures, money))
    # Failures make the run longer; NPUs may be more than the work needs.
    if failures:
        played = None
        if play and run.goodput.useful:
            # 30 runs: a spread beside the expected value.
            with working("playing"):
                played = monte_carlo.play(
                    run.rate, run.interval, run.checkpoints, run.recovery, seed=seed or 0
                )
        click.echo()
        show_table(show.bar_table(run, played))
    if plot and failures:
        show.draw(run, failures, plot)
        say(f"wrote {plot}", err=True)
    described = show.describe(run, failures, money)
    write_json(json_file, described | ({"memory": memory_fit(step.timeline)} if step else {}))


def _work(
    study: Path | None,
    tokens: str | None,
    step_time: str | None,
    tokens_per_step: str | None,
    ranks: int | None,
    flops: str | None,
    rate: str | None,
) -> tuple[Step | None, Work]:
    from armillary.base.units import parse_flops
    from armillary.explore.cost.step import simulate_step
    from armillary.explore.whole_run.quantities import parse_seconds, parse_tokens
    from armillary.explore.whole_run.run import from_flops, from_steps

    # The three ways to say the work.
    if sum(each is not None for each in (study, step_time, flops)) != 1:
        raise click.UsageError("expected one of STUDY, --step-time and --flops")
    if flops is not None:
        if rate is None or ranks is None:
            raise click.UsageError("--flops needs --rate and --ranks")
        try:
            speed = parse_flops(rate)
        except ValueError as error:
            raise InputError(f"--rate: {error}") from error
        if not speed:
            raise InputError("--rate: got 0, expected more")
        return None, from_flops(ranks, parse_tokens("--flops", flops), speed)
    if tokens is None:
        raise click.UsageError("Missing option '--tokens'")
    wanted = parse_tokens("--tokens", tokens)
    if step_time is not None:
        if ranks is None or tokens_per_step is None:
            raise click.UsageError("--step-time needs --ranks and --tokens-per-step")
        seconds = parse_seconds("--step-time", step_time)
        return None, from_steps(ranks, seconds, parse_tokens("--tokens-per-step", tokens_per_step), wanted)
    # For the type checker: the test above leaves the study.
    assert study is not None
    with working("simulating"):
        step = simulate_step(study)
    if not step.tokens:
        raise InputError(f"--tokens: {study} is no generated training of sequences, so a step has no tokens")
    return step, from_steps(step.use.npus, step.use.seconds, step.tokens, wanted)


def _checkpoints(
    step: Step | None, given: str | None, size: str | None, bandwidth: str | None, pause: float | None
) -> Checkpoints:
    from armillary.base.units import parse_bandwidth, parse_bytes
    from armillary.explore.whole_run.goodput import Checkpoints
    from armillary.explore.whole_run.quantities import parse_seconds
    from armillary.explore.whole_run.run import STATE_BYTES

    if given is not None:
        seconds = parse_seconds("--checkpoint", given)
    else:
        try:
            # State per parameter: weights, and the optimizer's two moments and master copy.
            state = parse_bytes(size) if size else STATE_BYTES * (step.parameters or 0) if step else 0
            speed = parse_bandwidth(bandwidth) * 1e9 if bandwidth else 0.0
        except ValueError as error:
            raise InputError(f"--checkpoint-size, --checkpoint-bandwidth: {error}") from error
        if not state or not speed:
            raise click.UsageError(
                "--mtbf needs --checkpoint, or --checkpoint-bandwidth and --checkpoint-size (or a generated study)"
            )
        seconds = state / speed
    # A pause shorter than the writing: the rest is hidden behind work.
    return Checkpoints(seconds) if pause is None else Checkpoints(pause, max(seconds, 0.0))


def _money(run: WholeRun, step: Step | None, costs: Costs) -> dict[str, float]:
    """Return cost and energy of the run; without a study only the rent."""
    from armillary.explore.cost import measures_of

    hours = run.seconds / 3600
    if step is None:
        # Nothing is known of the machine but its rent.
        if costs.npu.rent is None:
            raise InputError("--costs: without a study only npu.rent is used, which these costs do not say")
        return {"run_cost": costs.npu.rent * run.npus * hours}
    found = measures_of(step.use, step.study.platform, costs)
    # Spare nodes cost, too: the machine is larger than the work.
    grown, known = run.npus / run.work.npus, {}
    if "price_per_hour" in found:
        known["run_cost"] = found["price_per_hour"] * grown * hours
    if "power" in found:
        known["run_energy"] = found["power"] * run.seconds
    return known
