"""`armillary trace check`: look for what would stop or falsify a simulation."""

from __future__ import annotations

import json

import click

from armillary.cli.trace import SUBCOMMANDS, as_json_option, files_argument


@click.command(help=SUBCOMMANDS["check"])
@files_argument
@as_json_option
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Look for what would stop or falsify a simulation; exit code 2 if there is an error."""
    from armillary.trace import check as diagnose
    from armillary.trace import read_graph

    graphs = [read_graph(file) for file in files]
    findings = [(graph.source, finding) for graph in graphs for finding in diagnose(graph)]
    if as_json:
        click.echo(json.dumps([{"file": file, **vars(finding)} for file, finding in findings], indent=1))
    else:
        for file, finding in findings:
            click.echo(f"{file}: {finding.severity}: {finding.message}")
        if not findings:
            click.echo(f"{len(files)} file{'s' * (len(files) > 1)}: nothing wrong")
    if any(finding.severity == "error" for _, finding in findings):
        ctx.exit(2)
