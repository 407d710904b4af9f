"""What the tests of all suites share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from armillary.base.extension import ExtensionPoint

Install = Callable[[Any], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Let "mine" be of another package, at every extension point."""

    def name(what: Any) -> None:
        class Point:
            name = "mine"

            def load(self) -> Any:
                return what

        monkeypatch.setattr(ExtensionPoint, "others", lambda point: {"mine": Point()})

    yield name
