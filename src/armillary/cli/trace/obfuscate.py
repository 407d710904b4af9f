"""`armillary trace obfuscate`: hide what a trace reveals about its model, but preserve how it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.cli.command import Command, option
from armillary.cli.options import comm_groups_option, json_option, machine_option, out_option
from armillary.cli.outputs import say, show_table, working, write_json
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.trace.group_file import read_group_file
from armillary.cli.values import OUTPUT

if TYPE_CHECKING:
    from armillary.lab.privacy.machines import Machine
    from armillary.lab.privacy.obfuscate import Strength
    from armillary.trace.inputs import Input

_HELP = f"""{SUBCOMMANDS["obfuscate"]}

INPUT and OUT are prefixes of the files PREFIX.<rank>.et of all ranks, or one file each; INPUT may be a study that
generates its workload. Level 1 replaces names, ids and groups and removes shapes and metadata; level 2 also perturbs
sizes and times by 5 %; level 3 also joins, splits and reorders nodes and scales totals by factors up to 4. The
obfuscation is weakened until the simulated time stays within the tolerance on all machines. Level 4 writes a surrogate:
a step of another model on the same number of ranks that takes as long.
"""
_PATH = click.Path(path_type=Path)


_HOW = "How much is hidden"
_STAYS = "What stays"
_BACK = "The way back"


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary trace obfuscate step -o hidden --map names.json",
        'armillary trace obfuscate step -o hidden --level 2 --machine hgx-h100 --tolerance "1 %"',
    ),
)
@click.argument("source", type=click.Path(), metavar="INPUT")
@out_option
@option(
    "--level",
    type=click.IntRange(1, 4),
    heading=_HOW,
    help="Shorthand for the options below, which override it. [default: 3]",
)
@option("--names", is_flag=True, heading=_HOW, help="Hide only names, ids, shapes and metadata: --level 1.")
@option(
    "--sizes",
    metavar="SHARE",
    heading=_HOW,
    help="Perturb each size and time by at most this, such as 5 %.",
)
@option("--structure/--no-structure", default=None, heading=_HOW, help="Join, split and reorder nodes.")
@option(
    "--totals",
    type=float,
    metavar="FACTOR",
    heading=_HOW,
    help="Scale the total of each kind of work by up to this factor.",
)
@option(
    "--tolerance",
    default="5 %",
    show_default=True,
    metavar="SHARE",
    heading=_STAYS,
    help="Allowed difference in simulated time.",
)
@machine_option(
    "Machine on which the time must be preserved; may be repeated. [default: boards of H100 and, below level 4, of "
    "MI300X]",
    multiple=True,
)
@option(
    "--key",
    heading=_BACK,
    help="Secret that determines all random choices. [default: a new one each time]",
)
@option(
    "--map",
    "legend",
    type=OUTPUT,
    metavar="FILE",
    heading=_BACK,
    help="Write the original of each new name; keep this file private.",
)
@option(
    "--restore",
    type=_PATH,
    metavar="MAP",
    heading=_BACK,
    help="Restore names and ids instead, with the file of --map.",
)
@json_option("Write what can still be inferred as JSON.")
@comm_groups_option
def command(
    source: str,
    out: Path,
    machine: tuple[str, ...],
    key: str | None,
    legend: Path | None,
    restore: Path | None,
    json_file: Path | None,
    comm_groups: Path | None,
    tolerance: str,
    **wanted: Any,
) -> None:
    """Obfuscate, or restore, and write."""
    # Restoring undoes, and takes none of the options that hide.
    if restore:
        # False is a flag that was not given.
        given = [f"--{name}" for name, value in wanted.items() if value is not None and value is not False]
        given += (
            ["--map"] * bool(legend)
            + ["--json"] * bool(json_file)
            + ["--machine"] * bool(machine)
            + ["--key"] * bool(key)
        )
        if given:
            raise click.UsageError(f"--restore and {given[0]} exclude each other")
        _restore(source, out, restore)
        return
    import secrets

    from armillary.base.files import check_prefix
    from armillary.lab.obfuscation.restoring import write_legend
    from armillary.lab.privacy.machines import read_machines
    from armillary.lab.privacy.obfuscate import obfuscate
    from armillary.lab.privacy.remains import remains
    from armillary.lab.privacy.show import remains_tables

    # Both parsed before the trace is read: a typo should not cost minutes.
    strength, allowed = _strength(**wanted), _share("--tolerance", tolerance)
    if strength.surrogate and legend:
        raise click.UsageError(
            "--level 4 and --map exclude each other: nothing of the original is left to name"
        )
    # Another secret each time: the same key would map the same names alike.
    secret = key if key is not None else secrets.token_hex(16)
    with working("obfuscating"):
        found, own = _read(source)
        # Several files are written: OUT must do as a prefix.
        if found.whole:
            check_prefix("--out", out)
        trace = found.trace
        if strength.surrogate and not found.whole:
            raise InputError(f"{source}: is one rank, expected the prefix of all for --level 4")
        # A study's own machine, unless others are named.
        chosen = own if own and not machine else read_machines(machine, trace.n_ranks)
        if strength.surrogate and not (own or machine):
            # A surrogate is another model: its time can be held on one machine only.
            chosen = chosen[:1]
        made = obfuscate(
            trace,
            chosen,
            strength,
            tolerance=allowed,
            key=secret,
            groups=read_group_file(comm_groups, trace.n_ranks),
        )
        _write(out, replace(found, trace=made.trace))
        what = remains(trace, made)
    if legend:
        write_legend(legend, made.legend, secret)
        say(f"wrote {legend}", err=True)
    for table in remains_tables(what):
        show_table(table)
    # What was asked for and what was reached may differ.
    if made.reached.structure < strength.structure or made.reached.sizes < strength.sizes:
        say(
            f"warning: the times hold only with sizes within {100 * made.reached.sizes:.3g} % and "
            f"{'other' if made.reached.structure else 'the same'} nodes", err=True,
        )  # fmt: skip
    elif strength.structure and made.windows is None:
        click.echo(
            "warning: only kernels in a row are joined here: nodes and repetitions still follow the number of layers",
            err=True,
        )
    write_json(json_file, what)


def _strength(
    level: int | None, names: bool, sizes: str | None, structure: bool | None, totals: float | None
) -> Strength:
    from armillary.lab.privacy.obfuscate import LEVELS

    # --names is level 1 alone.
    if names and (level or sizes or structure or totals):
        raise click.UsageError("--names and other strengths exclude each other")
    if level == 4 and (sizes, structure, totals) != (None, None, None):
        raise click.UsageError("--level 4 and other strengths exclude each other")
    # Without a level: 3, or 1 where single strengths are given.
    found = LEVELS[1 if names else level or (3 if (sizes, structure, totals) == (None, None, None) else 1)]
    changes: dict[str, Any] = {}
    if sizes is not None:
        changes["sizes"] = _share("--sizes", sizes)
    if structure is not None:
        # Without a new structure totals must stay, since nodes show them.
        changes |= {"structure": structure} | ({} if structure else {"totals": 1.0})
    if totals is not None:
        changes["totals"] = totals
    return replace(found, **changes)


def _share(option: str, text: str) -> float:
    from armillary.base.units import parse_percent

    try:
        return parse_percent(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error


def _read(source: str) -> tuple[Input, list[Machine]]:
    """Return the trace, and of a study also its machine."""
    from armillary.lab.privacy.machines import read_machines
    from armillary.trace.inputs import Input, read_input

    # A study brings its machine with it.
    if not source.endswith((".yaml", ".yml")):
        return read_input(source), []
    from armillary.platform.files.native import load_study
    from armillary.workload import study_trace

    study = load_study(source)
    if study.jobs:
        raise InputError(f"{source}: jobs: expected a study of one workload")
    return Input(source, study_trace(study), whole=True), read_machines([source], study.ranks)


def _write(out: Path, found: Input) -> None:
    from armillary.trace import write_graph, write_trace

    if found.whole:
        write_trace(out, found.trace)
        say(f"wrote {out}.<rank>.et: {found.trace.n_ranks:,} ranks", err=True)
    else:
        write_graph(out, found.trace.graphs[0])
        say(f"wrote {out}", err=True)


def _restore(source: str, out: Path, legend: Path) -> None:
    from armillary.base.files import check_prefix
    from armillary.lab.obfuscation.restoring import read_legend, restore
    from armillary.trace.inputs import read_input

    found = read_input(source)
    # Several files: the prefix is checked.
    if found.whole:
        check_prefix("--out", out)
    _write(out, replace(found, trace=restore(found.trace, read_legend(legend))))
