"""From a trace to that of another size: its axes are found, and each is scaled by laws that are listed."""

from armillary.workload.extrapolation.extrapolate import extrapolate
from armillary.workload.extrapolation.extrapolated import Assumption, Extrapolated
from armillary.workload.extrapolation.recognise import ranks_named_by, recognise, recognise_one
from armillary.workload.extrapolation.reference import Reference
from armillary.workload.extrapolation.roles import Evidence

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
