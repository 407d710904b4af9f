"""The scripts of pages: built from `web/`, with the licences of what is in them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WEB, BUILT = ROOT / "web", ROOT / "src" / "armillary" / "web"


def test_all_parts_of_others_are_listed_with_their_licences() -> None:
    listed = (BUILT / "THIRD-PARTY.txt").read_text()
    wanted = json.loads((WEB / "package.json").read_text())["dependencies"]
    for name, version in wanted.items():
        assert f"{name} {version} (" in listed, name
    parts = re.split(r"^={20,}$", listed, flags=re.MULTILINE)[1:]
    # A name and a licence, and then its text.
    assert len(parts) >= 2 and all(len(part) > 400 for part in parts)


def test_versions_are_fixed() -> None:
    """A build of tomorrow takes what this one took."""
    package = json.loads((WEB / "package.json").read_text())
    for name, version in (package["dependencies"] | package["devDependencies"]).items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), (name, version)
    locked = json.loads((WEB / "package-lock.json").read_text())["packages"]
    assert all("integrity" in each for place, each in locked.items() if place)


def test_scripts_ask_no_other_host_for_anything() -> None:
    for path in BUILT.glob("*.js"):
        text = path.read_text()
        assert not re.search(r"\bfetch\(\s*[\"'`]https?:|importScripts|new Function\(|\beval\(", text), (
            path.name
        )


@pytest.mark.slow
def test_what_is_there_is_what_the_sources_give(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    if not (WEB / "node_modules").is_dir():
        pytest.skip("needs web/node_modules: make studio")
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=WEB, check=True, capture_output=True)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert built == {path.name: path.read_bytes() for path in BUILT.iterdir() if path.is_file()}
