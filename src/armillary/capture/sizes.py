"""Operators whose results are as large as values say.

Values that follow from constants, or that came from the CPU, decide exactly. Of others nobody knows: a mask selects
everything, numbers differ from each other and are repeated once, and two tensors are equal. Each is counted as an
assumed value. The host waits for all of them, as it does on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.capture.values import MOST_ELEMENTS, Values

INDEX = "aten::index.Tensor"
"""Masks among its indices are selections, too."""


class Sizes:
    """Gives the results of such operators; called outside of FakeTensorMode."""

    def __init__(self, torch: Any, values: Values) -> None:
        self.torch, self.values = torch, values
        self._rules: dict[str, Callable[..., Any]] = {
            "aten::nonzero": self._nonzero, "aten::masked_select": self._masked_select,
            "aten::repeat_interleave.Tensor": self._repeated, "aten::bincount": self._counted,
            "aten::equal": self._equal, "aten::allclose": self._equal, "aten::_pack_padded_sequence": self._packed,
        }  # fmt: skip
        for name in ("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"):
            self._rules[f"aten::{name}"] = self._unique

    def rule(self, func: Any, args: Any, kwargs: Any) -> Callable[..., Any] | None:
        """Return what is called with (func, place, args, kwargs) and gives the results; None: their sizes are known."""
        name = func.name()
        if name == INDEX:
            return self._index if any(map(self._is_mask, args[1])) else None
        if name == "aten::repeat_interleave.Tensor" and kwargs.get("output_size") is not None:
            return None
        if name == "aten::bincount" and len(args) > 2 and args[2]:
            return None
        return self._rules.get(name)

    def _is_mask(self, each: Any) -> bool:
        return isinstance(each, self.values.fake) and each.dtype in (self.torch.bool, self.torch.uint8)

    def _known(self, place: str, *tensors: Any) -> list[Any] | None:
        """Return real tensors; None, which is counted: one of them is not known."""
        found = [
            self.values.known.get(each) if isinstance(each, self.values.fake) else each for each in tensors
        ]
        if any(each is None for each in found):
            self.values.count(place)
            return None
        return found

    def _made(self, like: Any, real: Any) -> Any:
        """Return a tensor without memory, whose value is known."""
        made = like.new_empty(real.shape, dtype=real.dtype)
        self.values.keep(made, real)
        return made

    def _nonzero(self, func: Any, place: str, args: Any, kwargs: Any) -> Any:
        real = self._selected(args[0], place)
        if real is None:
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=self.torch.int64)
        return self._made(args[0], real)

    def _selected(self, mask: Any, place: str) -> Any:
        """Return where a mask is true; None: everywhere, and that is too much to write down."""
        found = self._known(place, mask)
        if found is None and mask.numel() > MOST_ELEMENTS:
            return None
        whole = self.torch.ones(mask.shape, dtype=self.torch.bool) if found is None else found[0]
        return whole.nonzero()

    def _masked_select(self, func: Any, place: str, args: Any, kwargs: Any) -> Any:
        x, mask = args
        shape = self.torch.broadcast_shapes(x.shape, mask.shape)
        if (found := self._known(place, mask)) is not None:
            count = int(found[0].count_nonzero()) * (shape.numel() // max(mask.numel(), 1))
        else:
            count = shape.numel()
        return x.new_empty(count)

    def _index(self, func: Any, place: str, args: Any, kwargs: Any) -> Any:
        indices: list[Any] = []
        for each in args[1]:
            if self._is_mask(each):
                real = self._selected(each, place)
                columns = range(each.dim())
                if real is None:
                    indices += [each.new_empty(each.numel(), dtype=self.torch.int64) for _ in columns]
                else:
                    indices += [self._made(each, real[:, at]) for at in columns]
            else:
                indices.append(each)
        out = func(args[0], indices, **kwargs)
        tensors = [each for each in (args[0], *indices) if isinstance(each, self.values.fake)]
        self.values.note(func, (args[0], indices), kwargs, tensors, out)
        return out

    def _repeated(self, func: Any, place: str, args: Any, kwargs: Any) -> Any:
        (repeats,) = args
        if (found := self._known(place, repeats)) is not None:
            return self._made(repeats, self.torch.repeat_interleave(found[0]))
        return self._made(repeats, self.torch.arange(repeats.numel()).to(repeats.dtype))

    def _counted(self, func: Any, place: str, args: Any, kwargs: Any) -> Any:
        torch, numbers = self.torch, self._known(place, args[0])
        weights = args[1] if len(args) > 1 else None
        # One count, if nobody knows: numbers that are not known are 0.
        real = torch.zeros(1, dtype=torch.int64) if numbers is None else torch.bincount(numbers[0])
        if weights is None:
            return self._made(args[0], real)
        single = weights.dtype == torch.float32
        return args[0].new_empty(len(real), dtype=torch.float32 if single else torch.float64)

    def _packed(self, func: Any, place: str, args: Any, kwargs: Any) -> Any:
        """Return steps of sequences of these lengths, the longest first, and how many sequences each step has."""
        torch, (x, lengths, batch_first) = self.torch, args
        steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
        found = self._known(place, lengths)
        real = torch.full((batch,), steps) if found is None else found[0]
        sizes = (real[None, :] > torch.arange(int(real.max()))[:, None]).sum(1)
        return x.new_empty((int(real.sum()), *x.shape[2:])), sizes

    def _equal(self, func: Any, place: str, args: Any, kwargs: Any) -> bool:
        if args[0].shape != args[1].shape and func.name() == "aten::equal":
            return False
        found = self._known(place, *args[:2])
        return True if found is None else bool(func(*found, *args[2:], **kwargs))

    def _unique(self, func: Any, place: str, args: Any, kwargs: Any) -> Any:
        x = args[0]
        if (found := self._known(place, x)) is None:
            # As many as there are: with equal sizes, values would be made up for nothing.
            at = args[1] if func.name() in ("aten::unique_dim", "aten::unique_dim_consecutive") else None
            count = x.numel() if at is None else x.shape[at]
            values = x.new_empty(count) if at is None else x.new_empty(x.shape)
            inverse = x.new_empty(x.shape if at is None else count, dtype=self.torch.int64)
            return values, inverse, x.new_empty(count, dtype=self.torch.int64)
        return tuple(self._made(x, each) for each in func(found[0], *args[1:], **kwargs))
