"""Shared by commands: the files to which a result can be written, tables, progress."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from armillary.base.files import write_text
from armillary.base.hints import one_line
from armillary.base.text import console, json_text
from armillary.cli.command import FILES, option
from armillary.cli.options import IMAGE, html_option, plot_option
from armillary.cli.values import LINKS, OUTPUT

if TYPE_CHECKING:
    from rich.console import RenderableType

    from armillary.engine.common.timeline import Timeline
    from armillary.engine.multi_job import JobsResult
    from armillary.explore.result import Result
    from armillary.report.page.shown import Shown

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Outputs:
    """The files to write a result to; None: not written. `brief`: what is printed has no tables."""

    json: Path | None = None
    timeline: Path | None = None
    plot: Path | None = None
    save: Path | None = None
    links: Path | None = None
    html: Path | None = None
    brief: bool = False

    def present(self, result: Timeline, *, quiet: bool = False, shown: Result | None = None) -> None:
        """Print the summary, write every requested file, and name it unless `quiet`.

        Args:
            result: The run.
            quiet: Name no file.
            shown: The run with its machine, for a page that shows the effects of changes.
        """
        import armillary.report as report  # noqa: PLR0402  as a module: the root package names only what is public

        report.print_summary(result, brief=self.brief)
        writers: dict[str, Callable[[Path], object]] = {
            "json": lambda path: report.write_json(result, path),
            "timeline": lambda path: report.write_perfetto(result, path),
            "plot": lambda path: report.breakdown_picture(result, path),
            "save": result.save,
            "links": lambda path: report.write_links(result, path),
            "html": lambda path: _page(result, shown, path),
        }
        self._write(writers, quiet)

    def present_jobs(self, result: JobsResult) -> None:
        """Print a table of several jobs, and write and name every requested file."""
        from armillary import report

        report.print_jobs(result)
        writers: dict[str, Callable[[Path], object]] = {
            "json": lambda path: report.write_jobs_json(result, path),
            "timeline": lambda path: report.write_jobs_perfetto(result, path),
            "plot": lambda path: report.jobs_picture(result, path),
            "links": lambda path: report.write_links(result.timeline, path),
            "save": result.timeline.save,
            "html": lambda path: _page(result.timeline, None, path),
        }
        self._write(writers, quiet=False)

    def _write(self, writers: dict[str, Callable[[Path], object]], quiet: bool) -> None:
        # In the order of the fields, which is that of the help.
        for name, path in vars(self).items():
            if path is not None and name in writers:
                writers[name](path)
                if not quiet:
                    say(f"wrote {path}", err=True)


def output_options(function: F) -> F:
    """Add ``--json --plot --timeline --links --save --html --brief`` to a command; it receives one `Outputs`."""
    # The names of the fields are those of click's parameters.
    names = tuple(each.name for each in fields(Outputs))

    def with_outputs(**values: Any) -> Any:
        outputs = Outputs(**{name: values.pop(name) for name in names})
        return function(outputs=outputs, **values)

    with_outputs.__doc__ = function.__doc__
    # The parameters that were declared below belong to the wrapper now.
    with_outputs.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    added: tuple[Callable[[Any], Any], ...] = (
        option("--json", type=OUTPUT, metavar="FILE", help="Write the summary as JSON."),
        plot_option("the time breakdown"),
        option(
            "--timeline", type=OUTPUT, metavar="FILE",
            help="Write a timeline for ui.perfetto.dev (.pftrace: small and fast) or chrome://tracing (any other "
            "name).",
        ),
        option(
            "--links", type=LINKS, metavar="FILE",
            help=f"Write link usage: a table (.csv) or a picture {IMAGE}.",
        ),
        option("--save", type=OUTPUT, metavar="FILE", help="Save the whole result for `armillary explain`."),
        html_option(),
        option(
            "--brief", is_flag=True, heading=FILES,
            help="Print memory, time and what it assumes, and no tables.",
        ),
    )  # fmt: skip
    decorated: Any = with_outputs
    # Reversed: decorators add from the inside out.
    for add in reversed(added):
        decorated = add(decorated)
    return decorated  # type: ignore[no-any-return]


def _page(result: Timeline, shown: Result | None, path: Path) -> None:
    from armillary.explore.result import Result

    show_as_page(path, shown or Result(path.stem, result))


def show_as_page(path: Path, found: Shown) -> None:
    """Write a result as one page."""
    with working("drawing the page, which tries what changes would do"):
        found.to_html(path)


def write_html(path: Path | None, found: Shown) -> None:
    """Write a result as one page if requested, and name the file."""
    if path is not None:
        show_as_page(path, found)
        say(f"wrote {path}", err=True)


def say(text: str, *, err: bool = False) -> None:
    """Print one line, to standard error if `err`; a name in it cannot start another line."""
    click.echo(one_line(text), err=err)


def write_json(path: Path | None, value: Any) -> None:
    """Write a value as JSON if requested, and name the file."""
    if path is not None:
        write_text(path, json_text(value, indent=1) + "\n")
        say(f"wrote {path}", err=True)


@contextlib.contextmanager
def working(message: str) -> Iterator[None]:
    """Show a spinner with `message` on a terminal while the body runs; nothing in a pipe."""
    # A pipe gets no escape codes and no lines that are overwritten.
    if not sys.stderr.isatty():
        yield
        return
    from rich.markup import escape

    from armillary.base.allowed import listening
    from armillary.base.jit import cache_folder

    # The first run compiles kernels: say why it takes long.
    if not cache_folder().exists():
        message += " (first use: large problems wait for compiling kernels, once)"
    with (
        console(sys.stderr).status(message) as status,
        listening(lambda far: status.update(escape(one_line(far)))),
    ):
        yield


def show_table(renderable: RenderableType) -> None:
    """Print a rich table or group; in a pipe without escape codes and trailing blanks, 100 wide."""
    target = console()
    if target.is_terminal:
        target.print(renderable)
        return
    # Rich takes the width of the terminal; a pipe has none.
    target.width = 100
    with target.capture() as captured:
        target.print(renderable)
    # Trailing blanks of cells would make every diff of saved output noisy.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
