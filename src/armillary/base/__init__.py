"""The base of all other packages: errors and hints, units, files, compiled kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

VERSION = "0.1.0"


def lazy(package: str, public: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562) that imports public names on first use.

    Importing such a package is cheap. Mypy learns the names from imports under ``TYPE_CHECKING``.

    Args:
        package: Its ``__name__``.
        public: Module, relative to the package -> the names in it.
    """
    modules = {name: module for module, names in public.items() for name in names}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(modules[name], package), name)
        # The next access finds the name in the package and does not come here.
        setattr(sys.modules[package], name, found)
        return found

    return find
