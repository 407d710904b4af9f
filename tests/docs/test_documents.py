"""Every code block of the README and the manual is run, and every transcript compared.

A page runs top to bottom in one empty folder: ``python`` blocks share one namespace, a block under
``<!-- file: NAME -->`` is written to that file, a ``console`` block is a transcript whose ``$ `` lines
are run and whose output must match (``...`` stands for anything, as in doctest).
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import armillary
from armillary.base import extension
from armillary.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^>]*?) -->\n)?^```(?P<language>[\w{}-]*)[^\n]*\n(?P<text>.*?)^```$", re.S | re.M
)
INSTALL = (
    "git clone",
    "cd ",
    "pip install",
    "python3 -m venv",
    "make test",
    "make lint",
    "make docs",
    "make bench",
    ".ci/run",
)


class Block(NamedTuple):
    """A fenced block: its language, text, the file it is to be written to, and its line."""

    language: str
    text: str
    file: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    source = page.read_text()
    for match in BLOCK.finditer(source):
        note = match["note"] or ""
        line = source.count("\n", 0, match.start("text")) + 1
        yield Block(
            match["language"],
            match["text"],
            note.removeprefix("file: ") if note.startswith("file: ") else "",
            line,
        )


def steps(transcript: str) -> Iterator[tuple[str, str]]:
    """Yield (command, expected output) of a console block."""
    for part in re.split(r"^\$ ", transcript, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command = command[:-1] + more.strip()
        yield command, expected


def run_command(command: str) -> str:
    """Run one command of a transcript and return what a terminal would show."""
    command = command.replace("make demo", "armillary demo").split("  #")[0]
    words = shlex.split(command)
    if words[0] == "cat":
        return "".join(Path(name).read_text() for name in words[1:])
    if words[0] == "python":
        return run_python(Path(words[1]).read_text(), {"__name__": "__main__"})
    assert words[0] == "armillary", f"do not know how to run {command!r}"
    return CliRunner().invoke(main, words[1:], catch_exceptions=False).output


def run_python(source: str, names: dict[str, object]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(source, "<document>", "exec"), names)
    return out.getvalue()


def same(expected: str, got: str) -> bool:
    tidy = [re.sub(r"[ \t]+\n", "\n", text).strip() + "\n" for text in (expected, got)]
    return doctest.OutputChecker().check_output(tidy[0], tidy[1], doctest.ELLIPSIS)


PATCHED = {"ten-changes.md"}
"""Pages whose commands run with patches applied, in `tests/newcomer`."""
LONG = {
    "calibrate-gemm.md",
    "calibrate-your-cluster.md",
    "comparison.md",
    "extrapolate.md",
    "obfuscate.md",
    "reproduce.md",
    "serve.md",
    "calibrate-training.md",
    "networks.md",
    "in-network.md",
    "tutorial-memory-or-network.md",
    "tutorial-budget.md",
    "tutorial-machine.md",
    "tutorial-price.md",
    "tutorial-serving.md",
    "variation.md",
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in LONG), id=str(page.relative_to(ROOT)))
        for page in PAGES
        if page.name not in PATCHED
    ],
)
def test_page_runs_as_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", [*sys.path])  # what a page adds ends with it
    monkeypatch.setattr(extension, "_added", {})
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
        elif block.language == "python":
            printed = run_python(block.text, names)
        elif block.language == "text":
            assert same(block.text, printed), f"{where}: the page promises\n{block.text}\nbut got\n{printed}"
        elif block.language == "console":
            for command, expected in steps(block.text):
                if command.startswith(INSTALL):
                    continue
                got = run_command(command)
                assert same(expected, got), f"{where}: $ {command}\npromises\n{expected}\nbut got\n{got}"


def test_local_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_reference_has_all_that_the_package_gives() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference" / "api").glob("*.md"))
    names = {name: getattr(armillary, name) for name in dir(armillary) if not name.startswith("_")}
    lacking = [
        name
        for name, what in names.items()
        if callable(what)
        and not re.search(rf"armillary\.{name}$|:members:.*\b{name}\b|\.{name}$", pages, re.M)
    ]
    assert not lacking


def test_every_file_of_a_page_has_its_name_above_it() -> None:
    """`docs/conf.py` shows the name where the note stands on the line before the block."""
    for page in PAGES[1:]:
        notes = page.read_text().count("<!-- file: ")
        assert notes == sum(bool(block.file) for block in blocks(page)), page
