"""ASTRA-sim's folder of logs, and its configuration of loggers.

``log.log`` gets all lines, ``err.log`` errors; both are appended to, and turned over at 10 MiB (``log.1.log`` is the
one before). The configuration is TOML of the library spdlog_setup. It only adds: a file that a logger names gets its
lines, and a console that it names also those of level debug.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.base.document import read_text
from armillary.base.errors import InputError
from armillary.base.files import append, write_text
from armillary.base.hints import show
from armillary.report.astra_log.result_log import LogText

MOST, KEPT = 10 * 2**20, 10
"""Bytes of a file before it is turned over, and how many such files stay."""
LEVELS = {
    "trace": 0, "debug": 1, "info": 2, "warn": 3, "warning": 3, "err": 4, "error": 4, "critical": 5, "off": 6,
}  # fmt: skip
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Sink:
    """Where a logger's lines go as well.

    Attributes:
        logger: Its name.
        level: Least level of its lines, by `LEVELS`.
        file: None: standard output.
        most: Bytes before it is turned over; None: never.
        kept: Files that stay then.
        anew: Whether it begins empty.
    """

    logger: str
    level: int
    file: Path | None = None
    most: int | None = None
    kept: int = KEPT
    anew: bool = False

    def wants(self, logger: str, level: str) -> bool:
        """Tell whether it gets a line."""
        return logger == self.logger and LEVELS[level] >= self.level


@dataclass(frozen=True)
class Logging:
    """What a configuration of loggers adds, and what of it has no effect."""

    sinks: tuple[Sink, ...] = ()
    warnings: tuple[str, ...] = ()

    def console(self, text: LogText) -> str:
        """Return the lines of standard output: the usual ones, and those that a console of this wants."""
        wanted = [sink for sink in self.sinks if sink.file is None]
        if not any(sink.level < LEVELS["info"] for sink in wanted):
            return text.console
        lines = text.detail.splitlines(keepends=True)
        return "".join(line for line in lines if _level(line) >= LEVELS["info"] or _wanted(line, wanted))


def read_logging(path: str | os.PathLike[str] | None) -> Logging:
    """Read a configuration of loggers; None and "empty" mean none.

    Raises:
        InputError: it cannot be read, is no TOML, or names a sink that it does not define or an unknown level.
    """
    if path is None or os.fspath(path) == "empty":
        return Logging()
    try:
        data = tomllib.loads(read_text(Path(path), "logging configuration"))
    # ValueError: what is no TOML, and a number of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no TOML ({error}), expected a logging configuration") from error
    warnings = [f"{path}: {key} has no effect" for key in data if key not in ("sink", "logger")]
    known = {_text(path, "sink", row, "name"): row for row in _rows(path, data, "sink")}
    sinks = []
    for row in _rows(path, data, "logger"):
        logger = _text(path, "logger", row, "name")
        names = row.get("sinks", [])
        if not isinstance(names, list):
            raise InputError(f"{path}: logger {logger}: sinks is {show(names)}, expected a list of names")
        for name in names:
            if not isinstance(name, str) or name not in known:
                raise InputError(
                    f"{path}: logger {logger}: sink {show(name)} is not defined, expected a [[sink]] of it"
                )
            least = max(_least(path, row, "trace"), _least(path, known[name], "trace"))
            made = _sink(path, logger, least, known[name], warnings)
            sinks += [made] if made else []
    return Logging(tuple(sinks), tuple(dict.fromkeys(warnings)))


def _rows(path: object, data: dict[str, Any], key: str) -> Iterable[dict[str, Any]]:
    rows = data.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: {key} is {show(rows)}, expected [[{key}]] tables")
    return rows


def _text(path: object, where: str, row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{path}: {where}: {key} is {show(value)}, expected a name")
    return value


def _least(path: object, row: dict[str, Any], default: str) -> int:
    level = row.get("level", default)
    if not isinstance(level, str) or level not in LEVELS:
        raise InputError(f"{path}: level {show(level)}, expected one of {', '.join(LEVELS)}")
    return LEVELS[level]


def _sink(path: object, logger: str, level: int, row: dict[str, Any], warnings: list[str]) -> Sink | None:
    kind = str(row.get("type", ""))
    name = f"{path}: sink {row['name']}"
    if kind.startswith(("stdout", "color_stdout")):
        return Sink(logger, level)
    # The rest of a type says whether threads share it.
    if not kind.startswith(("basic_file", "rotating_file")):
        warnings.append(f"{name}: type {show(row.get('type'))} has no effect; files and standard output have")
        return None
    rotating = kind.startswith("rotating")
    file = Path(_text(path, f"sink {row['name']}", row, "base_filename" if rotating else "filename"))
    try:
        inside = file.resolve().is_relative_to(Path.cwd().resolve())
    # RuntimeError: a link that leads to itself; ValueError: a name with a NUL.
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{name}: {show(str(file))} is not a file name ({error}), expected one below the current folder"
        ) from None
    # A configuration may come from others: it must not write anywhere else.
    if not inside:
        warnings.append(f"{name}: {file} is not below the current folder: not written")
        return None
    most = _size(row.get("max_size", MOST)) if rotating else None
    kept = row.get("max_files", KEPT) if rotating else KEPT
    if rotating and (most is None or not isinstance(kept, int) or not 0 <= kept <= 1000):
        raise InputError(
            f"{name}: max_size or max_files, expected a size such as '1M', and a number up to 1000"
        )
    return Sink(logger, level, file, most, int(kept), bool(row.get("truncate", False)))


def _size(value: object) -> int | None:
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)", str(value).strip().upper())
    # A file of no bytes would be turned over for ever.
    return max(int(match[1]) * _UNITS[match[2]], 1) if match else None


def write_log_files(lines: LogText, folder: str | os.PathLike[str], logging: Logging | None = None) -> None:
    """Append a log to ``log.log`` and ``err.log`` of a folder, and to the files of a configuration.

    Raises:
        InputError: a file cannot be written.
    """
    with folder_of_logs(folder):
        text = lines.detail
        # Levels are found line by line only where that is asked for.
        errors = [line for line in text.splitlines(keepends=True) if _level(line) >= LEVELS["error"]] if (
            "] [error] " in text or "] [critical] " in text
        ) else []  # fmt: skip
        append_lines(Path(folder, "log.log"), text, MOST, KEPT)
        append_lines(Path(folder, "err.log"), "".join(errors), MOST, KEPT)
        for sink in logging.sinks if logging else ():
            if sink.file is not None:
                wanted = (line for line in text.splitlines(keepends=True) if _wanted(line, [sink]))
                append_lines(sink.file, "".join(wanted), sink.most, sink.kept, anew=sink.anew)


def _parts(line: str) -> Sequence[str]:
    # "[time] [logger] [level] message"
    return [word.strip("[]") for word in line.split("] ", 3)[:3]]


def _level(line: str) -> int:
    return LEVELS[_parts(line)[2]]


def _wanted(line: str, sinks: Iterable[Sink]) -> bool:
    _, logger, level = _parts(line)
    return any(sink.wants(logger, level) for sink in sinks)


@contextmanager
def folder_of_logs(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Make the folder of logs, but none above it, as that program does; it goes again if nothing comes to stand there.

    Raises:
        InputError: it cannot be made.
    """
    path = Path(folder)
    there = path.is_dir()
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--logging-folder {os.fspath(folder)}: cannot be made ({error.strerror}), expected one in a "
            "folder that exists"
        ) from error
    try:
        yield
    except BaseException:
        if not there:
            with suppress(OSError):
                path.rmdir()
        raise


def append_lines(path: Path, text: str, most: int | None, kept: int, *, anew: bool = False) -> None:
    """Append lines to a file, and turn it over before a line that would make it larger than `most` bytes.

    Args:
        path: The file; it is made if the text is empty, too.
        text: Whole lines.
        most: None: never turned over.
        kept: Files that stay: ``log.1.log`` is the youngest.
        anew: Empty it first.

    Raises:
        InputError: it cannot be written.
    """
    rest = text.encode()
    try:
        if anew:
            write_text(path)
        while True:
            size = path.stat().st_size if path.exists() else 0
            room = len(rest) if most is None else most - size
            cut = len(rest) if len(rest) <= room else rest.rfind(b"\n", 0, max(room, 0)) + 1
            # A line that is larger than a file has one of its own.
            if rest and not cut and not size:
                cut = rest.index(b"\n") + 1
            append(path, rest[:cut])
            rest = rest[cut:]
            if not rest:
                return
            _turn_over(path, kept)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}), expected a file for a log"
        ) from error


def _turn_over(path: Path, kept: int) -> None:
    def older(number: int) -> Path:
        return path.with_name(f"{path.stem}.{number}{path.suffix}") if number else path

    if not kept:
        path.unlink()
    for number in range(kept, 0, -1):
        if older(number - 1).exists():
            older(number - 1).replace(older(number))
