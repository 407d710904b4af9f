"""The machine: networks, compute and memory, read from native study files or ASTRA-sim's own files."""

from __future__ import annotations

import importlib

_HOME = {
    "Algorithm": "model",
    "Dimension": "model",
    "Platform": "model",
    "RemoteMemory": "model",
    "SharedBus": "model",
    "System": "model",
    "read_platform": "astra_sim",
    "Study": "native",
    "load_platform": "native",
    "load_study": "native",
    "json_schema": "native",
    "describe": "show",
    "table": "show",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that importing the package stays cheap."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
