"""`armillary chakra`: the flags of the tools of mlcommons/chakra 1.0.0, one module for each tool."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "trace_link": "Join a PyTorch host trace and a device trace.",
    "converter": "Turn a joined PyTorch trace, or a text workload, into Chakra traces.",
    "jsonizer": "Write a trace as valid JSON.",
    "visualizer": "Draw the dependency graph: .pdf, .dot or .graphml.",
    "timeline_visualizer": "Turn a log of issues and callbacks into a timeline for chrome://tracing.",
    "et_converter": "Turn a text, PyTorch or FlexFlow workload into Chakra traces, with Chakra's flags of 2024.",
    "generator": "Write minimal traces: one family for each kind of node.",
    "install": "Install programs named like Chakra's into a folder.",
}
"""Name -> one-line help; `chakra_` before it is accepted, and dashes for underscores."""


class _Tools(LazyGroup):
    """Finds a tool by any spelling of its name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _plain(cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # As there: "chakra_trace_link" and "trace-link" are the same tool.
        return super().resolve_command(ctx, [_plain(args[0]), *args[1:]])


def _plain(name: str) -> str:
    return name.replace("-", "_").removeprefix("chakra_")


@click.group(
    cls=_Tools,
    help=f"{COMMANDS['chakra']}\n\nChakra's own names, such as chakra_trace_link, and names with dashes work, too.",
    modules=__name__,
    table=SUBCOMMANDS,
)
def command() -> None:
    """Group the tools."""
