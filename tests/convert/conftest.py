"""What tests of converters share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary.convert import Converted, front_end


@pytest.fixture
def text(tmp_path: Path) -> Any:
    """Convert a text, written to a file."""

    def convert(content: str, npus: int | None = 8, **options: Any) -> Converted:
        path = tmp_path / "work.txt"
        path.write_text(content)
        return front_end("text").convert([path], npus=npus, **options)

    return convert
