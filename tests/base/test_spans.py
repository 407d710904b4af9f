"""Spans of bytes, copied and compared in every mode."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from armillary.base import jit

SOURCE = """
    from armillary.base.jit import njit
    from armillary.base.spans import spans

    copy, same = spans()

    @njit
    def run(into, data):
        copy(into, 1, data, 2, 5)
        copy(into, 0, data, 3, 3)
        return same(data, 0, 3, 2), same(data, 0, 2, 2), same(data, 0, 2, 0)
"""


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("mode", ["interpreted", "compiled"])
def test_spans(mode: jit.Mode, checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"span_{mode}_{checked}_kernel"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(str(tmp_path))
    into, data = np.zeros(5, np.uint8), np.frombuffer(b"abcabc", np.uint8)
    if checked:
        with jit.checking():
            run = jit.load(name, mode).run
    else:
        run = jit.load(name, mode).run
    given = (into.data, data.data) if mode == "interpreted" else (into, data)
    assert run(*given) == (True, False, True)
    assert into.tobytes() == b"\0cab\0"
    for key in [key for key in sys.modules if key.startswith(name)]:
        del sys.modules[key]
