"""Network models of other packages, written in plain Python.

What moves: whole messages, when a `NetworkModel` says so. What is ignored: whatever the model ignores. What it
costs: two events per message, interpreted, and the model's own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.python.transport import PythonTransport

__all__ = ["PythonTransport"]
__getattr__ = lazy(__name__, {".transport": ("PythonTransport",)})
