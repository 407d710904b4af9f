"""The same bytes in JSON and traces, whatever the hash seed, processor, C library, and versions of Python and NumPy.

`cases.py` runs in an interpreter of its own for each condition, and every file that it leaves is compared. Instruction
sets are switched off for NumPy (``NPY_DISABLE_CPU_FEATURES``), the C library (``GLIBC_TUNABLES``), OpenBLAS and Numba,
so that one processor stands for older ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_supported_versions import interpreter

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).with_name("cases.py")
KEPT_ASIDE = {".sqlite"}
"""A store says when each point was done, and how long it took."""
SAYS_WHEN = {"sweep one.txt", "sweep two.txt"}
"""Tables that end with the seconds that all took."""
OLD_LIBRARY = "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4,-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD"
QUICK = ("plain", "fitted", "traces")


def answers(python: str | Path, folder: Path, *only: str, **environment: str) -> dict[str, bytes]:
    """Run the cases; return the content of each file by its path."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ARMILLARY"))}
    done = subprocess.run(
        [python, CASES, folder, *only],
        env=own | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"} | environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if path.suffix not in KEPT_ASIDE and path.name not in SAYS_WHEN
    }


def differing(found: dict[str, bytes], usual: dict[str, bytes]) -> list[str]:
    """Return the files that differ, or that only one of both has."""
    return sorted(name for name in found.keys() | usual.keys() if found.get(name) != usual.get(name))


def without_processor_features() -> dict[str, str]:
    """Return the environment in which nothing uses more than every processor of this kind has."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    extra = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(extra), "GLIBC_TUNABLES": OLD_LIBRARY, "OPENBLAS_CORETYPE": "Prescott",
        "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "",
    }  # fmt: skip


def test_a_few_answers_are_the_same_for_another_hash_seed_and_an_old_processor(tmp_path: Path) -> None:
    usual = answers(sys.executable, tmp_path / "usual", *QUICK, PYTHONHASHSEED="1")
    other = answers(
        sys.executable, tmp_path / "other", *QUICK, PYTHONHASHSEED="2", **without_processor_features()
    )
    assert not differing(other, usual)
    assert len(usual) > 20


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return answers(sys.executable, tmp_path_factory.mktemp("usual") / "files", PYTHONHASHSEED="0")


@pytest.mark.slow
def test_another_hash_seed(usual: dict[str, bytes], tmp_path: Path) -> None:
    assert not differing(answers(sys.executable, tmp_path / "files", PYTHONHASHSEED="4711"), usual)


@pytest.mark.slow
def test_other_instruction_sets(usual: dict[str, bytes], tmp_path: Path) -> None:
    assert not differing(answers(sys.executable, tmp_path / "files", **without_processor_features()), usual)


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("versions", ["lowest", "newest"])
def test_other_versions(usual: dict[str, bytes], python: str, versions: str, tmp_path: Path) -> None:
    # The lowest versions that have wheels for that Python.
    lowest = {"3.11": ("2.0.0", "0.61.0"), "3.12": ("2.0.0", "0.61.0"), "3.13": ("2.1.0", "0.61.0")}[python]
    subprocess.run([interpreter(python), "-m", "venv", tmp_path / "venv"], check=True)
    binary = tmp_path / "venv" / "bin" / "python"
    pip = [binary, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "download", "--no-deps", "--dest", tmp_path, "click"], check=False).returncode:
        pytest.skip("needs a package index")
    wanted = [f"numpy=={lowest[0]}", f"numba=={lowest[1]}"] if versions == "lowest" else ["numpy", "numba"]
    others = ["pydantic>=2.12", "PyYAML>=6.0.1", "click>=8.2", "rich>=13.7"]
    subprocess.run([*pip, "install", "--no-compile", *wanted, *others], check=True)
    found = answers(binary, tmp_path / "files", XDG_CACHE_HOME=str(tmp_path / "cache"))
    shutil.rmtree(tmp_path / "venv")
    # Tables are as wide as their version of Rich makes them.
    assert not [name for name in differing(found, usual) if not name.endswith(".txt")]


@pytest.mark.slow
def test_one_worker_and_two(usual: dict[str, bytes]) -> None:
    assert usual["one.json"] == usual["two.json"]
    assert usual["one.csv"] == usual["two.csv"]


@pytest.mark.slow
@pytest.mark.parametrize(("folded", "alone"), [("plain", "unfolded"), ("device", "unfolded_device")])
def test_every_rank_on_its_own(usual: dict[str, bytes], folded: str, alone: str) -> None:
    """Only what says how ranks were grouped differs."""
    reports, lengths = [], []
    for name in (folded, alone):
        report = json.loads(usual[f"{name}.json"])
        path = report["critical_path"]
        lengths.append(sum(value for key, value in path.items() if key.endswith("_ticks")))
        # Where a path passes between ranks is known only as far as ranks were told apart: see `critical_path`.
        for key in ("folded", "classes_count", "classes", "critical_path"):
            del report[key]
        reports.append(json.dumps(report))
    assert reports[0] == reports[1]
    assert lengths[0] == lengths[1] > 0
