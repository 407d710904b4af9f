"""The command line: one module per command, loaded only when that command is called.

`GROUPS` holds the one-line helps so that ``armillary --help`` imports no command. The one place where an error becomes
a message and an exit code is `CommandLine.main`: 0 done, 2 bad input or usage, 3 the simulation cannot finish, 4 not
enough memory, 129, 130 and 143 ended by SIGHUP, SIGINT (Ctrl-C) and SIGTERM, 141 the reader of our output closed it.
``ARMILLARY_DEBUG=1`` lets the exception through instead.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from armillary.base.errors import ArmillaryError
from armillary.base.hints import nearest, one_line, whole_number
from armillary.base.text import printable_output
from armillary.cli.command import Ended, LazyGroup, ended_cleanly

GROUPS = {
    "How long does it take?": {
        "demo": "Simulate a 512-NPU machine, and draw a picture and a timeline.",
        "run": "Simulate a study file, or ASTRA-sim's own input files.",
        "train": "Predict a training step of a model on a machine: its time, memory and bottlenecks.",
        "serve": "Simulate serving requests with a model on a machine, and show what each request waits for.",
        "explain": "Summarise a saved result, and explain its time.",
        "studio": "Explore a training step in a browser: sliders, timelines, searches.",
    },
    "What would be better?": {
        "compare": "Explain the difference between runs: studies, saved timelines, points of a sweep.",
        "sweep": "Evaluate the points of a sweep file: many studies that differ in a few keys.",
        "plan": "Find the fastest plans for a model; search a sweep; allocate bandwidth; estimate the cost of a "
        "run.",
    },
    "Workloads": {
        "capture": "Run a PyTorch script on a CPU as if it were ranks of a GPU cluster, and record a step.",
        "trace": "Work with Chakra execution traces: collect, convert, check, inspect, replay.",
        "generate": "Generate workloads: models, micro-benchmarks, learned traces.",
    },
    "Machines": {
        "machine": "Show a machine description as Armillary reads it, and list the known machines.",
        "collective": "Show, schedule or synthesize collective algorithms.",
    },
    "Can I believe it?": {
        "validate": "Compare predictions with measurements of real machines.",
        "calibrate": "Fit model constants to measurements, including your own.",
    },
    "Other people's programs": {
        "astra-sim": "Accept ASTRA-sim's flags and print its result lines.",
        "chakra": "Accept the flags of Chakra's own tools.",
    },
}
"""The question that commands answer -> command name -> one-line help."""
# Flattened for look-ups; GROUPS keeps the order of the help page.
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
"""Command name -> one-line help; the module is the name with underscores."""
# Words that people try first, in the language of other tools.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "simulate": ("run",),
    "sim": ("run",),
    "start": ("run",),
    "show": ("explain",),
    "view": ("explain",),
    "summary": ("explain",),
    "why": ("explain",),
    "results": ("sweep results",),
    "search": ("plan search",),
    "optimise": ("plan",),
    "optimize": ("plan",),
    "tune": ("plan",),
    "cost": ("plan cost",),
    "energy": ("plan cost",),
    "price": ("plan cost",),
    "allocate": ("plan allocate",),
    "whole-run": ("plan whole-run",),
    "profile": ("trace collect",),
    "record": ("trace collect", "capture"),
    "replay": ("trace replay",),
    "workload": ("generate",),
    "learn": ("generate learn",),
    "platform": ("machine",),
    "system": ("machine",),
    "cluster": ("machine",),
    "reproduce": ("validate reproduce",),
    "collect": ("trace collect",),
    "inference": ("serve", "generate serve"),
    "gui": ("studio",),
    "web": ("studio",),
    "ui": ("studio",),
    "play": ("studio",),
}
"""What others, and earlier versions, call a command -> where it is."""


@contextmanager
def _saying_how_far() -> Iterator[None]:
    """On a terminal, print how far long work is: a line after 10 s, and another whenever it has taken twice as long."""
    if not sys.stderr.isatty():
        yield
        return
    from armillary.base.allowed import listening

    begun, wait = time.monotonic(), 10.0

    def tell(text: str) -> None:
        nonlocal wait
        if time.monotonic() - begun >= wait:
            click.echo(f"armillary: {one_line(text)}", err=True)
            wait *= 2

    with listening(tell):
        yield


class CommandLine(LazyGroup):
    """The root command: turns errors into messages and exit codes."""

    elsewhere = ELSEWHERE

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands below the questions that they answer."""
        # The longest name of all, so that columns line up across headings.
        width = max(map(len, COMMANDS))
        for question, table in GROUPS.items():
            formatter.write(f"\n{question}\n")
            with formatter.indentation():
                formatter.write_dl([(name.ljust(width), text) for name, text in table.items()])

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit with its status."""
        with printable_output(), ended_cleanly(), _saying_how_far():
            # standalone_mode: click would turn exceptions into messages and exit codes of its own.
            status = self._status(*args, **extra | {"standalone_mode": False, "prog_name": "armillary"})
        sys.exit(status)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command and flush its output, so that a closed pipe is noticed here."""
        try:
            result = super().invoke(ctx)
            # The buffer is flushed here: at exit a closed pipe could only be a traceback.
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # What Python flushes at exit then goes to /dev/null, and no second error follows.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            # 128 + SIGPIPE, as a shell reports it.
            ctx.exit(141)

    def _status(self, *args: Any, **extra: Any) -> int:
        try:
            status = super().main(*args, **extra)
            return status if isinstance(status, int) else 0
        except click.Abort as abort:
            # click has turned a KeyboardInterrupt into this.
            return _ended(abort.__cause__)
        except Exception as error:
            # A library may have made another error of a signal, as pydantic does while it builds a model.
            if Ended.last is not None:
                return _ended(Ended.last)
            # Errors of users and of the system; anything else is a bug and keeps its traceback.
            known = isinstance(error, (ArmillaryError, click.ClickException, OSError, MemoryError))
            if not known or os.environ.get("ARMILLARY_DEBUG"):
                raise
            message, status = _describe(error)
            click.echo(f"armillary: error: {message}", err=True)
            return status


def _ended(stop: BaseException | None) -> int:
    click.echo(f"armillary: {Ended.words(stop)}", err=True)
    return Ended.status(stop)


def _describe(error: Exception) -> tuple[str, int]:
    if isinstance(error, ArmillaryError):
        return str(error), error.exit_code
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "armillary"
        if (
            type(error).__name__ == "NoArgsIsHelpError"
        ):  # by name: the class exists since click 8.2, its message is the help
            return f"{command} needs a command\n\n{error.format_message()}", 2
        message = (
            _no_option(error) if isinstance(error, click.NoSuchOption) else error.format_message().rstrip(".")
        )
        # click says "is not a valid integer"; 1e3 and 1_000 deserve a hint how to write it.
        counts = re.search(r"'([^']*)' is not a valid integer", message)
        hint = whole_number(counts[1]) if counts else ""
        return f"{_in_line(message)}{hint} (see '{command} --help')", 2
    if isinstance(error, click.ClickException):
        return _in_line(error.format_message()), 2
    if isinstance(error, MemoryError):
        said = str(error)
        return (
            f"not enough memory for this problem{f' ({said})' if said else ''}: expected fewer ranks or nodes, or more "
            "memory"
        ), 4
    # OSError has both; str() of it would repeat the number of the error.
    filename = getattr(error, "filename", None)
    return _in_line(f"{filename}: {getattr(error, 'strerror', error)}" if filename else str(error)), 2


def _in_line(message: str) -> str:
    """Return a message of click or of the system, which quote input literally, on one line."""
    # click lists choices one on a line, with a tab before each.
    return one_line(message.replace("\n\t", " "))


def _no_option(error: click.NoSuchOption) -> str:
    from armillary.cli.options import OTHER_NAMES

    params = error.ctx.command.get_params(error.ctx) if error.ctx else []
    names = [name for param in params for name in param.opts if isinstance(param, click.Option)]
    # Options of earlier versions and of other tools are suggested by their present names.
    synonyms = {other: ((name, ""),) for other, name in OTHER_NAMES.items()}
    return f"No such option '{error.option_name}'{nearest(error.option_name, names, synonyms)}"


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    # resilient_parsing: the shell completes, and must not print.
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"armillary {version('armillary')}")
        ctx.exit()


def _raise_limits(ctx: click.Context, _: click.Parameter, times: float | None) -> None:
    if times is None or ctx.resilient_parsing:
        return
    from armillary.base.allowed import FACTOR, allow

    ctx.with_resource(allow(limits=times))
    # The environment reaches every process that is started.
    before = os.environ.get(FACTOR)
    os.environ[FACTOR] = f"{times:g}"

    def restore() -> None:
        del os.environ[FACTOR]
        os.environ.update({} if before is None else {FACTOR: before})

    ctx.call_on_close(restore)


@click.group(
    cls=CommandLine,
    context_settings={"help_option_names": ["-h", "--help"]},
    modules=__name__,
    table=COMMANDS,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option(
    "--limits",
    type=float,
    metavar="TIMES",
    expose_value=False,
    is_eager=True,
    callback=_raise_limits,
    help="Multiply the limits on the contents of files by TIMES, as ARMILLARY_LIMITS does.",
)
def main() -> None:
    """Simulate distributed machine learning: run Chakra traces on a described machine, exactly and fast."""
