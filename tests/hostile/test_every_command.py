"""Every command on files whose every string is hostile: on terminals and in files, text stays text."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner
from hostile_calls import CALLS
from hostile_world import spoil_store, write_world

from armillary.cli import main
from armillary.cli.command import DefaultGroup

# What commands a terminal; and what a line of ours never begins with.
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FORGED = re.compile(r"^[\W_]*FORGED: fine[\W_]*$", re.MULTILINE)
ACTIVE = re.compile(r"<(img|svg/onload|a href=.javascript)|<script>window|onmouseover='window", re.IGNORECASE)
TEXTS = (
    ".html",
    ".svg",
    ".graphml",
    ".xml",
    ".json",
    ".csv",
    ".dot",
    ".yaml",
    ".md",
    ".sh",
    ".toml",
    ".txt",
    ".result",
)
SLOW = {"capture", "trace collect", "demo", "generate learn evaluate", "trace replay"}
QUICK = {
    "trace info",
    "trace graph",
    "explain",
    "machine show",
    "generate show",
    "collective show",
}


def leaves(command: click.Command, name: str = "") -> Iterator[str]:
    """Yield the commands as they are called; a group's own command by the name of the group."""
    if isinstance(command, DefaultGroup):
        yield name
    if isinstance(command, click.Group):
        context = click.Context(command, help_option_names=["-h", "--help"])
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield from leaves(inner, f"{name} {each}".strip())
    else:
        yield name


def test_every_command_is_here() -> None:
    """A study that is reproduced takes numbers only, and `all` calls them."""
    there = {name for name in leaves(main) if not re.fullmatch("validate reproduce (?!all).*", name)}
    assert set(CALLS) == there


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, full of hostile files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    write_world(tmp_path)
    return tmp_path


def called(name: str, words: list[str]) -> None:
    """Run a command in this process and judge what it printed."""
    done = CliRunner().invoke(main, [*name.split(), *words])
    said = (name, words, done.output[-2000:])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(said) from done.exception
    assert done.exit_code in (0, 1, 2, 3), said
    for stream in (done.stdout, done.stderr):
        found = COMMANDS.search(stream) or FORGED.search(stream)
        assert not found, (found, *said)
    if done.exit_code == 2:
        assert len(done.stderr.strip().splitlines()) <= 2 or "needs a command" in done.stderr, said


def judge(path: Path) -> None:
    """Look at a file by the rules of its format."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data, path = gzip.decompress(data), path.with_suffix("")
    if path.suffix not in TEXTS or data[:4] in (b"PK\x03\x04", b"SQLi"):
        return
    text = data.decode("utf-8")
    # Scripts of parts of others may have a few.
    read = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL) if path.suffix == ".html" else text
    assert not COMMANDS.search(read), (path, COMMANDS.search(read))
    {".html": page, ".csv": table, ".json": document, ".svg": xml, ".graphml": xml, ".xml": xml}.get(
        path.suffix, lambda path, text: None
    )(path, text)


def page(path: Path, text: str) -> None:
    """All scripts are ours, no handler is an attribute, and nothing is loaded."""

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("img", "iframe", "object", "embed", "link", "base", "form"), (path, tag)
            for key, value in attrs:
                assert not key.startswith("on") and key != "src", (path, tag, key, value)
                assert not key.endswith("href") or (value or "").startswith("#"), (path, tag, key, value)

    Reader().feed(text)
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not ACTIVE.search(outside), (path, ACTIVE.search(outside))
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL):
        assert "<" not in data
        json.loads(data)
    assert "script-src" in text and "default-src 'none'" in text


def table(path: Path, text: str) -> None:
    """No cell begins a formula, for readers of other separators too."""
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) == 1, path
    for separator in ",;\t":
        for row in csv.reader(io.StringIO(text), delimiter=separator):
            for cell in row:
                assert not re.match(r"\s*[=@]|\s*[+-](?![\d.]|$|inf|nan)", cell), (path, separator, cell)


def document(path: Path, text: str) -> None:
    for each in [text] if text.lstrip().startswith(("{", "[")) else text.splitlines():
        json.loads(each)


def xml(path: Path, text: str) -> None:
    for element in ElementTree.fromstring(text.encode()).iter():
        name = str(element.tag).rpartition("}")[2]
        assert name not in ("script", "img", "foreignObject", "a") or path.suffix != ".svg", (path, name)
        places = [value for key, value in element.attrib.items() if key.endswith("href")]
        assert all(value.startswith(("#", "data:image/png;")) for value in places), (path, places)
        assert not any(key.lower().startswith("on") for key in element.attrib), (path, element.attrib)


def everything(world: Path, names: list[str]) -> None:
    before = {path for path in world.rglob("*") if path.is_file()}
    for name in names:
        for words in CALLS[name]:
            called(name, words)
        if name == "sweep":
            spoil_store(world / "store.db")
    for path in world.rglob("*"):
        if path.is_file() and path not in before:
            judge(path)
    assert not (world / "pwned").exists()


def test_some_commands(world: Path) -> None:
    called("run", CALLS["run"][0])
    everything(world, [name for name in CALLS if name in QUICK])


@pytest.mark.slow
def test_all_commands(world: Path) -> None:
    everything(world, [name for name in CALLS if name not in SLOW])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
def test_slow_commands(world: Path, name: str) -> None:
    if name == "generate learn evaluate":
        pytest.importorskip("scipy")
    everything(world, [name])


def test_the_judge_finds_what_is_wrong(tmp_path: Path) -> None:
    for name, text in {
        "a.html": "<b onclick=x>default-src 'none' script-src", "b.html": "<img src=x>default-src 'none' script-src",
        "c.html": "<p>no policy", "d.csv": "a,b\n=1,2\n", "e.csv": "a,b\nx,y;=1\n", "f.json": '{"a": "\x9b"}',
        "g.json": '{"a": NaN', "h.svg": "<svg onload='x'/>", "i.csv": "a,b\n1\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
        with pytest.raises((AssertionError, ValueError)):
            judge(tmp_path / name)
    shutil.rmtree(tmp_path)
