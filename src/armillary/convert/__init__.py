"""Other formats to Chakra traces: one front end for each format, found by its name."""

from __future__ import annotations

from armillary.convert.converted import Converted, report
from armillary.convert.front_ends import FrontEnd, front_end, names
from armillary.convert.groups import Groups

__all__ = ["Converted", "FrontEnd", "Groups", "front_end", "names", "report"]
