"""Checks that a front end fulfils its contract, to be called from the tests of the package that provides it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from armillary.base.errors import ArmillaryError, InputError
from armillary.convert import Converted, FrontEnd, front_end, report
from armillary.trace import Trace, encode, load_trace, write_trace
from armillary.trace.check_ranks import check_trace

GARBAGE = {
    # Empty, uniform, binary, plain text, and a cut document: what a file that is not a trace looks like.
    "nothing": b"",
    "zeros": bytes(64),
    "binary": bytes(range(256)) * 4,
    "text": b"to be, or not to be\n" * 20,
    "half a document": b'{"nodes": [{"id": 1, "name": ',
}
"""Inputs that no front end can convert."""


def check_front_end(name: str, inputs: Sequence[Path], **options: Any) -> None:
    """Check a front end that is built in or installed.

    It must convert the inputs to ranks that `armillary trace check` finds nothing wrong with, to the same ones when
    asked again, and leave the inputs as they are; what it says of groups and facts must fit a report; the trace must
    survive being written and read. Files that are missing, cut or garbage must be refused with an error for users.

    Args:
        name: Its entry point, or a built-in name.
        inputs: Files, or a folder of files, that it converts.
        options: Its options.

    Raises:
        AssertionError: it does not; the message says in what.
        InputError: there is none of that name.
    """
    found = front_end(name)
    _check_options(found)
    # Compared at the end: converters must not write beside their inputs.
    before = _files(inputs)
    assert before, f"inputs: got no files in {', '.join(map(str, inputs))}, expected some"
    # Twice: dictionaries and threads must not change the order of nodes.
    one, other = _converted(found, inputs, options), _converted(found, inputs, options)
    assert _files(inputs) == before, f"{name}: converting changes its inputs, or puts files beside them"
    _check_converted(name, one)
    alike = _same(one.trace, other.trace) and one.groups == other.groups
    assert alike, f"{name}: converts to another trace when asked again"
    _check_garbage(found, options)


def _check_options(found: FrontEnd) -> None:
    assert found.summary, f"{found.name}: its module has no docstring, whose first line is its help"
    for option in found.options:
        what = f"{found.name}: option {option.name}"
        assert option.help, f"{what} has no help: a line of 'Args:' in the docstring of convert"
        default, kind = option.default, option.kind
        # None and "no default" fit every type.
        fits = default in (None, inspect.Parameter.empty) or isinstance(default, kind)
        assert fits, f"{what} is {default!r} by default, expected of type {kind.__name__}"


def _converted(found: FrontEnd, inputs: Sequence[Path], options: dict[str, Any]) -> Converted:
    try:
        return found.convert(inputs, **options)
    except ArmillaryError as error:
        raise AssertionError(f"{found.name} does not convert its inputs: {error}") from error


def _check_converted(name: str, converted: Converted) -> None:
    trace = converted.trace
    assert trace.total_nodes, f"{name}: converts to no nodes"
    for number, ranks in converted.groups.items():
        wrong = [rank for rank in ranks if not 0 <= rank < trace.n_ranks]
        assert not wrong, (
            f"{name}: group {number} has rank {wrong[:1]}, expected ranks 0 to {trace.n_ranks - 1}"
        )
    errors = [each for each in check_trace(trace, dict(converted.groups)).all if each.severity == "error"]
    assert not errors, f"{name}: {errors[0].message}"
    # Facts are written into reports.
    try:
        json.dumps(report(converted))
    except TypeError as error:
        raise AssertionError(f"{name}: facts are no JSON values: {error}") from error
    for text in (*converted.warnings, *converted.statements):
        assert isinstance(text, str) and text and "\n" not in text, (
            f"{name}: warning {text!r}, expected a line of text"
        )
    # What the format cannot represent (a name, an attribute) shows only here.
    with TemporaryDirectory() as folder:
        prefix = Path(folder) / "trace"
        write_trace(prefix, trace)
        assert _same(load_trace(prefix), trace), (
            f"{name}: its trace is another one when written and read again"
        )


def _check_garbage(found: FrontEnd, options: dict[str, Any]) -> None:
    # What another package raises becomes an error for users: here it must be one from the start.
    # `unwrap` gives the function below the guard that turns all exceptions into errors for users.
    convert = inspect.unwrap(found.convert)
    with TemporaryDirectory() as folder:
        tries = {"no file": [Path(folder) / "missing"]}
        for what, data in GARBAGE.items():
            tries[what] = [Path(folder) / what.replace(" ", "-")]
            tries[what][0].write_bytes(data)
        for what, paths in tries.items():
            try:
                convert(paths, **options)
            # Errors of the file system are understood by users, too.
            except (InputError, OSError):
                continue
            except Exception as error:
                raise AssertionError(
                    f"{found.name}: {what} raises {error!r}, expected an InputError"
                ) from error
            raise AssertionError(f"{found.name}: converts {what}, expected an InputError")


def _files(inputs: Iterable[Path]) -> dict[Path, bytes]:
    """Return the content of all files in the folders of some inputs."""
    # Of a single file its folder, so that new files beside it are seen.
    folders = {path if path.is_dir() else path.parent for path in map(Path, inputs)}
    return {
        file: file.read_bytes() for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()
    }


def _same(one: Trace, other: Trace) -> bool:
    if one.n_ranks != other.n_ranks:
        return False
    # Ranks may share graphs in one and not in the other: compare each pair of graphs once.
    pairs = set(zip(one.rank_graph.tolist(), other.rank_graph.tolist(), strict=True))
    return all(encode(one.graphs[a]) == encode(other.graphs[b]) for a, b in pairs)
