"""A ``config.json`` whose values are checked when they are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from armillary.base.document import Document
from armillary.workload.models.schema import Model

_GELU = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
_PLAIN = {**dict.fromkeys(_GELU, "gelu"), "relu": "relu"}
_GATED = {"silu": "swiglu", **dict.fromkeys(_GELU, "geglu")}
"""Without a gate silu has no name in our schema."""


class Configuration:
    """Values of a configuration, by the names that transformers gives them."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def given(self, key: str) -> bool:
        """Return whether `key` has a value that is not null."""
        return self.document.data.get(key) is not None

    def whole(self, key: str, default: int | None = None, low: int = 1) -> int:
        """Return a whole number of at least `low`; without a default the key must be there."""
        if not self.given(key) and default is not None:
            return default
        return self.document.whole((key,), self.document.require(key), low)

    def optional(self, key: str) -> int | None:
        """Return a whole number, or None if it is absent or null."""
        return self.whole(key) if self.given(key) else None

    def true(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        value = self.document.data.get(key, default)
        if not isinstance(value, bool):
            self.document.reject((key,), value, "true or false")
        return value

    def activation(self, key: str = "hidden_act", default: str | None = None, *, gated: bool) -> str:
        """Return our name of an activation; `gated`: the block has two input projections."""
        value = self.document.data.get(key, default) if default else self.document.require(key)
        known = _GATED if gated else _PLAIN
        return known[self.document.choice((key,), value, known)]

    def windows(self, kind: str, usual: int) -> int:
        """Return how many layers have no window.

        Args:
            kind: What ``layer_types`` calls them.
            usual: Where it is absent: of so many layers the last has none.
        """
        layers, kinds = self.whole("num_hidden_layers"), self.document.data.get("layer_types")
        if kinds is None:
            return layers // usual
        if not isinstance(kinds, list) or len(kinds) != layers:
            self.document.reject(("layer_types",), kinds, f"a list of {layers} names")
        return kinds.count(kind)

    def filled(self, usual: Mapping[str, Any]) -> Configuration:
        """Return the configuration with what is usual for keys that it leaves out."""
        return Configuration(replace(self.document, data={**usual, **self.document.data}))

    def only(self, key: str, value: object, why: str) -> None:
        """Refuse a `key` that is there with another value than `value`."""
        if key in self.document.data and self.document.data[key] != value:
            self.document.reject((key,), self.document.data[key], f"{value} ({why})")


Built = tuple[type[Model], dict[str, Any]]
"""A kind of model, and the keys of its description but for name and source."""
