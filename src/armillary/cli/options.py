"""Options shared by several commands: each meaning has one name, and is declared here once.

`tests/cli/test_names.py` holds every command to it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from armillary.cli.command import option
from armillary.cli.values import OUTPUT, PAGE, PICTURE, complete_devices, complete_machines

if TYPE_CHECKING:
    from armillary.base.extension import ExtensionPoint
    from armillary.engine.common.timeline import Timeline
    from armillary.explore.term_costs import TermCosts
    from armillary.platform.model import Platform
    from armillary.trace import Trace

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


class OneOf(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """One of the names of an extension point; looks for other packages only where it has to list them all."""

    name = "name"

    def __init__(self, where: str, *more: str) -> None:
        """Take "module:attribute" of the point: its module is imported when it is asked for; and names besides."""
        # A text, not the object: help and completion must not import the engine.
        self.where, self.more = where, more

    @property
    def point(self) -> ExtensionPoint:
        """The extension point."""
        module, _, attribute = self.where.partition(":")
        found: ExtensionPoint = getattr(importlib.import_module(module), attribute)
        return found

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the names as `click.Choice` shows them."""
        return f"[{'|'.join([*self.point, *self.more])}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a name that is none."""
        from armillary.platform.limits import Choice

        if value not in self.more and (problem := Choice(self.point)(value)):
            self.fail(problem, param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        return [CompletionItem(name) for name in (*self.point, *self.more) if name.startswith(incomplete)]


def network_model(usual: str) -> Decorator:
    """Return the option of the network model; `usual` describes its default."""
    where = OneOf("armillary.platform.network:NETWORK_MODELS")
    text = f"How messages share links; by default {usual}."
    return option("--network-model", type=where, heading=MACHINE, help=text)


network_model_option = network_model(
    "what the study says, else analytical, or flow where the network is a graph"
)
comm_groups_option: Decorator = option(
    "--comm-groups", type=click.Path(path_type=Path), metavar="JSON", heading=WORKLOAD,
    help="Communicator groups that the trace does not define, in ASTRA-sim's format.",
)  # fmt: skip
csv_option: Decorator = option(
    "--csv", type=OUTPUT, metavar="FILE", help="Write all rows as a table, in base units."
)


def consented(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Allow only this command and its workers to start programs."""
    from armillary.base.allowed import allow

    if wanted and not ctx.resilient_parsing:
        ctx.with_resource(allow(programs=True))


def programs_option(function: Any) -> Any:
    """Add ``--allow-programs`` to a command that reads studies; without it, none of their programs is started."""
    return option(
        "--allow-programs", is_flag=True, expose_value=False, callback=consented, heading=MACHINE,
        help="Allow files to start the programs that they name, as compute model subprocess does.",
    )(function)  # fmt: skip


out_option: Decorator = option(
    "-o",
    "--out",
    required=True,
    type=OUTPUT,
    metavar="OUT",
    help="The file to write, or the prefix of files.",
)


def json_option(text: str = "Write the result as JSON.") -> Decorator:
    """Add ``--json``; the command receives ``json_file``."""
    return option("--json", "json_file", type=OUTPUT, metavar="FILE", help=text)


def plot_option(what: str) -> Decorator:
    """Add ``--plot``, which draws `what`."""
    return option("--plot", type=PICTURE, metavar="FILE", help=f"Draw {what} {IMAGE}.")


def html_option(text: str = "Write one page that shows everything.", page: Any = PAGE) -> Decorator:
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
    """Add a required ``--machine``: a machine of any size."""
    text = "A preset, which may be counted (64xdgx-h100, 4xgb200-nvl72, 512xh100), or a platform file."
    return machine_option(text, required=True)


def graph_option(heading: str = MACHINE) -> Decorator:
    """Add ``--graph``: how a network that is a graph is taken."""
    return option(
        "--graph", type=click.Choice(("messages", "levels")), heading=heading,
        help="How a network that is a graph is taken: every message moves, or by levels, which is approximate; by "
        "default by levels above 32 devices.",
    )  # fmt: skip


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
    """Add ``--ranks``: the number of NPUs, with one rank each."""
    # By default the number of cores.
    return option("--ranks", type=click.IntRange(extra.pop("least", 1)), metavar="N", help=text, **extra)


def workers_option(text: str = "Number of processes.", *, default: int | None = 1, **extra: Any) -> Decorator:
    """Add ``--workers``; a default of None is one per core."""
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


efficiency_option: Decorator = option(
    "--efficiency",
    metavar="PERCENT",
    heading=MACHINE,
    help="Share of peak compute and memory bandwidth that kernels reach, e.g. 45; overrides the machine (physical).",
)


def with_efficiency(platform: Platform, percent: str | None, trace: Trace | None = None) -> Platform:
    """Return a platform on which kernels reach this share of the peaks; None: the platform's own share.

    Args:
        platform: The machine.
        percent: The option.
        trace: What runs, where it is known: nodes without a time are timed by the roofline model, too.

    Raises:
        InputError: it is no percentage above 0, or compute nodes are not timed by the roofline model.
    """
    if percent is None:
        return platform
    from armillary.base.errors import InputError
    from armillary.base.units import parse_percent
    from armillary.engine.common.nodes import untimed

    try:
        # "45" and "45 %" are both taken.
        share = parse_percent(percent if percent.rstrip().endswith("%") else f"{percent} %")
    except ValueError:
        # 0 is refused below, with the same message.
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"--efficiency '{percent}': expected a percentage above 0, up to 100, e.g. 45")
    # 0.45 is written for 45 % as often as for 0.45 %; the answer would be a hundred times off.
    if share < 0.01 and not percent.rstrip().endswith("%"):
        raise InputError(
            f"--efficiency '{percent}': a share or a percentage? Expected '{10000 * share:g} %' or '{100 * share:g} %'"
        )
    # Nodes without a recorded time need a model, even if the machine names none.
    if not platform.compute.model and not any(
        untimed(graph).any() for graph in (trace.graphs if trace else ())
    ):
        raise InputError(
            "--efficiency: compute nodes take their recorded times, expected a machine with compute.roofline: true"
        )
    # Both, as one number is given. Kernels of a device that was measured give way: an efficiency is one of a roofline.
    kernels, model = replace(platform.compute.kernels, compute=share, memory=share), platform.compute.model
    chosen = replace(platform.compute, kernels=kernels)
    if model == "gpu":
        chosen = replace(chosen, model="roofline", options={})
    return replace(platform, compute=chosen)


def terms_options(function: Any) -> Any:
    """Add ``--no-terms`` and ``--term-costs`` to a command."""
    none = option(
        "--no-terms", is_flag=True, heading=MACHINE, help="Switch off platform.terms, for comparison."
    )
    costs = option(
        "--term-costs", is_flag=True, heading=MACHINE, help="Show the cost of each of platform.terms."
    )
    return none(costs(function))


def chosen_terms(platform: Platform, no_terms: bool) -> Platform:
    """Return a platform, without terms if `no_terms`."""
    if not no_terms:
        return platform
    from armillary.explore.term_costs import with_terms
    from armillary.platform.kernels import Terms

    return with_terms(platform, Terms())


def costs_of(platform: Platform, simulate: Callable[[Platform], Timeline]) -> TermCosts:
    """Return what each term of a platform costs.

    Raises:
        InputError: it has none.
    """
    from armillary.base.errors import InputError
    from armillary.explore.term_costs import term_costs

    if not platform.terms.on():
        raise InputError("--term-costs: all terms are off; expected platform.terms in the study")
    return term_costs(platform, simulate)


def print_costs(costs: TermCosts) -> None:
    """Print what each term costs."""
    from armillary.explore.term_costs import print_term_costs

    print_term_costs(costs)


def sample_options(function: Any) -> Any:
    """Add ``--samples --seed --workers``."""
    add_samples = option(
        "--samples", type=click.IntRange(1), metavar="N", heading="Variation",
        help="Sample N machines from the variation of the machine: p50, p90 and p99 of the step time.",
    )  # fmt: skip
    add_seed = seed_option("Random seed for --samples.  [default: 0]", heading="Variation")
    add_workers = workers_option("Processes for --samples.  [default: 1]", default=None, heading="Variation")
    return add_samples(add_seed(add_workers(function)))
