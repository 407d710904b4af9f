"""`armillary machine convert`: files that come back as the same machine, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from armillary.cli import main


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["machine", *words])


def test_a_preset_goes_through_all_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [("hgx-h100", "infragraph", "a.yaml"), ("a.yaml", "graphml", "b.graphml"), ("b.graphml", "study", "c.yaml"),
             ("c.yaml", "astra-sim", "d.yml"), ("hgx-h100", "astra-sim", "e.yml")]  # fmt: skip
    for source, to, target in steps:
        done = run("convert", source, "--to", to, "--out", target)
        assert done.exit_code == 0 and done.stdout == "" and f"wrote {target}" in done.stderr, done.output
    assert yaml.safe_load(Path("d.yml").read_text()) == yaml.safe_load(Path("e.yml").read_text())
    assert (
        "left out: all but the network of the preset"
        in run("convert", "hgx-h100", "--to", "study", "-o", "f.yaml").stderr
    )


def test_what_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tree.yaml").write_text("topology: {kind: fat-tree, k: 4, bandwidth: 50 GB/s, latency: 500 ns}\n")
    for words, text in {
        ("tree.yaml", "astra-sim"): "tree.yaml: a graph that is no nesting",
        ("tree.yaml", "infra"): "expected one of",
        ("tre.yaml", "study"): "no such file",
    }.items():
        done = run("convert", words[0], "--to", words[1], "--out", "out")
        assert done.exit_code == 2 and text in done.stderr and not Path("out").exists()
