"""`armillary trace convert`: other formats to Chakra."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from armillary.cli.command import Command, Option, option
from armillary.cli.options import json_option
from armillary.cli.outputs import say, working, write_json
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.values import OutputPrefix, complete_formats

_SAME = {"npus": ("--ranks", "N"), "groups": ("--comm-groups", "JSON")}
"""Option of a format -> what commands call that, and its metavar; its own name is taken, too."""
_OF_FORMAT = "armillary.format"
"""Where a context keeps the options of the format."""


class _Convert(Command):
    """A command whose options depend on ``--from``."""

    # The options of a format must be known before the arguments are parsed.
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        name = _value_of("--from", args)
        if name is not None:
            ctx.meta[_OF_FORMAT] = _options(name)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        # --help stays last.
        *own, help_option = super().get_params(ctx)
        return [*own, *ctx.meta.get(_OF_FORMAT, ()), help_option]


def _value_of(option: str, args: list[str]) -> str | None:
    # Both spellings, "--from=x" and "--from x": click has not parsed anything yet.
    for at, word in enumerate(args):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and at + 1 < len(args):
            return args[at + 1]
    return None


def _options(name: str) -> list[click.Option]:
    import inspect

    from armillary.convert import front_end

    found: list[click.Option] = []
    # A front end's parameters become options, by their annotations.
    for each in front_end(name).options:
        flag = f"--{each.name.replace('_', '-')}"
        same, metavar = _SAME.get(each.name, (flag, "N" if each.kind is int else None))
        required = each.default is inspect.Parameter.empty
        kind: Any = click.Path(path_type=Path) if each.kind is Path else each.kind
        # A flag takes no value.
        shape = {"is_flag": True} if each.kind is bool else {"type": kind}
        # An explicit default of None would satisfy `required`.
        given: Any = (
            {} if required else {"default": each.default, "show_default": each.default not in (None, False)}
        )
        made = Option(
            [*dict.fromkeys((same, flag)), each.name],
            metavar=metavar,
            required=required,
            help=each.help,
            heading="This format",
            **shape,
            **given,
        )
        found.append(made)
    return found


@click.command(
    cls=_Convert,
    help=f"{SUBCOMMANDS['convert']}\n\nEach format has its own options: `--from FORMAT --help` lists them.",
    examples=(
        "armillary trace convert --from pytorch traces -o step --json -",
        "armillary trace convert --from text mlp.txt --ranks 8 -o mlp",
    ),
)
@option(
    "--from",
    "source",
    required=True,
    metavar="FORMAT",
    shell_complete=complete_formats,
    heading="Input",
    help="Input format; leave it out for a list.",
)
@click.argument("inputs", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="INPUT...")
@option(
    "-o",
    "--out",
    type=OutputPrefix(".0.et"),
    required=True,
    metavar="PREFIX",
    help="Write PREFIX.<rank>.et.",
)
@json_option("Write a report as JSON.")
def command(source: str, inputs: tuple[Path, ...], out: str, json_file: Path | None, **options: Any) -> None:
    """Convert and write."""
    from armillary.base.counts import check_rank_files
    from armillary.base.files import write_text
    from armillary.convert import front_end, report
    from armillary.trace import write_trace

    with working("converting"):
        # Only what the format knows is in `options`.
        converted = front_end(source).convert(inputs, **options)
        check_rank_files(converted.trace.n_ranks, str(inputs[0]))
        write_trace(out, converted.trace)
    facts = report(converted)
    for warning in converted.warnings:
        say(f"warning: {warning}", err=True)
    for line in converted.statements:
        click.echo(line, err=True)
    # Groups that the format names, in ASTRA-sim's layout.
    if converted.groups:
        groups = Path(f"{out}.groups.json")
        write_text(groups, json.dumps(facts["groups"]))
        say(f"wrote {groups}", err=True)
    write_json(json_file, facts)
    say(f"wrote {out}.<rank>.et: {facts['ranks']} ranks, {facts['nodes']} nodes", err=True)
