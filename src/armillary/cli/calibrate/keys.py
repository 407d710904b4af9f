"""`armillary calibrate keys`: fitted constants of training software as keys of a study."""

from __future__ import annotations

import click

from armillary.cli.calibrate import SUBCOMMANDS
from armillary.cli.command import Command
from armillary.cli.options import device_option
from armillary.cli.values import complete_software

_HELP = f"""{SUBCOMMANDS["keys"]}

SOFTWARE is a name such as megatron-lm-2022, or a file that `armillary calibrate training --out` wrote. Put the printed
keys into a study, next to its network and its model.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary calibrate keys megatron-lm-2022 --device a100-sxm-80",
        "armillary calibrate keys fitted/megatron-lm-2022.yaml --device h100-sxm",
    ),
)
@click.argument("software", shell_complete=complete_software)
@device_option("The GPU, e.g. h100-sxm.", required=True)
def command(software: str, device: str) -> None:
    """Print YAML."""
    import yaml

    from armillary.evidence.calibrate.study_keys import study_keys

    text = yaml.safe_dump(study_keys(software, device), sort_keys=False, width=110, allow_unicode=True)
    click.echo(text, nl=False)
