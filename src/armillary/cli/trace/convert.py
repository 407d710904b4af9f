"""`armillary trace convert`: other formats to Chakra."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from armillary.cli.output_file import OUTPUT, OutputPrefix
from armillary.cli.outputs import working
from armillary.cli.trace import SUBCOMMANDS


class _Convert(click.Command):
    """A command whose options depend on ``--from``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        name = _value_of("--from", args)
        if name is not None:
            self.params = [param for param in self.params if not getattr(param, "of_front_end", False)]
            self.params += _options(name)
        return super().parse_args(ctx, args)


def _value_of(option: str, args: list[str]) -> str | None:
    for at, word in enumerate(args):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and at + 1 < len(args):
            return args[at + 1]
    return None


def _options(name: str) -> list[click.Option]:
    import inspect

    from armillary.convert import front_end

    found = []
    for option in front_end(name).options:
        flag = f"--{option.name.replace('_', '-')}"
        required = option.default is inspect.Parameter.empty
        kind: Any = click.Path(path_type=Path) if option.kind is Path else option.kind
        shape = {"is_flag": True} if option.kind is bool else {"type": kind}
        # An explicit default of None would satisfy `required`.
        given: Any = (
            {}
            if required
            else {"default": option.default, "show_default": option.default not in (None, False)}
        )
        made = click.Option(
            [flag, option.name],
            required=required,
            help=option.help,
            **shape,
            **given,
        )
        made.of_front_end = True  # type: ignore[attr-defined]
        found.append(made)
    return found


@click.command(
    cls=_Convert,
    help=f"{SUBCOMMANDS['convert']}\n\nEach format has options of its own: `--from NAME --help` lists them.",
)
@click.option("--from", "source", required=True, metavar="NAME", help="The format; without one, the list.")
@click.argument("inputs", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "-o",
    "--output",
    type=OutputPrefix(".0.et"),
    required=True,
    metavar="PREFIX",
    help="Write PREFIX.<rank>.et.",
)
@click.option("--json", "report_path", type=OUTPUT, metavar="REPORT", help="Write a report.")
def command(
    source: str, inputs: tuple[Path, ...], output: str, report_path: Path | None, **options: Any
) -> None:
    """Convert and write."""
    from armillary.base.files import write_text
    from armillary.convert import front_end, report
    from armillary.trace import write_trace

    with working("converting"):
        converted = front_end(source).convert(inputs, **options)
        write_trace(output, converted.trace)
    facts = report(converted)
    for warning in converted.warnings:
        click.echo(f"warning: {warning}", err=True)
    for line in converted.statements:
        click.echo(line, err=True)
    if converted.groups:
        groups = Path(f"{output}.groups.json")
        write_text(groups, json.dumps(facts["groups"]))
        click.echo(f"wrote {groups}", err=True)
    if report_path:
        write_text(report_path, json.dumps(facts, indent=1))
    click.echo(f"wrote {output}.<rank>.et: {facts['ranks']} ranks, {facts['nodes']} nodes", err=True)
