"""Files that are whole or not there, whoever else writes them and however a process ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.base.files import filling, replacing, write_text

DIES = """\
import os, signal, sys
from armillary.base.files import filling, replacing
with {what}(sys.argv[1]) as temporary:
    path = temporary / "half" if {folder} else temporary
    path.write_text("half of a much longer text")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(path: Path, *, folder: bool = False) -> None:
    code = DIES.format(what="filling" if folder else "replacing", folder=folder)
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=100)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_process_leaves_has_another_name_and_goes_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    killed(path)
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_there_when_it_is_full(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    killed(folder, folder=True)
    assert not folder.exists()
    with pytest.raises(InputError, match=r"made/x/y: cannot be written"), filling(folder) as filled:
        write_text(filled / "x", "1")
        write_text(filled / "x" / "y", "1")
    assert list(tmp_path.iterdir()) == []
    with filling(folder) as filled:
        write_text(filled / "x", "1")
        assert not folder.exists()
    assert [each.name for each in folder.iterdir()] == ["x"] and list(tmp_path.iterdir()) == [folder]


def test_an_empty_folder_stays_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    there = folder.stat().st_ino
    (tmp_path / "link").symlink_to(folder)
    with filling(tmp_path / "link") as filled:
        write_text(filled / "x", "1")
    assert folder.stat().st_ino == there and (folder / "x").read_text() == "1"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "made"]


def test_writers_of_one_file_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replacing(path) as outer:
        outer.write_text("outer")
        with replacing(path) as inner:
            assert inner != outer
            inner.write_text("inner")
        assert path.read_text() == "inner" and outer.read_text() == "outer"
    assert path.read_text() == "outer" and list(tmp_path.iterdir()) == [path]


def test_many_writers_of_one_file_leave_the_text_of_one(tmp_path: Path) -> None:
    texts = [str(number) * 10_000 for number in range(8)]
    threads = [
        threading.Thread(target=lambda text=text: [write_text(tmp_path / "out", text) for _ in range(20)])
        for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "out").read_text() in texts and len(list(tmp_path.iterdir())) == 1


def test_a_symlink_stays_and_permissions_do(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_a_link_in_the_place_of_the_other_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "out.part").symlink_to("theirs")
    write_text(tmp_path / "out", "mine")
    assert (tmp_path / "theirs").read_text() == "theirs" and (tmp_path / "out").read_text() == "mine"


def test_a_private_file_is_private_from_the_first_byte(tmp_path: Path) -> None:
    (tmp_path / "key.part").write_text("left behind, for all to read")
    (tmp_path / "key.part").chmod(0o644)
    with replacing(tmp_path / "key", private=True) as temporary:
        assert temporary.stat().st_mode & 0o077 == 0
        temporary.write_text("secret")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
