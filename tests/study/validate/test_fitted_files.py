from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from armillary.study.validate.fitted_files import is_fitted


@pytest.mark.parametrize("name", ["a100", "h100", "b200"])
def test_a_file_is_known_by_what_is_in_it(shared: Path, tmp_path: Path, name: str) -> None:
    path = shared / "measured" / "gemm" / f"{name}.csv.gz"
    plain, cut = tmp_path / "any name.csv", tmp_path / f"{name}.csv"
    text = gzip.decompress(path.read_bytes())
    plain.write_bytes(text)
    cut.write_bytes(text[: text.rindex(b"\n", 0, -1)])
    assert (is_fitted(path), is_fitted(plain), is_fitted(cut)) == (True, True, False)
