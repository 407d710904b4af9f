"""The parallelism kinds: which NPUs take part in the collectives of a layer.

Source: ``decode_involved_dimensions`` of ASTRA-sim 1.0, where network dimension 0 is the inner part and the others
are the outer part, and SimAI's suffixes ``_EP`` and ``_DP_EP``.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """A part of the step, in the order of the columns."""

    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2


class Scope(IntEnum):
    """Who takes part in a collective."""

    ALL = 0
    INNER = 1
    """NPUs next to each other: dimension 0 in ASTRA-sim 1.0, the model-parallel group of a transformer."""
    OUTER = 2
    """NPUs of the same place in their inner group."""
    EP = 3
    """SimAI's expert-parallel group: neighbouring inner groups."""
    DP_EP = 4
    """SimAI's data-parallel group of one expert."""


Scopes = tuple[Scope | None, Scope | None, Scope | None]
"""For each phase who takes part; None: ASTRA-sim issues no collective there."""

_DATA: Scopes = (None, None, Scope.ALL)
_MODEL: Scopes = (Scope.ALL, Scope.ALL, None)
_INNER_MODEL: Scopes = (Scope.INNER, Scope.INNER, Scope.OUTER)

SCOPES: dict[str, Scopes] = {
    "MICRO": _DATA,
    "DATA": _DATA,
    "DATA_REORDER": _DATA,
    "MODEL": _MODEL,
    "DISTRIBUTED_INFERENCE": _MODEL,
    "HYBRID_DATA_MODEL": _INNER_MODEL,
    "HYBRID_MODEL_DATA": (Scope.OUTER, Scope.OUTER, Scope.INNER),
    "HYBRID_DLRM": _DATA,
    "HYBRID_DLRM_ENHANCED": _DATA,
    "HYBRID_TRANSFORMER": _INNER_MODEL,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _INNER_MODEL,
    "HYBRID_CUSTOMIZED": (None, None, None),
    "ALL": (Scope.ALL, Scope.ALL, Scope.ALL),
}
"""By kind; a layer of HYBRID_CUSTOMIZED names another of them. No file says ALL: it is that of the embedding tables,
layer 0, of HYBRID_DLRM, which are spread over all NPUs."""

DLRM = ("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")
