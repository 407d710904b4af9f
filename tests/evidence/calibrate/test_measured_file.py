from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.evidence.calibrate.samples import measured_text


def test_text_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"x,y\n"))
    assert measured_text(tmp_path / "a.csv") == measured_text(tmp_path / "b.csv.gz") == "x,y\n"
    # What packed it, not its name, decides.
    (tmp_path / "b.csv.gz").write_text("x,y\n")
    assert measured_text(tmp_path / "b.csv.gz") == "x,y\n"


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"x,y\n" * 99, mtime=0)[:-9], b"\x1f\x8b\x08\x00" + b"\xff" * 40],
    ids=["cut", "damaged"],
)
def test_what_is_broken_is_one_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged gzip file"):
        measured_text(path)
