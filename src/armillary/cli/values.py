"""What options take: files to write, and names that the shell completes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from armillary.base.errors import InputError
from armillary.base.files import (
    check_folder,
    check_prefix,
    check_writable,
    is_standard_output,
    kept_standard_output,
)
from armillary.base.units import whole

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _begins(where: str, *, files: bool = True) -> Completer:
    """Return what completes the names that "module:function" lists, or those of files too."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Imported when the shell asks for it: completion must not load the package.
        module, _, function = where.partition(":")
        names: Iterable[str] = getattr(importlib.import_module(f"armillary.{module}"), function)()
        # In bash an item of type file drops the items before it: it goes first.
        first = [CompletionItem(incomplete, type="file")] if files else []
        return [*first, *(CompletionItem(name) for name in names if name.startswith(incomplete))]

    return complete


complete_models = _begins("workload.models:preset_names")
complete_machines = _begins("platform.files.preset:preset_names")
complete_devices = _begins("compute.gpu.device:gpu_names")
complete_fits = _begins("collective.fitted:fit_names")
complete_costs = _begins("explore.cost:cost_preset_names")
complete_failures = _begins("explore.whole_run.failures:failure_preset_names")
complete_software = _begins("explore.training.fitted:stack_names")
complete_formats = _begins("convert:names", files=False)


def names(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    """Return the names of an option with commas; whether they are known is checked by what takes them."""
    return None if text is None else [word.strip() for word in text.split(",")]


def whole_numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> list[int] | None:
    """Return the whole numbers of an option with commas.

    Raises:
        InputError: one is none.
    """
    if text is None:
        return None
    found = [number for word in text.split(",") if (number := whole(word.strip())) is not None]
    if len(found) < text.count(",") + 1:
        raise InputError(f"{parameter.opts[0]} '{text}': expected whole numbers, e.g. 8,9,9,6")
    return found


# A key of click's context, which all options of a command share.
_SEEN = "armillary.written"

if TYPE_CHECKING:
    _Path: TypeAlias = click.ParamType[Path]
    _Text: TypeAlias = click.ParamType[str]
else:  # it takes no type before click 8.4
    _Path = _Text = click.ParamType


class OutputFile(_Path):
    """A file to write; ``-`` is standard output, on which nothing else is then printed.

    `check` is ``module:function`` of what refuses, for this file, a suffix or an extra that is not installed;
    without `stream` it cannot be a pipe or a terminal.
    """

    name = "file"

    def __init__(self, check: str = "", *, stream: bool = True) -> None:
        self._check, self._stream = check, stream

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path.

        Raises:
            InputError: it cannot be written, or another option writes it.
        """
        option = _option(param)
        # "-" by its path, so that writers need not know of it.
        path = Path("/dev/stdout" if os.fspath(value) == "-" else value)
        if self._check:
            # Imported when the option is used: the check may need an extra.
            module, function = self._check.split(":")
            getattr(importlib.import_module(module), function)(path)
        # Before any work: a simulation of minutes must not end at a folder that is not there.
        check_writable(option, path, stream=self._stream)
        if ctx is not None:
            _claim(ctx, option, path)
            if is_standard_output(path):
                # Nothing else may be printed to standard output from now on.
                ctx.with_resource(kept_standard_output())
        return path


class OutputPrefix(_Text):
    """What names of files begin with; `sample` completes one of them."""

    name = "prefix"

    def __init__(self, sample: str) -> None:
        self._sample = sample

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the prefix.

        Raises:
            InputError: no file can be written there.
        """
        text = str(value)
        check_prefix(_option(param), text)
        check_writable(_option(param), f"{text}{self._sample}")
        if ctx is not None:
            _claim(ctx, _option(param), Path(f"{text}{self._sample}"))
        return text


class OutputFolder(_Path):
    """A folder to write to, made where it is missing; a `new` one may be there, but empty."""

    name = "folder"

    def __init__(self, *, new: bool = False) -> None:
        self._new = new

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the folder.

        Raises:
            InputError: nothing can be written there.
        """
        folder = Path(value)
        check_folder(_option(param), folder)
        # An existing folder might hold files that a shorter run would leave among the new ones.
        if self._new and folder.is_dir() and any(folder.iterdir()):
            raise InputError(
                f"{_option(param)} {folder}: is there already, expected a new or an empty folder"
            )
        return folder


def _option(param: click.Parameter | None) -> str:
    return next(name for name in param.opts if name.startswith("--")) if param else "output"


def _claim(ctx: click.Context, option: str, path: Path) -> None:
    """Refuse a file that another option writes too; what is thrown away may be thrown away twice."""
    if os.path.realpath(path) == os.devnull:
        return
    # realpath: two names of one file are one file.
    seen: dict[str, str] = ctx.meta.setdefault(_SEEN, {})
    # setdefault returns who claimed the file first: this option, or another.
    if (other := seen.setdefault(os.path.realpath(path), option)) != option:
        raise InputError(f"{option} {path}: {other} writes the same file")


OUTPUT = OutputFile()
OUTPUT_FOLDER = OutputFolder()
NEW_FOLDER = OutputFolder(new=True)
STORE = OutputFile(stream=False)
LINKS = OutputFile("armillary.report.link_picture:check_links_file")
PICTURE = OutputFile("armillary.base.pictures:check_picture")
PAGE = OutputFile("armillary.base.page:check_page")
PLOTTED_PAGE = OutputFile("armillary.base.pictures:check_matplotlib")
"""A page with pictures in it."""
