"""A ``config.json`` whose values are checked when they are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from armillary.base.document import Document
from armillary.base.hints import misspelt
from armillary.workload.models.schema import Model

_GELU = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
_PLAIN = {**dict.fromkeys(_GELU, "gelu"), "relu": "relu"}
_GATED = {"silu": "swiglu", **dict.fromkeys(_GELU, "geglu")}
"""Without a gate silu has no name in our schema."""


class Configuration:
    """Values of a configuration, by the names that transformers gives them."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._usual: dict[str, object] = {}
        self._asked: set[str] = set()

    def value(self, key: str, default: object = None) -> Any:
        """Return what `key` has, of any kind."""
        self._asked.add(key)
        return self.document.data.get(key, self._usual.get(key, default))

    def required(self, key: str) -> Any:
        """Return what `key` has, which must be there unless something is usual for it."""
        return self.value(key) if key in self._usual else self.document.require(key)

    def given(self, key: str) -> bool:
        """Return whether `key` has a value that is not null."""
        return self.value(key) is not None

    def check_misspelt(self) -> None:
        """Refuse a key that nothing asked for and that is a typo away from one that has its default for it.

        Raises:
            InputError: there is one; transformers would take the default in silence.
        """
        left_out = self._asked - self.document.data.keys()
        for key, value in self.document.data.items():
            if key not in self._asked and (hint := misspelt(key, left_out)):
                self.document.reject(
                    (key,), value, f"a key that {self.document.data['model_type']} has", hint
                )

    def whole(self, key: str, default: int | None = None, low: int = 1) -> int:
        """Return a whole number of at least `low`; without a default the key must be there."""
        if not self.given(key) and default is not None:
            return default
        return self.document.whole((key,), self.required(key), low)

    def optional(self, key: str) -> int | None:
        """Return a whole number, or None if it is absent or null."""
        return self.whole(key) if self.given(key) else None

    def part(self, key: str) -> Configuration:
        """Return the configuration that `key` has; absent or null, an empty one."""
        value = self.value(key) or {}
        if not isinstance(value, Mapping):
            self.document.reject((key,), value, "a mapping of keys to values")
        return Configuration(replace(self.document, data={**value}))

    def true(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        value = self.value(key, default)
        if not isinstance(value, bool):
            self.document.reject((key,), value, "true or false")
        return value

    def activation(self, key: str = "hidden_act", default: str | None = None, *, gated: bool) -> str:
        """Return our name of an activation; `gated`: the block has two input projections."""
        value = self.value(key, default) if default else self.required(key)
        known = _GATED if gated else _PLAIN
        return known[self.document.choice((key,), value, known)]

    def windows(self, kind: str, usual: int) -> int:
        """Return how many layers have no window.

        Args:
            kind: What ``layer_types`` calls them.
            usual: Where it is absent: of so many layers the last has none.
        """
        layers, kinds = self.whole("num_hidden_layers"), self.value("layer_types")
        if kinds is None:
            return layers // usual
        if not isinstance(kinds, list) or len(kinds) != layers:
            self.document.reject(("layer_types",), kinds, f"a list of {layers} names")
        return kinds.count(kind)

    def filled(self, usual: Mapping[str, object]) -> Configuration:
        """Return the configuration with what is usual for keys that it leaves out; of two, what was said first."""
        self._usual = {**usual, **self._usual}
        return self

    def only(self, key: str, value: object, why: str) -> None:
        """Refuse a `key` that is there with another value than `value`."""
        if (found := self.value(key, value)) != value:
            self.document.reject((key,), found, f"{value} ({why})")


Built = tuple[type[Model], dict[str, Any]]
"""A kind of model, and the keys of its description but for name and source."""
