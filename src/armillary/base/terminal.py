"""Output for people: texts from untrusted files are printed literally and cannot control the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from armillary.base.text import COMMANDS, printable

if TYPE_CHECKING:
    from rich.console import Console


class _Printable(io.TextIOWrapper):
    """Standard output or standard error, through `printable`."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        super().__init__(
            stream.buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )  # fmt: skip
        self.unfiltered = stream

    def write(self, text: str, /) -> int:
        """Write; returns the length of what was given."""
        super().write(printable(text))
        return len(text)


@contextmanager
def printable_output() -> Iterator[None]:
    """Prevent printed text from controlling the terminal, except through `console` and `unfiltered`."""
    before = sys.stdout, sys.stderr
    wrapped = [_Printable(each) if isinstance(each, io.TextIOWrapper) else each for each in before]
    sys.stdout, sys.stderr = wrapped
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for each in wrapped:
            if isinstance(each, _Printable):
                with suppress(BrokenPipeError):
                    # Detached, or the stream below would be closed with the wrapper.
                    each.detach()


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream that `printable_output` wraps, for bars and spinners, which do control the terminal."""
    if isinstance(stream, _Printable):
        stream.flush()
        return stream.unfiltered
    return stream


def console(file: TextIO | None = None, **options: Any) -> Console:
    """Return a rich console that reads no markup in strings and passes no control characters on.

    Args:
        file: Where to; by default standard output.
        options: Those of rich's ``Console``.
    """
    known = {"highlight": False, "markup": False, "emoji": False} | options
    made: Console = _literal()(file=unfiltered(file or sys.stdout), **known)
    return made


@cache
def _literal() -> Any:
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    class Literal(Console):
        """Its strings and texts hold no commands; those of rich itself, such as colours, are no part of them."""

        def print(self, *objects: Any, **options: Any) -> None:
            # What is printed as such may have lines.
            texts = (Text(printable(each)) if isinstance(each, str) else each for each in objects)
            super().print(*texts, **options)

        def render_str(self, text: str, **options: Any) -> Any:
            # A cell, a title, a heading: a name in it forges no row. What has lines of its own is a Text.
            return super().render_str(printable(text).replace("\n", " "), **options)

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                # Control segments are rich's own, e.g. the movement of a progress bar.
                if segment.control is None and COMMANDS.search(segment.text):
                    yield Segment(printable(segment.text), segment.style)
                else:
                    yield segment

    return Literal
