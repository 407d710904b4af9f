"""`armillary calibrate training`: constants of training steps from measured ones."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import click
import yaml

from armillary.base.errors import InputError, nearest, one_of
from armillary.cli.calibrate import SUBCOMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import device_option
from armillary.cli.outputs import say
from armillary.cli.values import OUTPUT_FOLDER


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['training']}\n\nFILEs hold measured steps, in the formats that `armillary validate` reads.",
    examples=(
        "armillary calibrate training steps.csv --device h100-sxm",
        "armillary calibrate training steps.csv --software megatron-lm-2022 --out fitted",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option(
    "--software", default="", help="Fit only the rows of this software; by default all rows of a file."
)
@device_option("Treat all rows as measured on this GPU, e.g. h100-sxm.", default="")
@option(
    "-o",
    "--out",
    type=OUTPUT_FOLDER,
    metavar="DIR",
    help="Write the constants to SOFTWARE.yaml in this folder.",
)
def command(files: tuple[Path, ...], software: str, device: str, out: Path | None) -> None:
    """Fit, print and write."""
    from armillary.base.files import make_folder, write_text
    from armillary.base.reading import read_plain
    from armillary.evidence.calibrate.recipes import RECIPES
    from armillary.evidence.calibrate.training_files import calibrate
    from armillary.evidence.validate.training.formats import read_cases
    from armillary.evidence.validate.training.machines import MACHINES
    from armillary.evidence.validate.training.seen import digests
    from armillary.explore.training.fitted import ALL, stack_names
    from armillary.explore.training.software import software_plan

    cases = [case for path in files for case in read_cases(path)[1]]
    if device:
        # Any machine with that GPU: constants belong to the GPU.
        machines = {each.device: name for name, each in MACHINES.items()}
        if device not in machines:
            raise InputError(
                f"--device: got '{device}', expected {one_of(machines)}{nearest(device, machines)}"
            )
        # Rows without a model are refused later, with their own reason.
        cases = [replace(case, machine=machines[device]) if case.model else case for case in cases]
    stacks = dict.fromkeys(case.stack for case in cases)
    if software and software not in stacks:
        raise InputError(
            f"--software: got '{software}', expected {one_of(stacks)}{nearest(software, stacks)}"
        )
    for stack in [software] if software else stacks:
        recipe, mine = RECIPES[stack], [case for case in cases if case.stack == stack]
        say(f"{stack}: {len(mine)} rows, constants {', '.join(recipe.names)}")
        found = calibrate(mine, recipe, lambda text: say(f"  {text}"))
        plan = software_plan(stack) if stack in stack_names() else {}
        document = {
            "title": recipe.title,
            **({"base": recipe.base} if recipe.base else {}),
            **({"plan": plan} if plan and not recipe.base else {}),
            "script": "armillary calibrate training",
            "source": {path.name: hashlib.sha256(read_plain(path)).hexdigest() for path in files},
            "devices": {ALL: found.document()},
            "seen": digests(mine),
        }
        text = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)
        if out:
            make_folder(out)
            write_text(out / f"{stack}.yaml", text)
        else:
            click.echo(text)
