"""Commands: groups that import one when it is called, help with headings and examples, and how signals end one.

Signals act like Ctrl-C: incomplete files are removed, and the processes of a command are stopped.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, ClassVar, NoReturn

import click
from click.shell_completion import CompletionItem

from armillary.base.hints import did_you_mean, nearest
from armillary.cli.values import OutputFile, OutputFolder, OutputPrefix


class LazyGroup(click.Group):
    """Finds command ``x-y`` as ``command`` of the module ``x_y`` of a package."""

    elsewhere: Mapping[str, tuple[str, ...]] = {}
    """Other names -> the commands that they mean."""

    def __init__(self, *args: Any, modules: str, table: Mapping[str, str], **extra: Any) -> None:
        """Take the package that holds the modules, and the one-line help of each command by its name."""
        super().__init__(*args, **extra)
        self.modules = modules
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the help page."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name` and return its command; None for an unknown name."""
        # Only names of the table are imported: get_command is asked for every word while completing.
        return self.load(cmd_name) if cmd_name in self.table else None

    def load(self, name: str) -> click.Command:
        """Return the command of a module of the package."""
        command: click.Command = importlib.import_module(f"{self.modules}.{name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begin with; the error for an unknown one names the nearest."""
        # While completing, an unknown word is no error.
        if args[0] not in self.table and not ctx.resilient_parsing:
            ctx.fail(f"no command '{args[0]}'{self._hint(args[0])}")
        return super().resolve_command(ctx, args)

    def _hint(self, word: str) -> str:
        """Return the nearest command, or the commands with this name below this group."""
        plain = word.casefold()
        if plain in self.elsewhere:
            return did_you_mean(self.elsewhere[plain])
        # A command of the same name in another group is the better guess than one that is spelled alike.
        below = [place for place in self.places() if place.endswith(f" {plain}")]
        return did_you_mean(below[:3]) or nearest(word, self.table, {})

    def places(self) -> Iterator[str]:
        """Yield every command below this group as users type it, e.g. ``trace convert``."""
        for name in self.table:
            yield name
            # Here groups are imported: only errors come this way.
            command = self.load(name)
            if isinstance(command, LazyGroup):
                yield from (f"{name} {place}" for place in command.places())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))


class DefaultGroup(LazyGroup):
    """A group with a default command: its name is followed by a subcommand, or by the arguments of the default.

    ``armillary sweep results STORE`` is the command ``results``, and ``armillary sweep FILE`` the default command;
    write ``./results`` for a file called ``results``. A subcommand may stand among options, too, unless the default
    command has such an option: ``armillary plan MODEL --serve`` is ``armillary plan serve MODEL``.
    """

    def __init__(self, *args: Any, default: str, **extra: Any) -> None:
        """Take the module of the default command."""
        super().__init__(*args, **extra)
        self._default = default

    @property
    def default(self) -> click.Command:
        """The command that the group is when no other is named."""
        return self.load(self._default)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the default command if `args` do not begin with a command of the table."""
        # The shell completes the group itself: without arguments it must see the commands and the default's
        # options.
        completing = bool(extra.get("resilient_parsing")) and not args
        words = (at for at, each in enumerate(args) if each[:2] == "--" and each[2:] in self.table)
        at = next(words, None)
        # The module of the default command is loaded only where its options are asked for.
        if at is not None and args[0] not in self.table and not self._has(args[at]):
            args = [args[at][2:], *args[:at], *args[at + 1 :]]
        if completing or (args and args[0] in self.table):
            return super().make_context(info_name, args, parent, **extra)
        return self.default.make_context(info_name, args, parent, **extra)

    def _has(self, name: str) -> bool:
        """Return whether the default command has an option of this name."""
        return any(name in (*param.opts, *param.secondary_opts) for param in self.default.params)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands, and the first argument of the default command."""
        default = self.default
        if incomplete.startswith("-"):
            return default.shell_complete(ctx, incomplete)
        # The first argument only: what follows depends on it.
        first = [param for param in default.params if isinstance(param, click.Argument)][:1]
        items = [item for param in first for item in param.shell_complete(ctx, incomplete)]
        return [*items, *super().shell_complete(ctx, incomplete)]


LONG = 8
"""Options up to which one list is read at a glance: with more they stand under headings."""
FILES = "Files to write"


class Option(click.Option):
    """An option that stands under a heading of the help page."""

    def __init__(self, *args: Any, heading: str = "", **extra: Any) -> None:
        """Take the heading; without one, an output file goes under `FILES`, and everything else under Options."""
        # A type of file says the heading, so that commands need not.
        super().__init__(*args, **extra)
        # For click's INTEGER RANGE and FLOAT RANGE; the limits stand behind the text.
        if self.metavar is None and isinstance(self.type, (type(click.INT), type(click.FLOAT))):
            self.metavar = "N" if isinstance(self.type, type(click.INT)) else "X"
        if not heading and isinstance(self.type, (OutputFile, OutputFolder, OutputPrefix)):
            heading = FILES
        self.heading = heading


def option(*names: str, **extra: Any) -> Callable[[Any], Any]:
    """Return the decorator that adds an `Option`."""
    return click.option(*names, cls=Option, **extra)


class Command(click.Command):
    """A command with examples, and of a `DefaultGroup` with the commands beside it."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), beside: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        """Take the examples as they are typed, and one-line helps of the commands that follow this one's name."""
        super().__init__(*args, **extra)
        self.examples = tuple(examples)
        self.beside = beside or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an error names this command, also where click's parser does not know it."""
        try:
            if not ctx.resilient_parsing:
                self._refuse_empty_names(ctx, args)
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def _refuse_empty_names(self, ctx: click.Context, args: Sequence[str]) -> None:
        """Refuse "" as the name of a file, which a variable that is not set leaves: a path of it is this folder."""
        if not any(each == "" or each.endswith("=") for each in args):
            return
        # What the parser alone returns are the texts as they were typed.
        typed, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for param in self.get_params(ctx):
            given = typed.get(param.name or "")
            if isinstance(param.type, click.Path | OutputFile | OutputFolder) and (
                given == "" or (isinstance(given, list | tuple) and "" in given)
            ):
                raise click.BadParameter("got '', expected the name of a file or folder", ctx, param)

    def headed(self, ctx: click.Context) -> dict[str, list[click.Parameter]]:
        """Return the options by their headings; all under Options where they are few."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        # Hidden options do not count, as they are not shown.
        if sum(not option.hidden for option in options) <= LONG + 1:  # --help is one
            return {"Options": list(options)}
        found: dict[str, list[click.Parameter]] = {}
        # sorted is stable: within a heading options stay in the order of declaration.
        for each in sorted(options, key=lambda each: getattr(each, "heading", "") in ("", FILES)):
            found.setdefault(getattr(each, "heading", "") or "Options", []).append(each)
        if "Options" in found:  # last, as --help is
            found["Options"] = found.pop("Options")
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each heading with its options."""
        for heading, options in self.headed(ctx).items():
            # Hidden options have no record.
            rows = [record for each in options if (record := each.get_help_record(ctx))]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if self.beside:
            with formatter.section("Commands"):
                formatter.write_dl(list(self.beside.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are typed: no line is wrapped."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    # formatter.write_text would wrap lines, and a wrapped command cannot be pasted.
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


PATIENCE = 20.0
"""Seconds after which a command that has not noticed ends all the same: a compiled kernel lets no Python run."""
_LATER = 0.1
"""Seconds after which a signal comes again whose error was lost."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """A signal that ends a command has arrived; the cleanup is that of Ctrl-C.

    Attributes:
        last: Of the last signal that came, Ctrl-C included; None: none did.
    """

    last: ClassVar[Ended | None] = None

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    @staticmethod
    def status(stop: BaseException | None) -> int:
        """Return the exit status, as a shell has it: 128 and the number of the signal."""
        return 128 + (stop.number if isinstance(stop, Ended) else signal.SIGINT)

    @staticmethod
    def words(stop: BaseException | None) -> str:
        """Return what happened."""
        number = stop.number if isinstance(stop, Ended) else signal.SIGINT
        return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


@contextmanager
def ended_cleanly() -> Iterator[None]:
    """Raise `Ended` when SIGTERM or SIGHUP would end this process; an ignored signal (``nohup``) stays ignored."""
    # Of this command, not of one before it in the same process.
    Ended.last = None
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if _ends(number)]
    python = signal.getsignal(signal.SIGINT)
    if python is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        with _ended_by(ours) if ours else nullcontext():
            yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, python)


@contextmanager
def _ended_by(ours: Sequence[int]) -> Iterator[None]:
    reads, writes = os.pipe()
    for end in (reads, writes):
        os.set_blocking(end, end == reads)
    done = threading.Event()
    threading.Thread(target=_watch, args=(reads, done, frozenset(ours)), daemon=True).start()
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    for number in ours:
        signal.signal(number, _raise)
    hook = sys.unraisablehook
    sys.unraisablehook = _once_more(hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        done.set()
        # Ends the thread, which closes its own end.
        os.close(writes)


def _after_fork() -> None:
    ours = [number for number in _SIGNALS if signal.getsignal(number) is _raise]
    for number in ours:
        signal.signal(number, signal.SIG_DFL)
    if ours:
        # The pipe is shared: a signal to the child would end the parent.
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _ends(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL


def _raise(number: int, _: FrameType | None) -> NoReturn:
    # Once: a second one must not interrupt the cleaning up.
    for each in _SIGNALS:
        if signal.getsignal(each) is _raise:
            signal.signal(each, signal.SIG_IGN)
    Ended.last = Ended(number)
    raise Ended.last


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Python's own error, as often as it comes: libraries know it, and who presses Ctrl-C twice means it.
    Ended.last = Ended(number)
    signal.default_int_handler(number, frame)


def _once_more(hook: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a hook for errors that nobody can catch: an error of a signal is raised again, a little later.

    If C calls Python, as LLVM does while it compiles, such an error is printed and lost.
    """

    def lost(found: Any) -> None:
        if not isinstance(found.exc_value, KeyboardInterrupt):
            hook(found)
            return
        number = found.exc_value.number if isinstance(found.exc_value, Ended) else signal.SIGINT
        if isinstance(found.exc_value, Ended):
            signal.signal(number, _raise)
        timer = threading.Timer(_LATER, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()

    return lost


def _watch(reads: int, done: threading.Event, ours: frozenset[int]) -> None:
    """End the process if a signal has come and the command has not ended after `PATIENCE`."""
    with os.fdopen(reads, "rb", buffering=0) as pipe:
        while found := pipe.read(64):
            if (number := next((each for each in found if each in ours), 0)) and not done.wait(PATIENCE):
                os._exit(128 + number)
