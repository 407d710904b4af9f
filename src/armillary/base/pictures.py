"""Pictures by matplotlib: .png, .svg or .pdf, the same bytes for the same figure."""

from __future__ import annotations

import importlib
import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError, one_of
from armillary.base.files import replacing
from armillary.base.text import xml_document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check_picture(path: str | os.PathLike[str]) -> None:
    """Refuse early what `save_figure` could not write.

    Raises:
        InputError: the suffix is none of `SUFFIXES`, or matplotlib is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: suffix {suffix!r}, expected {one_of(SUFFIXES)}")
    check_matplotlib()


def check_matplotlib(*_: object) -> None:
    """Refuse early what needs a picture, whatever its file.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise InputError("pictures need matplotlib: pip install armillary[plot]") from error


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches, whose parts make room for each other.

    Raises:
        InputError: matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # measures texts without a screen
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: float = 150) -> None:
    """Write a figure to a file, complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as temporary:
        _print(figure, temporary, Path(path).suffix[1:].lower(), dpi)


def svg_text(figure: Figure) -> str:
    """Return a figure as the element ``<svg>`` of a page."""
    text = io.StringIO()
    _print(figure, text, "svg", 150)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _print(figure: Figure, file: Any, kind: str, dpi: float) -> None:
    from matplotlib import rc_context

    # A fixed salt and no date give the same bytes for the same figure.
    _make_literal(figure)
    with rc_context({"svg.hashsalt": "armillary"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a letter the font lacks becomes a box
        warnings.filterwarnings("ignore", message="constrained_layout")  # a name longer than the picture
        figure.savefig(file, format=kind, dpi=dpi, metadata=_NO_DATE.get(kind, {}))


def _make_literal(figure: Figure) -> None:
    """Let names be drawn as they are: matplotlib takes what stands between dollars for TeX."""
    from matplotlib.category import StrCategoryFormatter
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter, FuncFormatter

    for text in figure.findobj(Text):
        # Powers of ten on a logarithmic scale are TeX by matplotlib itself.
        if "\\mathdefault" not in text.get_text():
            text.set_text(xml_document(text.get_text()))
            text.set_parse_math(False)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            given = axis.get_major_formatter()
            if isinstance(given, FixedFormatter | FuncFormatter | StrCategoryFormatter):
                for tick in axis.get_major_ticks():
                    tick.label1.set_parse_math(False)
                    tick.label2.set_parse_math(False)
                axis.set_major_formatter(_literal_ticks(given))


def _literal_ticks(given: Any) -> Any:
    from matplotlib.ticker import Formatter

    class Literal(Formatter):
        """The texts of another formatter, of which none is TeX."""

        def __call__(self, value: Any, position: Any = None) -> str:
            return xml_document(given(value, position))

        def format_ticks(self, values: Any) -> list[str]:
            return [xml_document(text) for text in given.format_ticks(values)]

        def set_locs(self, locs: Any) -> None:
            given.set_locs(locs)

    return Literal()
