"""What is published: metadata, the versions that contributors install, and the content of the wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.test_supported_versions import BOUND, PROJECT, ROOT

LOCK = (ROOT / "constraints.txt").read_text()
PINNED = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)(?: ; [\w\s'.<>=!]+)?")
KINDS = {".py", ".yaml", ".js", ".css", ".html", ".txt", ".cc", ".typed"}
"""Code, presets, what web pages consist of, licences, the adapter of ns-3, and the mark that types are checked."""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_metadata_name_what_is_tested() -> None:
    versions = sorted(
        each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", each)
    )
    tested = (ROOT / "tests" / "test_supported_versions.py").read_text()
    assert all(f'("{version}", "newest")' in tested for version in versions)
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert PROJECT["authors"]
    # What Windows cannot do stands in docs/reference/installation.md.
    systems = {each for each in PROJECT["classifiers"] if each.startswith("Operating System")}
    assert systems == {"Operating System :: MacOS", "Operating System :: POSIX :: Linux"}


def test_locked_versions_are_names_and_versions_only_and_within_bounds() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    found = {plain(match["name"]): match["version"] for line in lines if (match := PINNED.fullmatch(line))}
    assert len({line.partition("==")[0] for line in lines}) == len(found)
    assert not re.search(r"://|--|@|\.\./", LOCK)
    extras = PROJECT["optional-dependencies"]
    wanted = re.findall(r"\w+", re.search(r"armillary\[([\w,]+)\]", " ".join(extras["dev"]))[1])  # type: ignore[index]
    for each in (
        *PROJECT["dependencies"],
        *(one for extra in ("dev", "docs", *wanted) for one in extras[extra]),
    ):
        if each.startswith("armillary["):
            continue
        bound = BOUND.fullmatch(each)
        name = plain(bound["name"] if bound else each)
        assert name in found, name
        assert not bound or number(found[name]) >= number(bound["version"]), each


def test_no_upper_bounds() -> None:
    """They would keep users from mending what a newer version of a dependency mends."""
    text = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [each for each in text["dependencies"] if "<" in each or "==" in each]


def published() -> set[str]:
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_only_what_belongs_in_a_wheel_lies_in_src() -> None:
    kinds = Counter(Path(name).suffix for name in published())
    assert set(kinds) == KINDS
    assert {name.partition("/")[0] for name in published()} == {"armillary"}


@pytest.mark.slow
def test_the_wheel_has_the_sources_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # Something that lies around.
    (source / "notes.txt").write_text("mine\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and "hatchling" in done.stderr:
        pytest.skip("needs a package index for hatchling")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    about = {name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name}
    assert about == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert {name for name in names if ".dist-info/" not in name} == published()
