"""Names of strangers' files: shown as they are, never read as markup, and never a command to the terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.cli import main
from armillary.trace import GraphBuilder, Trace, write_trace

Call = Callable[[str], Result]
NAMES = (
    "reduce_kernel[with T=float]",
    "a[/]b",
    "[/bold]",
    "[bold]x",
    "[link=http://x]y[/link]",
    ":warning:",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[31mred",
    "\x9b31m",
    "one\rtwo",
    "one\ntwo",
    "\u202etxt.exe",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "\\[x]\\",
)
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

STUDY = """\
workload: {{trace: bad}}
platform:
  name: {name}
  network:
    - {{name: {name}, topology: Ring, size: 4, bandwidth: 50 GB/s, latency: 500 ns}}
  npu: {{memory: {{bandwidth: 2 TB/s}}}}
"""
WORDS = (
    "trace stats bad",
    "trace stats bad.0.et",
    "trace info bad.0.et",
    "trace diff bad.0.et other.0.et",
    "trace diff bad other",
    "trace check bad",
    "trace dump bad.0.et",
    "trace json bad.0.et",
    "trace slice bad.0.et -o cut.et --name .",
    "trace timeline bad -o t.json",
    "trace graph bad.0.et -o g.dot",
    "trace obfuscate bad -o hidden --names",
    "trace attack bad",
    "run bad.yaml --json run.json --save run.npz --timeline run.tl.json",
    "explain run.npz",
    "explain run.npz",
    "compare bad.yaml run.npz",
    "compare bad.yaml fine.yaml",
    "machine show bad.yaml",
    "run keys.yaml",
    "machine show keys.yaml",
    "run bad.yaml --plot x.[/]",
    "collective show [/]x --ranks 4",
    "generate show [/]x",
    "sweep results [/]x",
)


def write(name: str) -> None:
    """Write a trace, a study and a study with a wrong key that hold `name` wherever a name can stand."""
    for prefix, text in (("bad", name), ("other", name + "2"), ("fine", "plain")):
        builder = GraphBuilder()
        work = builder.compute(text, duration_micros=20)
        builder.all_reduce(text, size="1 MiB", after=[work])
        write_trace(prefix, Trace.replicate(builder.graph(), ranks=4))
    quoted = json.dumps(name or "x")
    Path("bad.yaml").write_text(STUDY.format(name=quoted).replace("  name: " + quoted + "\n", "", 1))
    Path("fine.yaml").write_text(
        STUDY.format(name="node").replace("  name: node\n", "", 1).replace("bad", "fine")
    )
    Path("keys.yaml").write_text(f"workload: {{trace: bad}}\n{quoted}: 1\nplatform: {{network: []}}\n")


def holds(call: Call, words: str) -> Result:
    made = call(words)
    assert made.exit_code in (0, 1, 2), (words, made.output, made.exception)
    assert made.exception is None or isinstance(made.exception, SystemExit), (words, made.exception)
    assert not COMMANDS.search(made.output), (words, made.output)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_a_command(inputs: Path, call: Call, name: str) -> None:
    write(name)
    for words in WORDS:
        holds(call, words)


@pytest.mark.parametrize("name", ["reduce_kernel[with T=float]", "a[/]b", "[bold]x", ":warning:"])
def test_names_are_shown_as_they_are(inputs: Path, call: Call, name: str) -> None:
    write(name)
    wraps = len(name) > 12
    for words in (
        "trace stats bad", "trace diff bad.0.et other.0.et --json -" if wraps else "trace diff bad.0.et other.0.et",
        "run bad.yaml", "machine show bad.yaml", "compare bad.yaml fine.yaml", "trace stats bad --json -",
    ):  # fmt: skip
        assert name in holds(call, words).output, words


@settings(max_examples=10, deadline=None)
@given(st.text(st.sampled_from("[]/\\bold:=\x1b\x07\r\n\x9b\u202ea1 "), max_size=12))
def test_whatever_it_is_called(inputs: Path, call: Call, name: str) -> None:
    write(name)
    for words in WORDS[:8] + WORDS[13:19]:
        holds(call, words)


def test_output_is_filtered_at_one_place(inputs: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a command prints without a thought."""
    import click

    @click.command()
    def careless() -> None:
        click.echo("\x1b]0;x\x07")
        sys.stdout.write("\x9b2J\ttab\n")

    monkeypatch.setattr(main, "get_command", lambda *_: careless)
    monkeypatch.setitem(main.table, "careless", "")
    made = call("careless")
    assert made.stdout == "\\u001b]0;x\\u0007\n\\u009b2J\ttab\n"


def test_all_consoles_come_from_one_place() -> None:
    import armillary

    sources = Path(armillary.__file__).parent.rglob("*.py")
    made = [path.name for path in sources if re.search(r"\bConsole\(", path.read_text())]
    assert made == []
