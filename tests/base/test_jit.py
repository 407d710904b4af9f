"""Machine code of kernels is kept for the sources it was made from, and for no others."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from armillary.base import jit

KERNEL = """\
from armillary.base.jit import njit, use
from mine.constants import OFFSET

helper = use("mine.helper_kernel")
double = helper.double


@njit
def answer(x):
    return double(x) + OFFSET
"""
HELPER = """\
from armillary.base.jit import inner


@inner
def double(x):
    return FACTOR * x
"""
RUN = """\
from armillary.base import jit

print(jit.load("mine.main_kernel", "compiled").answer(10))
print(jit.load("mine.main_kernel", "interpreted").answer(10))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return the folder of a package of kernels that knows ours by name only."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "main_kernel.py").write_text(KERNEL)
    (folder / "helper_kernel.py").write_text(HELPER.replace("FACTOR", "2"))
    (folder / "constants.py").write_text("from mine.more import OFFSET\n")
    (folder / "more.py").write_text("OFFSET = 1\n")
    return folder


def run(package: Path, cache: str, **more: str) -> tuple[list[str], str]:
    """Return what the compiled and the interpreted kernel say, in a process of its own, and its warnings."""
    source = Path(sys.modules["armillary"].__file__ or "").parents[1]
    environment = os.environ | {"PYTHONPATH": f"{source}:{package.parent}", "XDG_CACHE_HOME": cache} | more
    environment.pop("ARMILLARY_CACHE_WARNED", None)
    done = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.split(), done.stderr


def kept(cache: Path) -> int:
    return len(list(cache.rglob("*.nbc")))


def test_an_edit_of_any_source_of_another_package_counts(package: Path, tmp_path: Path) -> None:
    import armillary  # noqa: F401  (for its place)

    cache = tmp_path / "cache"
    assert run(package, str(cache)) == (["21", "21"], "")
    assert kept(cache) == 1
    assert run(package, str(cache)) == (["21", "21"], "")
    assert kept(cache) == 1  # found again
    (package / "helper_kernel.py").write_text(HELPER.replace("FACTOR", "3"))
    assert run(package, str(cache)) == (["31", "31"], "")
    (package / "more.py").write_text("OFFSET = 5\n")
    assert run(package, str(cache)) == (["35", "35"], "")
    (package / "main_kernel.py").write_text(KERNEL.replace("+ OFFSET", "- OFFSET"))
    assert run(package, str(cache)) == (["25", "25"], "")
    assert kept(cache) == 4


def test_without_a_folder_to_write_to_it_says_so_and_keeps_nothing(package: Path, tmp_path: Path) -> None:
    import armillary  # noqa: F401

    (tmp_path / "file").touch()
    said, warning = run(package, str(tmp_path / "file"))
    assert said == ["21", "21"]
    assert warning.count("warning: compiled kernels cannot be kept in") == 1 and "XDG_CACHE_HOME" in warning
    (package / "helper_kernel.py").write_text(HELPER.replace("FACTOR", "3"))
    assert run(package, str(tmp_path / "file"))[0] == ["31", "31"]  # nothing beside the sources either
    assert not list(package.rglob("*.nb?"))


def test_damaged_code_is_thrown_away_and_made_again(package: Path, tmp_path: Path) -> None:
    import armillary  # noqa: F401

    cache = tmp_path / "cache"
    run(package, str(cache))
    (file,) = cache.rglob("*.nbc")
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (b"", whole[:20], whole[:middle], flipped):
        file.write_bytes(damaged)
        assert run(package, str(cache)) == (["21", "21"], "")
        assert file.stat().st_size > middle and file.read_bytes() != damaged
    file.unlink()
    file.mkdir()
    (file / "x").touch()
    said, warning = run(package, str(cache))
    assert said == ["21", "21"] and warning.count("warning: compiled kernels cannot be kept") == 1


def test_processes_that_share_a_cache_find_whole_code(package: Path, tmp_path: Path) -> None:
    import armillary  # noqa: F401

    cache = tmp_path / "cache"
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: run(package, str(cache)), range(3))) == [(["21", "21"], "")] * 3
    assert kept(cache) == 1
    assert not [each for each in cache.rglob("*") if each.is_file() and each.suffix != ".nbc"]


def test_threads_find_whole_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_kernel.py").write_text("import time\n\ntime.sleep(0.3)\nANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    together = Barrier(4)

    def answer(_: int) -> int:
        together.wait()
        return int(jit.load("slow_kernel", "interpreted").ANSWER)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answer, range(4))) == [42] * 4
