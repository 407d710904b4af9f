"""`armillary plan serve`: which replicas serve a load within an objective, on the fewest devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from armillary.cli.command import Command, option
from armillary.cli.options import counted_machine_option, html_option, json_option, top_option
from armillary.cli.outputs import say, show_table, write_html, write_json
from armillary.cli.plan import SUBCOMMANDS
from armillary.cli.plan.search import Progress
from armillary.cli.serve import (
    ENGINE,
    LOAD,
    PRECISION,
    costs_option,
    engine_options,
    load_options,
    with_times,
)
from armillary.cli.values import complete_models, names, whole_numbers

_HELP = f"""{SUBCOMMANDS["serve"]}

MODEL, the load and the options of engines are those of `armillary serve`. Tried are replicas of 1, 2, 4 … devices that
share matrices, or, of a mixture of experts, ranks that share experts; as many of each as needed; and each two kinds,
one to compute prompts and one to decode; all this with each engine and precision. Other limits of a step are tried
where they could save devices.
"""


def _several(name: str, read: Callable[..., object], heading: str, text: str) -> Callable[[Any], Any]:
    """Return an option of which several values may be given."""
    metavar = "NAME,…" if read is names else "N,…"
    return option(name, metavar=metavar, callback=read, heading=heading, help=text)


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary plan serve llama-3.1-8b --machine 8xh100 --load poisson:rate=60,input=1024,output=128 "
        "--slo ttft=200ms,tpot=10ms",
        "armillary plan serve deepseek-v3 --machine 16xh200 --precision fp8 --scales block --engine sglang "
        "--load log.jsonl --slo ttft=1s,tpot=50ms --json -",
    ),
)
@click.argument("name", metavar="MODEL", shell_complete=complete_models)
@counted_machine_option()
@load_options
@option("--slo", required=True, metavar="LIMITS", heading=LOAD,
        help="What a good request meets, e.g. ttft=500ms,tpot=50ms; also e2e.")  # fmt: skip
@option("--share", default="90%", show_default=True, metavar="SHARE", heading=LOAD,
        help="Of the requests that must be good.")  # fmt: skip
@costs_option
@_several(
    "--precision", names, PRECISION, "Precisions of GEMMs to choose from; by default as published, else bf16."
)
@_several(
    "--engine",
    names,
    ENGINE,
    "Engines to choose from: vllm, sglang, trtllm; by default all whose kernels were measured on the device.",
)
@_several(
    "--budget",
    whole_numbers,
    ENGINE,
    "Most tokens per step to choose from; by default as for `serve`, and others if that saves devices.",
)
@_several(
    "--sequences",
    whole_numbers,
    ENGINE,
    "Most sequences that run at a time to choose from; by default likewise.",
)
@engine_options
@top_option("Replicas", 10, heading="Search")
@html_option()
@json_option("Write the result as JSON, in s and tokens.")
def command(
    name: str,
    machine: str,
    load: str,
    slo: str,
    share: str,
    costs: str | None,
    overhead: str | None,
    ingest: str | None,
    top: int,
    html: Path | None,
    json_file: Path | None,
    **options: object,
) -> None:
    """Search and print."""
    from armillary.base.errors import InputError
    from armillary.base.units import parse_percent
    from armillary.explore.deploy.choose import plan_serving
    from armillary.explore.deploy.flags import launch
    from armillary.explore.deploy.show import deployments_json, reasons, tried_table
    from armillary.serving.result import interval_text, load_text

    try:
        least = parse_percent(share)
    except ValueError as error:
        raise InputError(f"--share: {error}") from None
    known = None
    if costs:
        from armillary.explore.cost import load_costs

        known = load_costs(costs)
    found = plan_serving(
        name,
        machine,
        load,
        slo=slo,
        share=least,
        progress=Progress(),
        **with_times(options, overhead, ingest),
    )
    click.echo(found.headline)
    if text := interval_text(found.best.served):
        click.echo(text)
    for text in found.assumptions:
        say(f"Assumed: {text}")
    say(f"Load: {load_text(found.best.served)}")
    click.echo(
        f"\n{len(found.tried)} tried; *: none that is enough gives more tokens/s per device and more per user at once"
    )
    bills = None
    if known:
        from armillary.explore.deploy.cost import bill

        bills = [bill(each.served, known) for each in found.tried]
    show_table(tried_table(found, top, bills))
    for text in bills[0].notes if bills else ():
        say(text)
    for kinds, why in reasons(found):
        say(f"Not {', '.join(kinds)}: {why}")
    click.echo("\nHow to start it:")
    for text in launch(found.best.service):
        click.echo(text)
    write_json(json_file, deployments_json(found, bills))
    write_html(html, found)
