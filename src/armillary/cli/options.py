"""Options that several commands have: what means the same is called the same, and is declared here once.

`tests/cli/test_names.py` holds every command to it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from armillary.cli.command import option
from armillary.cli.output_file import OUTPUT, PAGE, PICTURE, OneOf, complete_devices, complete_machines

Decorator = Callable[[Any], Any]
OTHER_NAMES = {
    "output": "--out",
    "write": "--out",
    "folder": "--out",
    "report": "--json",
    "picture": "--plot",
    "png": "--plot",
    "draw": "--plot",
    "figure": "--plot",
    "page": "--html",
    "on": "--machine",
    "study": "--machine",
    "platform": "--machine",
    "preset": "--machine",
    "npus": "--ranks",
    "nproc": "--ranks",
    "members": "--ranks",
    "worldsize": "--ranks",
    "n": "--ranks",
    "gpus": "--gpus-per-node",
    "jobs": "--workers",
    "processes": "--workers",
    "threads": "--workers",
    "groups": "--comm-groups",
    "recomputation": "--recompute",
    "base": "--device",
}
"""What others, and earlier versions, call an option, without hyphens -> its one name; no command has the others."""
MACHINE = "Machine"
WORKLOAD = "Workload"
IMAGE = "(.png, .svg or .pdf)"

network_model_option: Decorator = option(
    "--network-model",
    type=OneOf("armillary.platform.network:NETWORK_MODELS"),
    heading=MACHINE,
    help="How messages share links; by default what the study says, else analytical, or flow where the network is a "
    "graph.",
)
comm_groups_option: Decorator = option(
    "--comm-groups", type=click.Path(path_type=Path), metavar="JSON", heading=WORKLOAD,
    help="Communicator groups that the trace does not define, as ASTRA-sim lists them.",
)  # fmt: skip
csv_option: Decorator = option(
    "--csv", type=OUTPUT, metavar="FILE", help="Write all rows as a table, measures in base units."
)


def programs_option(function: Any) -> Any:
    """Add ``--allow-programs``, to each command that reads studies: without, none of their programs is started."""

    def consent(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        from armillary.base.allowed import allow

        # For this command and its workers only.
        if wanted and not ctx.resilient_parsing:
            ctx.with_resource(allow(programs=True))

    return option(
        "--allow-programs", is_flag=True, expose_value=False, callback=consent, heading=MACHINE,
        help="Let files start the programs that they name, as compute model subprocess does.",
    )(function)  # fmt: skip


def json_option(text: str = "Write the same as JSON.") -> Decorator:
    """Add ``--json``; the command receives ``json_file``."""
    return option("--json", "json_file", type=OUTPUT, metavar="FILE", help=text)


def plot_option(what: str) -> Decorator:
    """Add ``--plot``, which draws `what`."""
    return option("--plot", type=PICTURE, metavar="FILE", help=f"Draw {what} {IMAGE}.")


def html_option(text: str = "Write one interactive page.", page: Any = PAGE) -> Decorator:
    """Add ``--html``, a page with whatever `page` needs to be installed."""
    return option("--html", type=page, metavar="FILE", help=text)


def machine_option(text: str, **extra: Any) -> Decorator:
    """Add ``--machine``: a study or platform file, or a preset."""
    machine = option(
        "--machine", metavar="FILE|PRESET", shell_complete=complete_machines, heading=MACHINE, help=text,
        **extra,
    )  # fmt: skip
    return lambda function: machine(programs_option(function))


def counted_machine_option() -> Decorator:
    """Add ``--machine``, which is needed: a machine of any size."""
    text = "A preset, which may be counted (64xdgx-h100, 4xgb200-nvl72, 512xh100), or a platform file."
    return machine_option(text, required=True)


def machine_argument(name: str = "machine", *, required: bool = True) -> Decorator:
    """Add the argument MACHINE: a study or platform file, or a preset."""
    metavar = "MACHINE" if required else "[MACHINE]"
    machine = click.argument(name, metavar=metavar, required=required, shell_complete=complete_machines)
    return lambda function: machine(programs_option(function))


def device_option(text: str, metavar: str = "NAME", **extra: Any) -> Decorator:
    """Add ``--device``: a GPU that is known by name, or a file of one."""
    return option("--device", metavar=metavar, shell_complete=complete_devices, help=text, **extra)


def astra_sim_options(function: Any) -> Any:
    """Add ``--system`` and ``--network``: ASTRA-sim's files of a machine, which go together."""
    path = click.Path(path_type=Path)
    add_system = option("--system", type=path, metavar="JSON", heading=MACHINE, help="ASTRA-sim system file.")
    add_network = option(
        "--network", type=path, metavar="YAML", heading=MACHINE, help="ASTRA-sim network file."
    )
    return add_system(add_network(function))


def profile_option(text: str = "Simulation semantics.") -> Decorator:
    """Add ``--profile``."""
    return option("--profile", type=click.Choice(("astra-sim", "physical")), heading=MACHINE, help=text)


def ranks_option(text: str, **extra: Any) -> Decorator:
    """Add ``--ranks``: how many NPUs, of which each has a rank."""
    # By default the number of cores.
    return option("--ranks", type=click.IntRange(extra.pop("least", 1)), metavar="N", help=text, **extra)


def workers_option(text: str = "Processes.", *, default: int | None = 1, **extra: Any) -> Decorator:
    """Add ``--workers``; None as the default is one for each core."""
    return option(
        "--workers", type=click.IntRange(1), default=default, show_default=default is not None, metavar="N",
        help=text, **extra,
    )  # fmt: skip


def seed_option(text: str = "Random seed.", **extra: Any) -> Decorator:
    """Add ``--seed``."""
    return option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N", help=text, **extra)


def top_option(what: str, default: int, least: int = 1, **extra: Any) -> Decorator:
    """Add ``--top``."""
    return option(
        "--top", type=click.IntRange(least), default=default, show_default=True, metavar="N",
        help=f"{what} to show.", **extra,
    )  # fmt: skip
