"""State of a run of ns-3."""

from __future__ import annotations

from armillary.base.tables import Layout
from armillary.engine.transport import layout as lk

NET = Layout("state of ns-3", lk.NET)
RUN = NET.rows("RUN", "1", "The run.")
RUN.column("number", "its number")
RUN.column("counted", "up to when the use of links was counted", "ps")
