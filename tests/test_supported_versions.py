"""The lower bounds of pyproject.toml, and every Python it supports, with a part of the fast tests.

Each case makes a virtual environment of its own from the package index that pip is configured for: a wheel of this
checkout with all it needs for `dev` and `docs`, in the lowest versions that pyproject.toml allows, those of
constraints.txt, or the newest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?>=(?P<version>[\w.]+)")

PART = (
    "tests/engine/physical/test_reference.py",  # numba and numpy: kernels compiled and interpreted
    "tests/engine/common/test_timeline.py",  # numpy: files of results
    "tests/platform/test_bad_input.py",  # pydantic and PyYAML: what is refused, and in which words
    "tests/platform/files/test_topology.py",  # networkx
    "tests/platform/topology/test_pictures.py",  # matplotlib
    "tests/trace/test_files.py",  # zstandard
    "tests/trace/test_decoder.py",  # protobuf, hypothesis
    "tests/cli/generate/test_train.py",  # pydantic and click: options are made from schemas
    "tests/cli/generate/learn",  # click: progress bars
    "tests/cli/test_commands.py",  # click, rich: what commands print
    "tests/cli/test_start.py",
    "tests/cli/sweep/test_sweep.py",  # pandas, SQLite
    "tests/compute/test_models.py",  # scalesim
    "tests/report/test_picture.py",  # matplotlib
    "tests/report/test_links.py",  # perfetto, viztracer
    "tests/explore/search/test_sampled.py",  # optuna
    "tests/evidence/calibrate/test_gemm.py",  # scipy: least squares
    "tests/explore/cost/test_allocation.py",  # scipy: linear programs
    "tests/explore/runner/test_ray.py::test_ray_gives_the_rows_of_one_process",  # ray
    "tests/explore/runner/test_dask.py::test_dask_gives_the_rows_of_one_process",  # distributed
)
"""Fast tests, and one each of Ray and Dask, that touch every dependency but PyTorch and ns-3, whose wheels take
gigabytes; all fast tests would take most of an hour for each case."""


def requirements() -> Iterator[str]:
    """Yield what the package needs, its extras included."""
    yield from PROJECT["dependencies"]
    for extra in PROJECT["optional-dependencies"].values():
        yield from extra


def interpreter(version: str) -> str:
    """Return the path of a Python, from PATH, pyenv or uv; skip where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    if uv := shutil.which("uv"):
        found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
        candidates.append(found.stdout.strip())
    says = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    for path in filter(None, candidates):
        done = subprocess.run([path, *says], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    pytest.skip(f"needs Python {version}")


def test_every_bound_is_one_that_the_lowest_set_can_take() -> None:
    apart = {"types-PyYAML", "types-protobuf"}  # they follow the newest of what they describe
    for each in requirements():
        assert BOUND.fullmatch(each) or each in apart or each.startswith("armillary["), each


@pytest.mark.parametrize("part", PART)
def test_the_part_is_there(part: str) -> None:
    # The cases below are slow: a file that moved must not wait for them to be missed.
    assert (ROOT / part.partition("::")[0]).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "versions"),
    [("3.11", "lowest"), ("3.12", "locked"), ("3.11", "newest"), ("3.12", "newest"), ("3.13", "newest")],
)
def test_a_part_of_the_tests_passes_with(python: str, versions: str, tmp_path: Path) -> None:
    subprocess.run([interpreter(python), "-m", "venv", tmp_path / "venv"], check=True)
    binary = tmp_path / "venv" / "bin" / "python"
    pip = [binary, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    probe = subprocess.run([*pip, "download", "--no-deps", "--dest", tmp_path, "click"], check=False)
    if probe.returncode:
        pytest.skip("needs a package index")
    bounds = [match for each in requirements() if (match := BOUND.fullmatch(each))]
    lowest = "".join(f"{bound['name']}=={bound['version']}\n" for bound in bounds)
    locked = (ROOT / "constraints.txt").read_text()
    held = {"lowest": lowest, "locked": locked, "newest": ""}[versions]
    (tmp_path / "constraints.txt").write_text(held)
    # Copied, as building leaves files behind; and not editable, so that what the wheel lacks is missed.
    shutil.copytree(ROOT / "src", tmp_path / "source" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    package = f"{tmp_path / 'source'}[dev,docs]"
    subprocess.run(
        # Not compiled ahead: most of it is never imported.
        [*pip, "install", "--no-compile", "--constraint", tmp_path / "constraints.txt", package],
        check=True,
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [binary, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short", *PART],
        cwd=ROOT, env=environment | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:]
