"""`armillary whole-run`: days, NPU years, energy and money of a training run, with failures and checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.base.errors import InputError
from armillary.cli import COMMANDS
from armillary.cli.output_file import OUTPUT, PICTURE
from armillary.cli.outputs import show_table, working

if TYPE_CHECKING:
    from armillary.explore.cost.schema import Costs
    from armillary.explore.cost.step import Step
    from armillary.explore.whole_run.goodput import Checkpoints
    from armillary.explore.whole_run.run import WholeRun, Work

_PATH = click.Path(path_type=Path)
_HELP = f"""{COMMANDS["whole-run"]}

The work is either STUDY, which is simulated, with --tokens; or --step-time, --tokens-per-step, --npus and --tokens; or
--flops, --rate and --npus. With --mtbf things fail: a preset (llama-3), a file, or the mean time between failures of
one NPU ("50000 h").
"""


@click.command(help=_HELP)
@click.argument("study", type=_PATH, required=False)
@click.option("--tokens", metavar="COUNT", help="Of the whole run, e.g. 15.6T.")
@click.option("--step-time", metavar="TIME", help="Of a step, instead of a study.")
@click.option("--tokens-per-step", metavar="COUNT", help="With --step-time, e.g. 16M.")
@click.option("--npus", type=click.IntRange(1), metavar="N", help="Without a study.")
@click.option("--flops", metavar="COUNT", help="Operations of the whole run instead, e.g. 3.14e23.")
@click.option("--rate", metavar="FLOPS", help='With --flops: what an NPU does, e.g. "28 TFLOP/s".')
@click.option("--mtbf", metavar="FAILURES", help="Preset, file or time.")
@click.option("--checkpoint", metavar="TIME", help="How long a checkpoint stops work; else from its size.")
@click.option(
    "--checkpoint-size", metavar="SIZE", help="With a study: 14 bytes for each parameter if absent."
)
@click.option("--checkpoint-bandwidth", metavar="BANDWIDTH", help='Of the storage, e.g. "2 TB/s".')
@click.option(
    "--asynchronous", metavar="TIME", help="Work stops for so long only; the rest is written later."
)
@click.option("--interval", metavar="TIME", help="Of work between checkpoints; the best one if absent.")
@click.option("--restart", metavar="TIME", default="5 min", show_default=True, help="From failure to work.")
@click.option("--spares", type=click.IntRange(0), metavar="N", help="Spare nodes; no limit if absent.")
@click.option(
    "--repair", metavar="TIME", default="1 day", show_default=True, help="Of a node, with --spares."
)
@click.option("--costs", metavar="COSTS", help="Prices and energies: a file, or a preset.")
@click.option(
    "--play", "seed", type=click.IntRange(0), metavar="SEED", help="Play 30 runs of 1,000 failures, too."
)
@click.option(
    "--plot",
    type=PICTURE,
    metavar="FILE",
    help="Draw goodput against NPUs and interval (.png, .svg or .pdf).",
)
@click.option("--json", "as_json", type=OUTPUT, metavar="FILE", help="Write the same as JSON.")
def command(
    study: Path | None,
    tokens: str | None,
    step_time: str | None,
    tokens_per_step: str | None,
    npus: int | None,
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
    seed: int | None,
    plot: Path | None,
    as_json: Path | None,
) -> None:
    """Sum up and print."""
    from armillary.base.files import write_text
    from armillary.explore.cost import load_costs
    from armillary.explore.whole_run import show
    from armillary.explore.whole_run.failures import load_failures
    from armillary.explore.whole_run.goodput import Checkpoints, Recovery
    from armillary.explore.whole_run.monte_carlo import play
    from armillary.explore.whole_run.quantities import parse_seconds
    from armillary.explore.whole_run.run import whole_run
    from armillary.report.memory_fit import memory_fit
    from armillary.report.summary import first_lines

    if (plot or seed is not None) and not mtbf:
        raise click.UsageError("--plot and --play need --mtbf")
    known = load_costs(costs) if costs else None
    failures = load_failures(mtbf) if mtbf else None
    pause = parse_seconds("--asynchronous", asynchronous) if asynchronous else None
    step, work = _work(study, tokens, step_time, tokens_per_step, npus, flops, rate)
    stops = Checkpoints(0.0)
    if failures:
        stops = _checkpoints(step, checkpoint, checkpoint_size, checkpoint_bandwidth, pause)
    recovery = Recovery(parse_seconds("--restart", restart), spares, parse_seconds("--repair", repair))
    between = parse_seconds("--interval", interval) if interval is not None else None
    if between == 0:
        raise InputError(
            f"--interval: got '{interval}', expected more than 0, or no interval for the best one"
        )
    run = whole_run(work, failures, stops, recovery, between)
    money = _money(run, step, known) if known else {}
    for line in first_lines(step.timeline) if step else ():
        click.echo(line)
    show_table(show.run_table(run, failures, money))
    if failures:
        played = None
        if seed is not None and run.goodput.useful:
            with working("playing"):
                played = play(run.rate, run.interval, run.checkpoints, run.recovery, seed=seed)
        click.echo()
        show_table(show.bar_table(run, played))
    if plot and failures:
        show.draw(run, failures, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        described = show.describe(run, failures, money)
        described |= {"memory": memory_fit(step.timeline)} if step else {}
        write_text(as_json, json.dumps(described, indent=2) + "\n")
        click.echo(f"wrote {as_json}", err=True)


def _work(
    study: Path | None,
    tokens: str | None,
    step_time: str | None,
    tokens_per_step: str | None,
    npus: int | None,
    flops: str | None,
    rate: str | None,
) -> tuple[Step | None, Work]:
    from armillary.base.units import parse_flops
    from armillary.explore.cost.step import simulate_step
    from armillary.explore.whole_run.quantities import parse_seconds, parse_tokens
    from armillary.explore.whole_run.run import from_flops, from_steps

    if sum(each is not None for each in (study, step_time, flops)) != 1:
        raise click.UsageError("expected one of STUDY, --step-time and --flops")
    if flops is not None:
        if rate is None or npus is None:
            raise click.UsageError("--flops needs --rate and --npus")
        try:
            speed = parse_flops(rate)
        except ValueError as error:
            raise InputError(f"--rate: {error}") from error
        if not speed:
            raise InputError("--rate: got 0, expected more")
        return None, from_flops(npus, parse_tokens("--flops", flops), speed)
    if tokens is None:
        raise click.UsageError("Missing option '--tokens'")
    wanted = parse_tokens("--tokens", tokens)
    if step_time is not None:
        if npus is None or tokens_per_step is None:
            raise click.UsageError("--step-time needs --npus and --tokens-per-step")
        seconds = parse_seconds("--step-time", step_time)
        return None, from_steps(npus, seconds, parse_tokens("--tokens-per-step", tokens_per_step), wanted)
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
            state = parse_bytes(size) if size else STATE_BYTES * (step.parameters or 0) if step else 0
            speed = parse_bandwidth(bandwidth) * 1e9 if bandwidth else 0.0
        except ValueError as error:
            raise InputError(f"--checkpoint-size, --checkpoint-bandwidth: {error}") from error
        if not state or not speed:
            raise click.UsageError(
                "--mtbf needs --checkpoint, or --checkpoint-bandwidth and --checkpoint-size (or a generated study)"
            )
        seconds = state / speed
    return Checkpoints(seconds) if pause is None else Checkpoints(pause, max(seconds, 0.0))


def _money(run: WholeRun, step: Step | None, costs: Costs) -> dict[str, float]:
    """Return cost and energy of the run; of a machine that nothing is known of only its rent."""
    from armillary.explore.cost import measures_of

    hours = run.seconds / 3600
    if step is None:
        if costs.npu.rent is None:
            raise InputError("--costs: without a study only npu.rent is used, which these costs do not say")
        return {"run_cost": costs.npu.rent * run.npus * hours}
    found = measures_of(step.use, step.study.platform, costs)
    grown, known = run.npus / run.work.npus, {}
    if "price_per_hour" in found:
        known["run_cost"] = found["price_per_hour"] * grown * hours
    if "power" in found:
        known["run_energy"] = found["power"] * run.seconds
    return known
