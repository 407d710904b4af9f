from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from armillary.evidence.validate.gemm import is_fitted


@pytest.mark.parametrize("name", ["a100", "h100", "b200"])
def test_a_file_is_known_by_what_is_in_it(shared: Path, name: str) -> None:
    text = gzip.decompress((shared / "measured" / "gemm" / f"{name}.csv.gz").read_bytes()).decode()
    assert is_fitted(text)
    assert not is_fitted(text[: text.rindex("\n", 0, -1)])
