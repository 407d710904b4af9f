from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from armillary.base import files, reading
from armillary.base.errors import InputError
from armillary.base.files import write_text

if not hasattr(os, "mkfifo"):
    pytest.skip("needs FIFOs", allow_module_level=True)


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: is a pipe that nobody reads, expected a file, or a pipe"):
        write_text(path, "x")


def test_readers_and_writers_wait_as_long_for_each_other() -> None:
    assert files.READER_SECONDS == reading.WRITER_SECONDS


def test_a_reader_gets_all_however_slow_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # More than a pipe holds, so that a descriptor that does not wait would fail.
    text = "0123456789" * 100_000
    os.mkfifo(path := tmp_path / "pipe")
    monkeypatch.setattr(files, "READER_SECONDS", 60.0)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(path.read_text()))
    timer = threading.Timer(0.3, reader.start)
    timer.start()
    write_text(path, text)
    timer.join()
    reader.join()
    assert found == [text]
