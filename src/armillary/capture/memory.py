"""Memory that tensors would take on the device: what is alive, and the most of it at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

BLOCK = 512
"""Sizes are rounded up to this, as by PyTorch's caching allocator (`kMinBlockSize`)."""


class Memory:
    """Follows storages from their first use to their end.

    Attributes:
        now: Bytes alive.
        peak: Most at a time since `restart`.
    """

    def __init__(self, torch: Any, gone: Callable[[int], object]) -> None:
        """Begin; `gone` gets the key of each storage that ends, which another may have after it."""
        self._tell = gone
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._watched: dict[int, Any] = {}
        storage = torch.UntypedStorage
        resize = storage.resize_
        memory = self

        def resized(self: Any, size: int) -> Any:
            """FSDP frees weights by making their storage empty, and has them again by making it as large as it was."""
            found = resize(self, size)
            if self._cdata in memory._sizes:
                memory._set(self._cdata, size)
            return found

        storage.resize_ = resized

    def restart(self) -> None:
        """Let the peak begin anew."""
        self.peak = self.now

    def see(self, tensor: Any) -> None:
        """Count the storage of a tensor, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        self._set(key, storage.nbytes())
        self._watched[key] = weakref.ref(storage, lambda _, key=key: self._gone(key))  # type: ignore[misc]

    def _set(self, key: int, size: int) -> None:
        new = -(-size // BLOCK) * BLOCK
        self.now += new - self._sizes.get(key, 0)
        self._sizes[key] = new
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)
        self._watched.pop(key, None)
        self._tell(key)
