"""Manuals of several versions: each offers the same page of the others."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
CONF = """
import os
project, html_theme = "toy", "furo"
version = release = os.environ["ARMILLARY_MANUAL"]
templates_path, html_static_path = ["_templates"], ["_static"]
html_js_files = ["versions.js", "switcher.js"]
html_sidebars = {"**": ["versions.html"]}
"""


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    return found


@pytest.mark.slow
def test_a_page_leads_to_itself_in_another_version(tmp_path: Path) -> None:
    pytest.importorskip("furo")
    toy, site = tmp_path / "toy", tmp_path / "site"
    (toy / "docs").mkdir(parents=True)
    for folder in ("_static", "_templates"):
        shutil.copytree(DOCS / folder, toy / "docs" / folder)
    (toy / "docs" / "conf.py").write_text(CONF)

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=toy,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    git("init", "-q")
    pages = {"v0.9.0": ["one"], "v0.10.0": ["one", "two"], "other": ["one"]}
    for tag, names in pages.items():
        (toy / "docs" / "index.rst").write_text(
            "Toy\n===\n\n.. toctree::\n\n" + "".join(f"   {each}\n" for each in names)
        )
        (toy / "docs" / "two.rst").unlink(missing_ok=True)
        for each in names:
            (toy / "docs" / f"{each}.rst").write_text(f"{each}\n=====\n\n{tag}\n")
        git("add", ".")
        git("commit", "-qm", tag)
        git("tag", tag)
    module(DOCS / "versions.py").main([str(site), "--repository", str(toy)])
    assert "0.10.0/index.html" in (site / "index.html").read_text()
    for name in ("latest", "0.9.0", "0.10.0"):
        told = (site / name / "_static" / "versions.js").read_text()
        known = json.loads(told.removeprefix("window.VERSIONS = ").removesuffix(";\n"))
        assert [each["name"] for each in known] == ["latest", "0.10.0", "0.9.0"]
    browsers = module(Path(__file__).parents[1] / "hostile" / "hostile_browser.py")
    if not browsers.is_there():
        pytest.skip("needs chromium")
    with browsers.browser(tmp_path / "browser") as page:
        for start, wanted, end in (
            ("0.10.0/two.html", "0.9.0", "0.9.0/index.html"),
            ("0.9.0/one.html", "0.10.0", "0.10.0/one.html"),
        ):
            page.open(site / start)
            choice = "document.querySelector('#versions select')"
            assert page.value(f"{choice}.value") == start.partition("/")[0]
            page.value(f"{choice}.value = '{wanted}'; {choice}.dispatchEvent(new Event('change'))")
            # Asked while it leaves, a page does not answer.
            time.sleep(2)
            assert page.value("location.pathname").endswith(end)
