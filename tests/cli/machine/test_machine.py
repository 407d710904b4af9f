"""`armillary machine`: presets, graphs and pictures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from armillary.cli import main


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["machine", *words])


def test_list_counts_what_is_unverified() -> None:
    assert re.search(r"hgx-h100 +NVIDIA HGX H100, 8 GPUs on NVSwitches", run("list").stdout)
    rows = {row["name"]: row for row in json.loads(run("list", "--json", "-").stdout)}
    assert rows["hgx-h100"] == {
        "name": "hgx-h100",
        "title": "NVIDIA HGX H100, 8 GPUs on NVSwitches",
        "npus": 8,
        "numbers": 10,
        "unverified": 1,
    }


def test_a_preset_shows_its_sources() -> None:
    shown = run("show", "mi300x").stdout
    assert re.search(r"network.xgmi.latency +1 us +UNVERIFIED +a round value", shown)
    assert "[1] https://www.amd.com/" in shown
    numbers = json.loads(run("show", "mi300x", "--json", "-").stdout)["numbers"]
    assert [n["key"] for n in numbers if n["unverified"]][:1] == ["network.xgmi.latency"]


@pytest.mark.parametrize("name", ("net.png", "net.html"))
def test_draw(tmp_path: Path, name: str) -> None:
    option = "--html" if name.endswith("html") else "--plot"
    result = run("show", "hls-1", option, str(tmp_path / name))
    assert result.exit_code == 0 and f"wrote {tmp_path / name}" in result.stderr
    assert (tmp_path / name).stat().st_size > 1000
    bad = run("show", "hls-1", "--plot", str(tmp_path / "net.gif"))
    assert bad.exit_code == 2 and bad.stdout == ""


def test_graphs_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "tree.yaml"
    file.write_text("topology: {kind: fat-tree, k: 4, bandwidth: 50 GB/s, latency: 1 us}")
    assert "edge-aggregation     32    50 GB/s     1 µs  unlimited" in run("show", str(file)).stdout
    described = json.loads(run("show", str(file), "--json", "-").stdout)
    assert described["switches"] == {"edge": 8, "aggregation": 8, "core": 4}
    assert run("show", str(file), "--plot", str(tmp_path / "a.svg")).exit_code == 0
