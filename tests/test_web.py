"""The scripts of pages: built from `web/`, with the licences of what is in them."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
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


SEEN = {
    "all": np.eye(3),
    "no red cones": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green cones": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue cones": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""What eyes make of linear RGB, by Machado, Oliveira and Fernandes (2009)."""
LEAST_APART = 12.0
"""Distance in CIELAB: 2.3 is what one can just tell apart, side by side and at leisure."""


def lab(colour: str, seen: Any) -> Any:
    """Return a colour in CIELAB as some eyes see it."""
    levels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.clip(
        seen @ np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4), 0, 1
    )
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ linear / np.array([0.9505, 1, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_all_eyes_tell_the_parts_of_a_step_apart() -> None:
    source = (WEB / "src" / "shared" / "colours.ts").read_text()
    kinds = re.findall(r'^  (\w+): \["(#\w{6})", "(#\w{6})"\]', source, re.MULTILINE)
    assert len(kinds) == 8
    for theme in (1, 2):
        colours = {each[0]: each[theme] for each in kinds}
        for eyes, seen in SEEN.items():
            for one, other in itertools.combinations(colours, 2):
                apart = np.linalg.norm(
                    lab(colours[one], np.array(seen)) - lab(colours[other], np.array(seen))
                )
                assert apart > LEAST_APART, (theme, eyes, one, other, apart)
        # Pages have the same ones.
        style = (WEB / "src" / "report" / "report.css").read_text()
        for name, colour in colours.items():
            if name != "idle":
                assert f"--{name}: {colour};" in style, (name, colour)


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
