"""Made-up suites, beside the real ones."""

import sys
from types import ModuleType

import pytest

from armillary.cli import COMMANDS
from armillary.evidence.validate import suites
from armillary.evidence.validate.table import Bar, Row, Suite, Table


def table(files, progress):
    """Return four rows, the last refused; of given files one row for each, named after it."""
    rows = [
        Row("1 [MiB] <b>", 100.0, 110.0, "small", 90.0, 120.0),
        Row("2 MiB", 200.0, 190.0, "small", 180.0, 195.0),
        Row("1 GiB", 1000.0, 700.0, "large"),
        Row("2 GiB", 2000.0, float("nan"), "large", reason="no data of fp4"),
    ]
    rows = [Row(path.name, 1.0, 1.1) for path in files] or rows
    progress(len(rows), len(rows))
    part = Table("one left out", "Made up", "us", "nowhere", (rows[0],), "held out", Bar(0.2))
    return Table(
        "made-up", "Made up", "us", "nowhere", tuple(rows), "blind", Bar(0.15, 0.3), ("A note.",), (part,)
    )


def quiet(name, needs, columns):
    """Return a suite of one row that reads files with `columns`."""
    return Suite(
        name, name, needs, lambda files, _: Table(name, name, "s", "", (Row("a", 1, 1),), "blind"), columns
    )


@pytest.fixture
def made_up(monkeypatch):
    """Put made-up suites in the place of the real ones, and the command where it is found."""
    module = ModuleType("armillary.evidence.validate.made_up")
    module.SUITES = (
        Suite("made-up", "Made up", "", table, ("# GPUs", "time (ms)")),
        quiet("wider", "wide/some.csv", ("# GPUs", "time (ms)", "model")),
        quiet("of-folder", "wide", ("op", "bytes")),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(suites, "MODULES", ("made_up",))
    monkeypatch.setitem(COMMANDS, "validate", "Compare predictions with measurements of real machines.")
    return module.SUITES
