"""Code is taken only from files and folders that nobody else can have written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary.base.kernel_files import KernelFiles, cache_home, is_own_file, make_own, read_own

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
STRANGER = 4711
"""A user other than the one who runs the tests."""


def code(root: Path) -> Path:
    """Return a file of code two folders below a root."""
    folder = root / "kernels" / "variant"
    files = KernelFiles(folder, "kernel.run", "1", root=folder.parent)
    files.save("key", b"code")
    assert files.problem is None and files.load("key") == b"code"
    (file,) = folder.glob("*.nbc")
    return file


def given_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only the superuser can give a file away")
    os.chown(path, STRANGER, -1, follow_symlinks=False)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize("change", [
    pytest.param(lambda path: path.chmod(0o660), id="of a group"),
    pytest.param(lambda path: path.chmod(0o666), id="of all"),
    given_away, link, pipe,
])  # fmt: skip
def test_a_file_that_others_may_have_written_is_none(tmp_path: Path, change: Callable[[Path], None]) -> None:
    file = code(tmp_path)
    root = file.parents[1]
    assert read_own(file, root) and is_own_file(file, root)
    change(file)
    assert read_own(file, root) is None and not is_own_file(file, root)
    assert KernelFiles(file.parent, "kernel.run", "1", root=root).load("key") is None


@pytest.mark.parametrize("above", [0, 1])
@pytest.mark.parametrize("change", [
    pytest.param(lambda path: path.chmod(0o770), id="of a group"),
    pytest.param(lambda path: path.chmod(0o1777), id="of all"),
    given_away, link,
])  # fmt: skip
def test_a_folder_that_others_can_write_to_has_none(
    tmp_path: Path, change: Callable[[Path], None], above: int
) -> None:
    file = code(tmp_path)
    root = file.parents[1]
    change(file.parents[above])
    assert read_own(file, root) is None and not is_own_file(file, root)


def test_a_folder_of_somebody_else_keeps_nothing(tmp_path: Path) -> None:
    root = tmp_path / "kernels"
    root.mkdir()
    given_away(root)
    files = KernelFiles(root / "variant", "kernel.run", "1", root=root)
    files.save("key", b"code")
    assert files.problem and "others can write" in str(files.problem.strerror)
    assert not list(root.rglob("*.nbc"))


def test_what_is_made_is_for_its_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = code(tmp_path)
        # Another library makes folders as everybody does.
        inner = file.parent / "made"
        inner.mkdir()
        make_own(inner, file.parents[1])
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (file, inner, *list(file.parents)[:2])]
    assert modes == [0o600, 0o700, 0o700, 0o700]


def test_code_of_one_function_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    one, other = (KernelFiles(tmp_path / "own", name, "1") for name in ("one", "other"))
    one.save("key", b"one")
    other.save("key", b"other")
    mine, others = sorted((tmp_path / "own").glob("*.nbc"))
    others.write_bytes(mine.read_bytes())
    assert one.load("key") == b"one" and other.load("key") is None


def test_a_relative_cache_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would be in the folder of whoever wrote the study."""
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_home() == Path("~/.cache/armillary").expanduser()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_home() == tmp_path / "armillary"


@pytest.mark.parametrize("content", ["[", "- 1\n", "disable_jit: 1\n"])
def test_settings_of_numba_in_the_current_folder_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / ".numba_config.yaml").write_text(content)
    program = (
        "from armillary.base import jit\n"
        "from armillary.base.errors import InputError\n"
        "try:\n"
        "    jit.load('armillary.trace.order_kernel', 'compiled').topological(0, 0, 0, 0)\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(".numba_config.yaml: Numba would take its settings from this file")
