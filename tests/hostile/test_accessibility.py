"""Every kind of page keeps the rules of WCAG 2.2 A and AA that axe can check, and looks as it did when last seen.

Wide and narrow, light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile_browser import AXE, Browser, browser, is_there
from looks import CHANGED_AT_MOST, changed

from armillary.cli import main

pytestmark = pytest.mark.slow
STUDY = """
workload:
  generate: {model: llama-3-8b, batch: 8, sequence: 1024, parallel: {tp: 2}}
platform: {preset: dgx-h100}
"""
SWEEP = """
study: step.yaml
vary:
  workload.generate.parallel.tp: [1, 2, 4]
  workload.generate.microbatch: [1, 2]
"""
STEP = "llama-3-8b --machine dgx-h100 --batch 8 --sequence 1024"
PAGES = {
    "run": "run step.yaml",
    "explain": "explain saved.npz",
    "train": f"train {STEP} --tp 2",
    "compare": "compare step.yaml other.yaml",
    "serve": "serve llama-3.1-8b --machine 1xh100 --load poisson:rate=4,requests=20,input=256,output=32 --tp 1",
    "machine": "machine show dgx-superpod-h100",
    "sweep": "sweep sweep.yaml --workers 1",
    "validate": "validate selective-table-5",
    "plan": "plan llama-3-8b --machine dgx-h100 --batch 8 --sequence 1024",
    "reproduce": "validate reproduce all --only gemm-share",
    "graph": "trace graph made/rank.0.et --out",
}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not is_there():
        pytest.skip("needs chromium")
    if not AXE.exists():
        pytest.skip("needs web/node_modules: make studio")
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_keeps_nobody_out(
    chromium: Browser, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("step.yaml").write_text(STUDY)
    Path("other.yaml").write_text(STUDY.replace("tp: 2", "tp: 4"))
    Path("sweep.yaml").write_text(SWEEP)
    if kind == "explain":
        assert CliRunner().invoke(main, ["run", "step.yaml", "--save", "saved.npz"]).exit_code == 0
    if kind == "graph":
        made = CliRunner().invoke(
            main, ["generate", "train", "llama-3-8b", "--ranks", "1", "--batch", "1", "--out", "made"]
        )
        assert made.exit_code == 0, made.output
    command = PAGES[kind].split()
    command += ["page.html"] if kind == "graph" else ["--html", "page.html"]
    made = CliRunner().invoke(main, command)
    assert made.exit_code == 0, made.output
    found = {}
    for width, theme in ((1400, "light"), (1400, "dark"), (400, "dark")):
        chromium.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        chromium.ask(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}]
        )
        chromium.open(tmp_path / "page.html")
        found[width, theme] = chromium.barriers()
        if (width, theme) != (1400, "dark"):
            share = changed(chromium, kind, width, theme)
            assert share <= CHANGED_AT_MOST, (
                f"{share:.1%} looks different: LOOKS=write keeps it, if it is right"
            )
    assert not any(found.values()), found
