"""The registry of validations."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from armillary.base.errors import InputError, nearest, one_of
from armillary.evidence.validate.table import Suite

MODULES = ("collectives", "gemm", "nccl", "training.suites", "vllm", "silicon", "sim_to_real")
"""Modules of this package with ``SUITES``, in the order in which they are run."""


def suites() -> tuple[Suite, ...]:
    """Import the modules of all validations and return these."""
    # Imported only now: training needs readers that others do not.
    return tuple(
        suite
        for name in MODULES
        for suite in importlib.import_module(f"armillary.evidence.validate.{name}").SUITES
    )


def chosen(names: Iterable[str], known: Sequence[Suite]) -> tuple[Suite, ...]:
    """Return the suites of these names or patterns (``megatron-*``), each once, in their order; none: all.

    Raises:
        InputError: a name fits none.
    """
    found: dict[str, Suite] = {}
    for name in names:
        mine = {suite.name: suite for suite in known if fnmatchcase(suite.name, name)}
        if not mine:
            all_names = [suite.name for suite in known]
            raise InputError(
                f"no validation '{name}'{nearest(name, all_names)}, expected {one_of(all_names)}, or a pattern"
            )
        found |= mine
    # No name is all.
    return tuple(found.values()) or tuple(known)
