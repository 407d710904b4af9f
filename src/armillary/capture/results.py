"""Results of operators on tensors without memory, remembered.

PyTorch's FakeTensorMode takes 100 us to say what shape an operator gives, and programs ask the same for every layer
and microbatch. What it gave for the same arguments is made again in a tenth of that. Arguments are the same if their
shapes, strides, types, devices and numbers are.
"""

from __future__ import annotations

from typing import Any

from armillary.convert.torch_import import torch_part

NAMESPACES = ("aten", "_c10d_functional")
"""Of operators whose results follow from their arguments, and for collectives from the size of their group."""
GIVEN, VIEW, MADE, PLAIN = range(4)
"""Parts of results: an argument itself, a view of one, a tensor with memory of its own, a number or nothing."""


class _OtherError(Exception):
    """An argument, or a result, of which more counts than is looked at."""


class Results:
    """Remembers results by operator and arguments."""

    def __init__(self, torch: Any, fake: Any) -> None:
        """Take a FakeTensorMode."""
        part = torch_part("_subclasses.fake_tensor")
        self._torch, self._fake, self._tensor = torch, fake, part.FakeTensor
        self._beneath = part.in_kernel_invocation_manager
        self._plain = (int, float, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
        # By number of arguments; None: it is asked for each time.
        self._known: dict[int, Any] = {}
        # Arguments once, as hashing them takes longer than most of what is done with them. Operators live as long as
        # the process.
        self._numbers: dict[Any, int] = {}
        self._attributes: dict[Any, dict[str, Any] | None] = {}
        unsafe = getattr(fake, "_allow_unsafe_data_ptr_access", False)
        guard = f"_set_{'warn_deprecated' if unsafe else 'throw'}_on_mutable_data_ptr"
        self._guard = getattr(torch._C, guard, None)

    def key(self, func: Any, args: Any, kwargs: Any) -> int | None:
        """Return the number that results are remembered by; None: they are not."""
        if func.namespace not in NAMESPACES:
            return None
        try:
            # Numbers and tensors of integers make the usual type.
            found = id(func), self._torch.get_default_dtype(), self._part(args), self._part(kwargs)
            return self._numbers.setdefault(found, len(self._numbers))
        except (_OtherError, TypeError):
            return None

    def _part(self, value: Any) -> Any:
        kind = type(value)
        if kind is self._tensor:
            return self._described(value)
        if kind in self._plain:
            return kind, value
        if value is None:
            return None
        if kind is tuple or kind is list:
            return kind, *map(self._part, value)
        if kind is dict:
            return tuple((name, self._part(each)) for name, each in value.items())
        raise _OtherError

    def _described(self, tensor: Any) -> tuple[Any, ...]:
        """Return all that counts of a tensor."""
        if (
            tensor.constant is not None or tensor.layout is not self._torch.strided or tensor.is_conj()
            or tensor.is_neg()
        ):  # fmt: skip
            raise _OtherError
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.storage_offset(), tensor.fake_device

    def has(self, key: int) -> bool:
        """Return whether `made` knows the results."""
        return self._known.get(key) is not None

    def made(self, key: int, given: list[Any]) -> Any:
        """Return the results of an operator once more; `given` are the leaves of its arguments."""
        container, parts = self._known[key]
        made = [self._one(part, given) for part in parts]
        return made[0] if container is None else container(made)

    def keep(self, key: int | None, func: Any, args: Any, kwargs: Any, given: list[Any], out: Any) -> None:
        """Remember the results of an operator that has run, if they can be made again."""
        if key is None or key in self._known:
            return
        try:
            self._known[key] = self._recipe(key, func, args, kwargs, given, out)
        except _OtherError:
            self._known[key] = None

    def _recipe(self, key: int, func: Any, args: Any, kwargs: Any, given: list[Any], out: Any) -> Any:
        if self.key(func, args, kwargs) != key:
            raise _OtherError  # it has changed what its arguments are
        container = type(out) if isinstance(out, list | tuple) else None
        if container not in (None, list, tuple):
            raise _OtherError
        places = {
            each.untyped_storage()._cdata: at for at, each in enumerate(given) if type(each) is self._tensor
        }
        own = set[int]()
        parts = [self._part_of(each, given, places, own) for each in (out if container else [out])]
        if container is None and parts[0][0] == PLAIN and parts[0][1] is not None:
            raise _OtherError  # which library it goes to, as settings say
        for part, each in zip(parts, out if container else [out], strict=True):
            # What is made has to be what PyTorch has made, to the last byte.
            if part[0] in (VIEW, MADE) and self._whole(self._one(part, given)) != self._whole(each):
                raise _OtherError
        return container, parts

    def _part_of(self, each: Any, given: list[Any], places: dict[int, int], own: set[int]) -> tuple[Any, ...]:
        if each is None or type(each) is int:
            return PLAIN, each
        if type(each) is not self._tensor:
            raise _OtherError
        for at, other in enumerate(given):
            if other is each:
                return GIVEN, at
        if each.requires_grad:
            raise _OtherError
        described, storage = self._described(each), each.untyped_storage()._cdata
        if storage in places:
            return VIEW, *described, places[storage]
        if storage in own:
            raise _OtherError
        own.add(storage)
        return MADE, *described

    def _whole(self, tensor: Any) -> tuple[Any, ...]:
        return (*self._described(tensor), tensor.untyped_storage().nbytes())

    def _one(self, part: tuple[Any, ...], given: list[Any]) -> Any:
        kind, first, *rest = part
        if kind == GIVEN:
            return given[first]
        if kind == PLAIN:
            return first
        stride, dtype, offset, device, *of = rest
        if kind == MADE:
            made = self._torch.empty_strided(first, stride, dtype=dtype, device="meta")
        else:
            with self._beneath(self._fake):
                made = given[of[0]].as_strided(first, stride, offset)
        return self._without_memory(made, device)

    def _without_memory(self, meta: Any, device: Any) -> Any:
        """Return what ``FakeTensor(mode, meta, device)`` does, which takes 5 times as long.

        Its attributes say nothing of the one tensor, if two of different shapes have the same.
        """
        if device not in self._attributes:
            one, other = (
                vars(self._tensor(self._fake, self._torch.empty(shape, device="meta"), device))
                for shape in ((), (2, 3))
            )
            self._attributes[device] = one if one == other else None
        attributes = self._attributes[device]
        if attributes is None or self._guard is None:
            return self._tensor(self._fake, meta, device)
        made = self._torch.Tensor._make_subclass(
            self._tensor, meta, meta.requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        self._guard(made)
        vars(made).update(attributes)
        return made
