"""Shared by commands that generate a trace: write it, simulate it, and report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from armillary.base.text import json_text, unfiltered
from armillary.cli.command import option
from armillary.cli.options import efficiency_option, machine_option, with_efficiency
from armillary.cli.outputs import Outputs, output_options, say, show_table, working
from armillary.cli.values import NEW_FOLDER

if TYPE_CHECKING:
    from rich.table import Table

    from armillary.engine.common.timeline import Timeline
    from armillary.platform.model import Platform
    from armillary.trace import Trace
    from armillary.workload.totals import Totals

F = TypeVar("F", bound=Callable[..., Any])


def show_generated(table: Table, found: Totals) -> None:
    """Print the summary of a trace, and the communication of its ranks."""
    from armillary.report.workload_tables import traffic_table

    show_table(table)
    if found.traffic:
        click.echo()
        show_table(traffic_table(found))


@dataclass(frozen=True)
class Request:
    """What to do with a trace.

    Attributes:
        folder: Where to write it; None: nowhere.
        machine: The machine to simulate it on, a file or a preset; None: do not.
        efficiency: Share of the peaks that kernels reach there.
        outputs: Files for the result.
    """

    folder: Path | None
    machine: str | None
    efficiency: str | None
    outputs: Outputs

    def platform(self) -> Platform | None:
        """Return the machine, after checking all requested outputs.

        Raises:
            InputError: the folder is there already, or the machine cannot be read.
        """
        # Files of a result need a simulation; --json also describes the trace alone.
        for name, value in {**vars(self.outputs), "efficiency": self.efficiency}.items():
            if value not in (None, False) and name != "json" and not self.machine:
                raise click.UsageError(f"--{name} needs --machine")
        if not self.machine:
            return None
        from armillary.platform import load_platform, with_roofline

        # Generated kernels have no recorded times: some model must be there.
        return with_efficiency(with_roofline(load_platform(self.machine)), self.efficiency)

    def carry_out(
        self,
        trace: Trace,
        platform: Platform | None,
        described: dict[str, Any],
        more: Callable[[Timeline], str] | None = None,
    ) -> None:
        """Write, simulate and print.

        Args:
            trace: The trace.
            platform: What `platform` returned.
            described: The trace for ``--json``; the result is added.
            more: Text to print after the summary of a result.
        """
        from armillary.base.files import write_text

        if self.folder:
            _write(self.folder, trace)
        if platform:
            import armillary
            from armillary import report

            with working("simulating"):
                result = armillary.simulate(trace, platform)
            click.echo()
            # JSON is written below, with the description of the trace in it.
            replace(self.outputs, json=None).present(result)
            if more:
                click.echo("\n" + more(result))
            described = {**described, "result": report.to_json(result)}
        if self.outputs.json:
            write_text(self.outputs.json, json_text(described, indent=1) + "\n")
            say(f"wrote {self.outputs.json}", err=True)


def request_options(*also: str) -> Callable[[F], F]:
    """Add ``--out``, ``--machine``, ``--efficiency`` and outputs to a command; it receives one `Request`.

    Args:
        also: Other names of ``--out``, by which other programs call it.
    """
    return lambda function: _with_request(function, also)


def _with_request(function: F, also: tuple[str, ...]) -> F:
    def with_request(**values: Any) -> Any:
        request = Request(*(values.pop(name) for name in ("folder", "machine", "efficiency", "outputs")))
        return function(request=request, **values)

    with_request.__doc__ = function.__doc__
    # click's parameters belong to the wrapper.
    with_request.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Any = efficiency_option(output_options(with_request))
    on = "Simulate on this machine: a study or platform file, or a preset."
    # --out writes a folder: traces of all ranks and their groups.
    out = "Write traces and groups of ranks to a new folder."
    decorated = machine_option(on)(decorated)
    return option("-o", "--out", *also, "folder", type=NEW_FOLDER, metavar="DIR", help=out)(decorated)  # type: ignore[no-any-return]


def _write(folder: Path, trace: Trace) -> None:
    from armillary.base.files import filling
    from armillary.trace import write_trace
    from armillary.trace.write import write_group_file

    prefix, groups = folder / "rank", folder / "groups.json"
    # Made only now, when something is written, and there only when it is complete.
    with (
        filling(folder) as filled,
        click.progressbar(
            # Hidden in a pipe.
            length=trace.n_ranks,
            label="writing",
            file=unfiltered(sys.stderr),
            hidden=not sys.stderr.isatty(),
        ) as bar,
    ):
        write_trace(filled / prefix.name, trace, progress=lambda done: bar.update(done - bar.pos))
        write_group_file(filled / groups.name, trace)
    say(f"wrote {prefix}.<rank>.et of {trace.n_ranks:,} ranks, and {groups}", err=True)
