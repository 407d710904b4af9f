"""ns-3 from its PyPI wheel, loaded where it is used, with our messages over it."""

from __future__ import annotations

import functools
import importlib
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError

_MODULES = ("core", "stats", "network", "traffic-control", "bridge", "internet", "point-to-point")
"""Each after those it needs: cling cannot run the initialisers of headers whose library is not loaded."""


def available() -> bool:
    """Tell whether ns-3 and cppyy are installed."""
    return find_spec("cppyy") is not None and _prefix() is not None


@functools.cache
def ns3_messages() -> Any:
    """Return the C++ namespace of our ``.cc`` files, compiled against ns-3; takes seconds the first time.

    Raises:
        InputError: ns-3 or cppyy is not installed, or does not load.
    """
    prefix = _prefix()
    if prefix is None or not available():
        raise InputError("network 'ns3' needs ns-3, expected `pip install armillary[ns3]`")
    try:
        cppyy = importlib.import_module("cppyy")
        # Wheels for some platforms use lib64, others lib.
        libraries = next(folder for folder in (prefix / "lib64", prefix / "lib") if folder.is_dir())
        cppyy.add_include_path(str(prefix / "include"))
        for module in _MODULES:
            cppyy.load_library(str(next(libraries.glob(f"libns3*-{module}.so"))))
        for source in ("parts.cc", "messages.cc"):
            cppyy.cppdef(files(__package__).joinpath(source).read_text())
        # ns-3 counts in ns by default; it must be set before the first Time is made.
        cppyy.gbl.ns3.Time.SetResolution(cppyy.gbl.ns3.Time.PS)
    except (ImportError, RuntimeError, StopIteration, SyntaxError) as error:
        raise InputError(
            f"network 'ns3': ns-3 at {prefix} does not load ({error or type(error).__name__}), expected ns3 3.44"
        ) from error
    return cppyy.gbl.armillary


def _prefix() -> Path | None:
    spec = find_spec("ns3")
    if spec is None:
        return None
    return next(
        (Path(at) for at in spec.submodule_search_locations or () if Path(at, "include").is_dir()), None
    )
