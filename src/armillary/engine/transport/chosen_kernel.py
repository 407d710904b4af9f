"""The transport whose kernel the variant of this module names."""

from __future__ import annotations

from armillary.base.jit import use, variant

# Compiled once per transport: the variant fixes the callee, so Numba can inline it.
mover = use(variant())
inject, advance, change = mover.inject, mover.advance, mover.change
