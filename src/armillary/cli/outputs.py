"""What commands share: the files a result can be written to, tables, progress."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from armillary.base.terminal import console
from armillary.cli.output_file import OUTPUT, PICTURE, OutputFile

if TYPE_CHECKING:
    from rich.console import RenderableType

    from armillary.engine.common.multi_job import JobsResult
    from armillary.engine.common.timeline import Timeline

F = TypeVar("F", bound=Callable[..., Any])


network_model_option = click.option(
    "--network-model",
    type=click.Choice(("analytical", "congestion", "flow", "packet", "ns3")),
    help="How messages share links; by default analytical, or flow where the network is a graph.",
)


@dataclass(frozen=True)
class Outputs:
    """Where to write what; None: do not."""

    json: Path | None = None
    timeline: Path | None = None
    picture: Path | None = None
    save: Path | None = None
    links: Path | None = None

    def present(self, result: Timeline, *, quiet: bool = False) -> None:
        """Print the summary, write every file that was asked for, and name it unless `quiet`."""
        from armillary import report

        report.print_summary(result)
        writers: dict[str, Callable[[Path], object]] = {
            "json": lambda path: report.write_json(result, path),
            "timeline": lambda path: report.write_perfetto(result, path),
            "picture": lambda path: report.breakdown_picture(result, path),
            "save": result.save,
            "links": lambda path: report.write_links(result, path),
        }
        self._write(writers, quiet)

    def present_jobs(self, result: JobsResult) -> None:
        """Print a table of several jobs, and write and name every file that was asked for."""
        from armillary import report

        report.print_jobs(result)
        writers: dict[str, Callable[[Path], object]] = {
            "json": lambda path: report.write_jobs_json(result, path),
            "timeline": lambda path: report.write_jobs_perfetto(result, path),
            "picture": lambda path: report.jobs_picture(result, path),
            "links": lambda path: report.write_links(result.timeline, path),
            "save": result.timeline.save,
        }
        self._write(writers, quiet=False)

    def _write(self, writers: dict[str, Callable[[Path], object]], quiet: bool) -> None:
        for option, path in vars(self).items():
            if path is not None:
                writers[option](path)
                if not quiet:
                    click.echo(f"wrote {path}", err=True)


def output_options(function: F) -> F:
    """Add ``--json --timeline --picture --links --save`` to a command; it receives one `Outputs`."""
    texts = {
        "save": "Save the whole result, for `armillary show`.",
        "links": "Write the use of links: a table (.csv) or a picture (.png, .svg or .pdf).",
        "picture": "Draw the time breakdown (.png, .svg or .pdf).",
        "timeline": "Write a timeline for ui.perfetto.dev or chrome://tracing.",
        "json": "Write the summary as JSON.",
    }

    def with_outputs(**values: Any) -> Any:
        outputs = Outputs(**{name: values.pop(name) for name in texts})
        return function(outputs=outputs, **values)

    with_outputs.__doc__ = function.__doc__
    with_outputs.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    types = {"picture": PICTURE, "links": OutputFile("armillary.report.link_picture:check_links_file")}
    for name, text in texts.items():
        kind = types.get(name, OUTPUT)
        with_outputs = click.option(f"--{name}", type=kind, metavar="FILE", help=text)(with_outputs)
    return with_outputs  # type: ignore[return-value]


@contextlib.contextmanager
def working(message: str) -> Iterator[None]:
    """Show a spinner with `message` on a terminal while the body runs; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    from armillary.base.jit import cache_folder

    if not cache_folder().exists():
        message += " (first use: large problems wait for compiling kernels, once)"
    with console(sys.stderr).status(message):
        yield


def show_table(renderable: RenderableType) -> None:
    """Print a rich table or group; in a pipe without escape codes and trailing blanks, 100 wide."""
    target = console()
    if target.is_terminal:
        target.print(renderable)
        return
    target.width = 100
    with target.capture() as captured:
        target.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
