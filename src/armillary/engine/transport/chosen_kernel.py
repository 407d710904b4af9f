"""The transport whose kernel the variant of this module names."""

from __future__ import annotations

from armillary.base.jit import use, variant

mover = use(variant())
inject, advance, change = mover.inject, mover.advance, mover.change
