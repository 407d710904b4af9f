"""`armillary train`: how long a training step takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command, option
from armillary.cli.generate.plan_options import PlanOptions, plan_options
from armillary.cli.options import counted_machine_option, graph_option, html_option, json_option
from armillary.cli.outputs import say, show_table, working, write_html, write_json
from armillary.cli.values import OUTPUT_FOLDER, complete_models, complete_software

if TYPE_CHECKING:
    from armillary.explore.training.prediction import Prediction

_HELP = f"""{COMMANDS["train"]}

MODEL is a name of `armillary generate list`, a model file, or a Hugging Face config.json. Kernels and collectives use
measurements of the machine, and a software adds its measured overheads. Options that you omit are chosen and printed.
"""


def step_options(function: Any) -> Any:
    """Add the inputs of a prediction, MODEL, ``--machine``, ``--software`` and a plan, and ``--out``."""
    add_model = click.argument("name", metavar="MODEL", shell_complete=complete_models)
    add_software = option(
        "--software", metavar="NAME", shell_complete=complete_software, heading="Machine",
        help="Training software; by default the one that suits machine and plan.",
    )  # fmt: skip
    add_graph = graph_option()
    add_folder = option(
        "-o", "--out", "folder", type=OUTPUT_FOLDER, metavar="DIR",
        help="Write a study file of the plan (the best of several), and flags for Megatron-core and torchtitan.",
    )  # fmt: skip
    return add_model(
        counted_machine_option()(add_software(add_graph(plan_options("training")(add_folder(function)))))
    )


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary train llama-3-8b --machine dgx-h100 --batch 64 --sequence 8192",
        "armillary train llama-3-70b --machine 512xh100 --batch 512 --tp 4 --pp 4 --software megatron-core",
    ),
)
@step_options
@html_option()
@json_option("Write the result as JSON, in s and bytes.")
def command(
    name: str,
    machine: str,
    software: str | None,
    graph: str | None,
    options: PlanOptions,
    folder: Path | None,
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Predict and print."""
    from armillary.compute.machine import machine_of
    from armillary.explore.training.show import prediction_json
    from armillary.explore.training.train import predicted
    from armillary.workload.models import load_model

    model = load_model(name)
    with working("simulating"), options.keys() as keys:
        found = predicted(model, machine_of(machine), keys, software or "", graph or "")
    present(found)
    write_json(json_file, prediction_json(found))
    write_html(html, found)
    take_away(folder, found, name)


def present(found: Prediction) -> None:
    """Print a predicted step: time and memory first, then what was assumed, the plan, and what the step consists of."""
    from armillary.explore.training.prediction import headline, memory_text, plan_text
    from armillary.explore.training.show import parts_table

    click.echo(headline(found))
    say(f"Memory: {memory_text(found)}")
    for text in found.assumptions:
        say(f"Assumed: {text}")
    say(f"Plan: {plan_text(found.plan)}")
    click.echo(f"Most of it: {found.limits}\n")
    show_table(parts_table(found))


def take_away(folder: Path | None, found: Prediction, name: str) -> None:
    """Write the files of a prediction for a model of this name, if a folder is given."""
    if folder:
        from armillary.explore.training.takeaway import left_out, write

        for path in write(folder, found, name):
            say(f"wrote {path}", err=True)
        for file, why in left_out(found.plan).items():
            say(f"{file} is not written: {why}", err=True)
