"""What is kept of a run with a network model of another package."""

from __future__ import annotations

from armillary.base.tables import Layout
from armillary.engine.transport import layout as lk

NET = Layout("state of a network model in Python", lk.NET)
RUN = NET.rows("RUN", "1", "The run.")
RUN.column("number", "its number")
LEAVES, ARRIVES = range(2)
"""Events of a message."""
