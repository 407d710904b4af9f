"""`armillary serve`: what requests wait for when a model answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from armillary.cli import COMMANDS
from armillary.cli.command import FILES, Command, option
from armillary.cli.options import counted_machine_option, html_option, json_option, seed_option
from armillary.cli.outputs import say, show_table, working, write_html, write_json
from armillary.cli.values import complete_costs, complete_models

_HELP = f"""{COMMANDS["serve"]}

MODEL is a name that `armillary generate list` prints, a model file, or a Hugging Face config.json. A load is either
drawn at random, e.g. poisson:rate=4,requests=500,input=1024,output=256 (also gamma, constant, closed, sessions), or
replayed from a log: JSON lines with arrival_s, input_tokens and output_tokens, or a log of Mooncake, vLLM, Azure or
BurstGPT.
"""
LOAD, REPLICA, PRECISION, ENGINE, CACHE = "Load", "Replica", "Precision", "Engine", "KV cache"


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what adds several options, in their order."""

    def add(function: Any) -> Any:
        for each in reversed(options):
            function = each(function)
        return function

    return add


load_options = _together(
    option(
        "--load",
        required=True,
        metavar="SPEC|FILE",
        heading=LOAD,
        help="The requests: a specification as above, or a log.",
    ),
    option("--first", type=click.IntRange(1), heading=LOAD, help="Serve only the first N requests."),
    option(
        "--speed",
        type=float,
        default=1.0,
        show_default=True,
        heading=LOAD,
        help="Divide the time between requests by X.",
    ),
    seed_option(default=0, show_default=True, heading=LOAD),
)
"""What comes; ``--slo`` is required by some."""
_chosen_options = _together(
    option(
        "--precision",
        metavar="NAME",
        heading=PRECISION,
        help="Precision of GEMMs; by default as published, else bf16.",
    ),
    option(
        "--engine",
        default="vllm",
        show_default=True,
        metavar="NAME",
        heading=ENGINE,
        help="Whose scheduler and kernels: vllm, sglang, trtllm.",
    ),
    option(
        "--budget",
        type=int,
        heading=ENGINE,
        help="Most tokens per step; by default 8192, or 2048 on devices with less than 70 GiB.",
    ),
    option(
        "--sequences",
        type=int,
        heading=ENGINE,
        help="Most sequences that run at a time; by default 1024, or 256 on such devices.",
    ),
)
"""What `armillary plan serve` chooses of several, and this command has one of."""
engine_options = _together(
    option(
        "--scales",
        metavar="KIND",
        heading=PRECISION,
        help="Granularity of fp8 scales: tensor, or block (128 x 128); by default as published, else tensor.",
    ),
    option(
        "--experts",
        metavar="NAME",
        heading=PRECISION,
        help="Precision of stored experts: bf16, fp8, fp4 (NVFP4), mxfp4, int4; by default as published or as GEMMs.",
    ),
    option(
        "--weight-precision",
        metavar="NAME",
        heading=PRECISION,
        help="Precision of stored weights; by default as published, else that of GEMMs.",
    ),
    option("--cache-precision", metavar="NAME", heading=CACHE, help="Precision of keys and values."),
    option(
        "--router",
        default="round-robin",
        show_default=True,
        metavar="NAME",
        heading=REPLICA,
        help="How requests are assigned to replicas: round-robin; least-loaded (fewest requests); prefix (most of the "
        "prompt cached); session (same replica as the requests it follows).",
    ),
    option(
        "--block",
        type=int,
        default=16,
        show_default=True,
        heading=CACHE,
        help="Tokens per block of the KV cache.",
    ),
    option(
        "--memory",
        type=float,
        heading=CACHE,
        help="Share of device memory: for everything in vLLM, for weights and cache in SGLang; in TensorRT-LLM, the "
        "cache's share of what weights and a step leave; by default 0.9, or by SGLang's rule.",
    ),
    option(
        "--graphs",
        type=int,
        heading=ENGINE,
        help="Tokens of the largest CUDA graph; the CPU launches each kernel of larger steps; by default 512.",
    ),
    option(
        "--poll",
        type=int,
        default=1,
        show_default=True,
        heading=ENGINE,
        help="Check for new requests every N steps without prompts (SGLang).",
    ),
    option(
        "--balance",
        type=int,
        default=0,
        show_default=True,
        heading=ENGINE,
        help="Let prompts wait up to N steps until each dp rank has one (TensorRT-LLM).",
    ),
    option(
        "--drafts",
        type=int,
        default=0,
        show_default=True,
        metavar="K",
        heading=ENGINE,
        help="Draft K tokens before each step, which verifies them (MTP, EAGLE).",
    ),
    option(
        "--accepted",
        type=float,
        metavar="TOKENS",
        heading=ENGINE,
        help="Mean tokens that such a step yields, from 1 to K + 1; by default as measured for the model.",
    ),
    option(
        "--cached/--no-cached",
        default=True,
        show_default=True,
        heading=CACHE,
        help="Cache blocks for requests with a common prefix.",
    ),
    option(
        "--ahead/--no-ahead",
        default=True,
        show_default=True,
        heading=ENGINE,
        help="Schedule a step while the previous one runs.",
    ),
    option(
        "--overhead",
        metavar="TIME",
        heading=ENGINE,
        help="Time per step besides kernels, e.g. 300us; by default 126us plus 4.42us per sequence.",
    ),
    option(
        "--ingest",
        metavar="TIME",
        heading=ENGINE,
        help="Time from arrival to queue, e.g. 2ms; by default as measured, longer for longer prompts.",
    ),
)
"""How engines run, and how requests find a replica."""
costs_option = option(
    "--costs",
    metavar="COSTS",
    heading=LOAD,
    shell_complete=complete_costs,
    help="Prices and energies, as for `plan cost`: a file or a preset.",
)


def with_times(options: Mapping[str, object], overhead: str | None, ingest: str | None) -> dict[str, Any]:
    """Return options with those that are times, in ns.

    Raises:
        InputError: one is no time.
    """
    from armillary.base.errors import InputError
    from armillary.base.units import parse_time

    found: dict[str, Any] = {**options}
    for key, text in (("overhead", overhead), ("ingest", ingest)):
        try:
            if text is not None:
                found[f"{key}_ns"] = round(parse_time(text))
        except ValueError as error:
            raise InputError(f"--{key}: {error}") from None
    return found


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary serve llama-3.1-8b --machine 1xh100 --load poisson:rate=4,requests=500,input=1024,output=256",
        "armillary serve llama-3.1-70b --machine 8xh100 --tp 4 --load log.jsonl --slo ttft=500ms,tpot=50ms --json -",
    ),
)
@click.argument("name", metavar="MODEL", shell_complete=complete_models)
@counted_machine_option()
@load_options
@option("--tp", type=int, heading=REPLICA, help="Devices per replica; by default the whole machine.")
@option("--pp", type=int, default=1, show_default=True, heading=REPLICA,
        help="Pipeline stages per replica, of --tp devices each.")  # fmt: skip
@option("--dp", type=int, default=1, show_default=True, heading=REPLICA,
        help="Ranks of a replica that have requests of their own and share its experts.")  # fmt: skip
@option("--replicas", type=int, heading=REPLICA,
        help="Number of replicas, on as many machines as they need.")  # fmt: skip
@_chosen_options
@engine_options
@option("--attention-precision", metavar="NAME", heading=PRECISION,
        help="Precision of projections of attention, where left wider; by default as GEMMs.")  # fmt: skip
@option("--fused/--unfused", default=None, heading=ENGINE,
        help="Whether an all-reduce includes the norm after it; by default as usual for the engine.")  # fmt: skip
@option("--expert-kernels", metavar="NAME", heading=ENGINE,
        help="Kernels of experts where several were measured: triton, deepgemm, tuned; else the "
        "engine's.")  # fmt: skip
@option("--lora", type=int, default=0, show_default=True, metavar="N", heading=ENGINE,
        help="Low-rank adapters that requests choose among, all on the device.")  # fmt: skip
@option("--lora-rank", type=int, metavar="R", heading=ENGINE, help="Rank of each adapter; by default 16.")
@option("--prefill-replicas", type=int, default=0, metavar="X", heading=REPLICA,
        help="Replicas for prompts only; they send keys and values to decode replicas.")  # fmt: skip
@option(
    "--decode-replicas", type=int, default=0, metavar="Y", heading=REPLICA, help="Replicas for decoding only."
)
@option("--prefill-tp", type=int, heading=REPLICA, help="Devices per prefill replica; by default --tp.")
@option("--prefill-dp", type=int, heading=REPLICA, help="Ranks per prefill replica; by default --dp.")
@option("--ep", type=int, default=1, show_default=True, heading=REPLICA,
        help="Devices among which whole experts are divided: 1, or all of a replica.")  # fmt: skip
@option("--expert-counts", "counts", metavar="FILE", heading=REPLICA,
        help="CSV with columns layer, expert, count: how often each was chosen; by default skewed.")  # fmt: skip
@option("--redundant", type=int, default=0, heading=REPLICA,
        help="Extra copies of popular experts, placed to balance devices (EPLB).")  # fmt: skip
@option(
    "--blocks",
    type=int,
    heading=CACHE,
    help="Cache blocks per replica; by default as many as fit into memory.",
)
@option(
    "--fail",
    default="",
    metavar="SPEC",
    heading=REPLICA,
    help="Let replicas fail, e.g. mtbf=24h,repair=10min; their requests are recomputed.",
)
@option(
    "--scale",
    default="",
    metavar="SPEC",
    heading=REPLICA,
    help="Start and stop replicas, up to --replicas: target=32,min=1,start=60s,every=15s,hold=5min.",
)
@option(
    "--kv-host",
    default="",
    metavar="SIZE",
    heading=CACHE,
    help="Host memory per replica for blocks evicted from its devices, e.g. 200GiB.",
)
@option(
    "--kv-host-rate",
    default="",
    metavar="RATE",
    heading=CACHE,
    help="Bandwidth from host memory to each device, e.g. 25GB/s; by default 50 GB/s.",
)
@option(
    "--kv-ssd",
    default="",
    metavar="SIZE",
    heading=CACHE,
    help="Disk space per replica for blocks evicted from host memory, or without it from the devices.",
)
@option(
    "--kv-ssd-rate",
    default="",
    metavar="RATE",
    heading=CACHE,
    help="Bandwidth from disk to each replica; by default 10 GB/s.",
)
@option(
    "--slo",
    metavar="LIMITS",
    heading=LOAD,
    help="Limits that a good request meets, e.g. ttft=500ms,tpot=50ms; also e2e.",
)
@option("--find-rate", "share", metavar="SHARE", heading=LOAD,
        help="Find the highest rate at which this share of requests, e.g. 90%, meets --slo.")  # fmt: skip
@costs_option
@option("--requests", "each", is_flag=True, heading=FILES, help="List every request in the JSON file.")
@html_option()
@json_option("Write the same as JSON, in s and tokens.")
def command(
    name: str,
    machine: str,
    load: str,
    overhead: str | None,
    ingest: str | None,
    slo: str | None,
    share: str | None,
    speed: float,
    costs: str | None,
    each: bool,
    html: Path | None,
    json_file: Path | None,
    **options: object,
) -> None:
    """Serve and print."""
    from armillary.base.errors import InputError
    from armillary.base.units import parse_percent
    from armillary.serving.result import engine_lines, headline, interval_text, load_text, rate_text, use_text
    from armillary.serving.serve import find_rate, serve
    from armillary.serving.show import metrics_table, serving_json, waits_table

    if costs:
        from armillary.explore.cost import load_costs

        # Read before the load is served: a typo should not cost its time.
        known = load_costs(costs)

    if each and not json_file:
        raise click.UsageError("--requests lists them in the file of --json, which is missing")
    if share and speed != 1:
        raise click.UsageError("--find-rate finds what --speed would say: expected one of them")
    given = with_times(options, overhead, ingest)
    with working("serving"):
        if share:
            try:
                least = parse_percent(share)
            except ValueError as error:
                raise InputError(f"--find-rate: {error}") from None
            found = find_rate(name, machine, load, slo=slo or "", share=least, **given)
        else:
            found = serve(name, machine, load, slo=slo or "", speed=speed, **given)
    click.echo(headline(found))
    if share:
        click.echo(rate_text(found))
    if text := interval_text(found):
        click.echo(text)
    for text in found.service.assumptions:
        say(f"Assumed: {text}")
    say(f"Load: {load_text(found)}")
    for text in engine_lines(found):
        say(text)
    say(use_text(found))
    result = serving_json(found, requests=each)
    if costs:
        from armillary.explore.deploy.cost import bill

        cost = bill(found, known)
        say(f"Cost: {cost.text}")
        for text in cost.notes:
            say(text)
        result["cost"] = cost.json()
    click.echo()
    show_table(metrics_table(found))
    click.echo("\nWhere the time of a request goes, on average:")
    show_table(waits_table(found))
    write_json(json_file, result)
    write_html(html, found)
