"""`armillary calibrate keys`: fitted constants of training software as keys of a study."""

from __future__ import annotations

import click

from armillary.cli.calibrate import SUBCOMMANDS

_HELP = f"""{SUBCOMMANDS["keys"]}

SOFTWARE is a name such as megatron-2022, or a file that `armillary calibrate training --output` wrote. Put what is
printed into a study, beside its network and its model.
"""


@click.command(help=_HELP)
@click.argument("software")
@click.option("--device", required=True, help="The GPU, e.g. h100-sxm.")
def command(software: str, device: str) -> None:
    """Print YAML."""
    import yaml

    from armillary.evidence.calibrate.study_keys import study_keys

    text = yaml.safe_dump(study_keys(software, device), sort_keys=False, width=110, allow_unicode=True)
    click.echo(text, nl=False)
