"""Machine code that was kept runs without Numba, and does what the same source does interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.kernel_files import SUFFIX
from armillary.base.machine_code import Entry

LOOK = """\
import sys
import numpy as np
from armillary.base import jit

kernel = jit.load("armillary.trace.order_kernel", "compiled")
order = np.zeros(3, np.int64)
count = kernel.topological(np.array([0, 1, 2, 2]), np.array([1, 2]), np.array([0, 1, 1]), order)
print(count, order.tolist(), "numba" in sys.modules)
"""
Make = Callable[[], Any]


def compiled(function: Callable[..., Any]) -> Make:
    """Return what makes Numba compile a function, as kernels are compiled."""
    options = {"nogil": True, "error_model": "numpy", "_nrt": False}
    return lambda: numba.njit(**options)(function)


def refuse() -> Any:
    """Stand for Numba where it must not be asked."""
    raise AssertionError("asked Numba")


def mixed(count: int, rate: float, numbers: Any, grid: Any, into: Any) -> tuple[int, float]:
    """Take and return one of each kind."""
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i] * rate
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            into[0] += grid[i, j] * (j + 1)
    return count + len(numbers), total


def nothing(into: Any) -> None:
    """Return nothing."""
    into[0] = 7


def one(count: int) -> int:
    """Return a number."""
    return count * 3


def whether(count: int) -> bool:
    """Return yes or no."""
    return count > 3


def several(count: int) -> tuple[bool, int, bool, float]:
    """Return values of different sizes."""
    return count > 3, count, count < 3, count / 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code of all functions, which Numba has compiled."""
    folder = tmp_path_factory.mktemp("code")
    arrays = (np.zeros(2), np.zeros((2, 3), np.int32), np.zeros(1, np.int64))
    assert Entry(folder, "mixed", compiled(mixed))(1, 2.0, *arrays) == (3, 0.0)
    assert Entry(folder, "nothing", compiled(nothing))(np.zeros(1, np.int64)) is None
    assert Entry(folder, "one", compiled(one))(2) == 6
    assert Entry(folder, "whether", compiled(whether))(2) is False
    assert Entry(folder, "several", compiled(several))(3) == (False, 3, False, 1.5)
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 5
    return folder


@given(
    st.integers(-(2**62), 2**62),
    st.floats(-1e6, 1e6),
    st.lists(st.floats(-1e6, 1e6), max_size=5),
    st.lists(st.tuples(*[st.integers(-(2**20), 2**20)] * 3), min_size=1, max_size=4),
)
def test_it_does_what_the_source_does(folder, count, rate, numbers, grid):
    entry = Entry(folder, "mixed", refuse)
    results = []
    for run in (entry, mixed):
        into = np.zeros(1, np.int64)
        found = run(count, rate, np.array(numbers, float), np.array(grid, np.int32), into)
        results.append((found, into.tolist()))
    assert results[0] == results[1]


def test_none_and_single_numbers(folder: Path) -> None:
    into = np.zeros(1, np.int64)
    assert Entry(folder, "nothing", refuse)(into) is None
    assert into[0] == 7
    assert [Entry(folder, "whether", refuse)(count) for count in (3, 4)] == [False, True]
    assert Entry(folder, "several", refuse)(-5) == (False, -5, True, -2.5)
    assert Entry(folder, "several", refuse)(5) == (True, 5, False, 2.5)
    found = Entry(folder, "one", refuse)(-5)
    assert found == -15 and type(found) is int


def test_what_was_not_compiled_before_is_asked_of_numba(folder: Path) -> None:
    asked: list[tuple[Any, ...]] = []

    def numbas() -> Any:
        return lambda *arguments: asked.append(arguments)

    entry = Entry(folder, "nothing", numbas)
    # Not flat, not in order of memory, of another type of number, not to be written to.
    frozen = np.zeros(2, np.int64)
    frozen.flags.writeable = False
    others = (np.zeros(4, np.int64)[::2], [1], True, 2**70)
    for each in others:
        entry(each)
    assert len(asked) == len(others)
    for each in (np.zeros(1, np.int32), frozen):
        with pytest.raises(AssertionError, match="asked Numba"):
            Entry(folder, "nothing", refuse)(each)


def test_what_calls_python_is_not_kept(tmp_path: Path) -> None:
    def raises(count: int) -> int:
        if count > 3:
            raise ValueError("too many")
        return count

    def returns_an_array(numbers: Any) -> Any:
        return numbers

    assert Entry(tmp_path, "raises", compiled(raises))(1) == 1
    given = np.zeros(3)
    assert Entry(tmp_path, "array", compiled(returns_an_array))(given) is not None
    assert not list(tmp_path.glob(f"*{SUFFIX}"))


def test_an_older_library_that_cannot_make_it_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import llvmlite.binding

    # It has another pass of this purpose, of another name.
    monkeypatch.delattr(llvmlite.binding.ModulePassManager, "add_global_dead_code_eliminate_pass")
    assert Entry(tmp_path, "one", compiled(one))(2) == 6
    assert not list(tmp_path.glob(f"*{SUFFIX}"))


def test_damaged_code_is_made_again(tmp_path: Path) -> None:
    Entry(tmp_path, "one", compiled(one))(2)
    (file,) = tmp_path.glob(f"*{SUFFIX}")
    file.write_bytes(file.read_bytes()[:-9])
    assert Entry(tmp_path, "one", compiled(one))(2) == 6
    assert Entry(tmp_path, "one", refuse)(4) == 12


def look(cache: Path, **more: str) -> str:
    """Return what a process of its own says of a kernel of the package."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)} | more
    source = Path(sys.modules["armillary"].__file__ or "").parents[1]
    environment["PYTHONPATH"] = str(source)
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout


def test_a_second_process_does_without_numba(tmp_path: Path) -> None:
    import armillary  # noqa: F401  (for its place)

    assert look(tmp_path) == "3 [0, 1, 2] True\n"
    assert look(tmp_path) == "3 [0, 1, 2] False\n"
    # Whoever tells Numba what to do gets Numba.
    assert look(tmp_path, NUMBA_OPT="1") == "3 [0, 1, 2] True\n"
    (tmp_path / "file").touch()
    assert look(tmp_path / "file", ARMILLARY_CACHE_WARNED="1") == "3 [0, 1, 2] True\n"
