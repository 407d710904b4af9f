"""From a trace to that of another size: its axes are found, and each is scaled by laws that are listed."""

from armillary.lab.extrapolation.extrapolate import Assumption, Extrapolated, extrapolate
from armillary.lab.extrapolation.recognise import ranks_named_by, recognise, recognise_one
from armillary.lab.extrapolation.reference import Reference
from armillary.lab.extrapolation.roles import Evidence

__all__ = [
    "Assumption",
    "Evidence",
    "Extrapolated",
    "Reference",
    "extrapolate",
    "ranks_named_by",
    "recognise",
    "recognise_one",
]
