"""Values of tensors that have no memory, where a program asks for them.

What follows from constants is known: integers, flags and small numbers born of ``zeros``, ``full`` or ``arange`` have a
real tensor beside them, on which the same operators run, through functional collectives too. Which experts a router
chooses is assumed to be balanced. Nothing else is known: a flag is false, an integer 0, any other number 1, which is
finite. Nothing is nan or infinite.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from armillary.base.errors import InputError
from armillary.capture.leaves import leaves_of
from armillary.convert.torch_import import torch_part

MOST_ELEMENTS = 1 << 24
"""Largest tensor that is kept: 128 MiB of integers."""
MOST_NUMBERS = 16
"""Largest one of other numbers: flags of overflow, scales and counters, but no weights."""
MOST_READS = 10_000
"""Reads of unknown values at one place before it is taken for an endless loop."""
BORN = (
    "zeros",
    "ones",
    "full",
    "arange",
    "zeros_like",
    "new_zeros",
    "ones_like",
    "full_like",
    "new_full",
    "scalar_tensor",
)
UNCHANGED = ("_amp_foreach_non_finite_check_and_unscale_",)
"""Operators that write flags of overflow: there is none."""
EVEN = "which experts a router chooses is not known: tokens are taken to be divided evenly among them"
FINITE = {"isnan": False, "isinf": False, "isneginf": False, "isposinf": False, "isfinite": True}
LIKE = ("zeros_like", "new_zeros", "ones_like", "full_like", "new_full", "new_ones")
WRITTEN = ("_to_copy", "copy_", "fill_", "zero_")
RULED = frozenset(("eq", "ne", *FINITE, "histc", "bincount", "topk", *WRITTEN, *LIKE))
"""Operators whose results may be known when their arguments are not."""


class Values:
    """Real tensors beside fake ones.

    Attributes:
        assumed: Place in the program -> reads there of values that nobody knows.
        even: Whether choices were taken to be even.
    """

    def __init__(self, torch: Any) -> None:
        self.torch, self._leaves = torch, leaves_of(torch)
        self.fake = torch_part("_subclasses.fake_tensor").FakeTensor
        self.known: Any = torch.utils.weak.WeakIdKeyDictionary()
        self.assumed: Counter[str] = Counter()
        self.even = False

    def of(self, tensor: Any, place: str) -> Any:
        """Return the value of a tensor of one element.

        Raises:
            InputError: this place has asked too often.
        """
        if tensor in self.known:
            return self.known[tensor].item()
        self.count(place)
        return self.default(tensor.dtype)

    def count(self, place: str) -> None:
        """Note that a value was assumed.

        Raises:
            InputError: this place has asked too often.
        """
        self.assumed[place] += 1
        if self.assumed[place] > MOST_READS:
            raise InputError(
                f"{place}: asked {MOST_READS:,} times for values of tensors, which a capture does not have; expected "
                "no loop that waits for a value (flags are taken for false, integers for 0, other numbers for 1)"
            )

    def default(self, dtype: Any) -> Any:
        """Return what an unknown number of this type is taken for."""
        if dtype == self.torch.bool:
            return False
        return 1.0 if dtype.is_floating_point or dtype.is_complex else 0

    def array(self, tensor: Any, place: str) -> Any:
        """Return a tensor of any size as a real one."""
        if tensor in self.known:
            return self.known[tensor]
        self.count(place)
        value = self.torch.full((), self.default(tensor.dtype), dtype=tensor.dtype)
        return value.expand(tensor.shape).clone()

    def note(self, func: Any, args: Any, kwargs: Any, tensors: list[Any], out: Any) -> None:
        """Run an operator that has run on fake tensors on what is known of them."""
        torch, name = self.torch, func._overloadpacket.__name__
        if tensors and name not in RULED and not any(each in self.known for each in tensors):
            return  # nothing follows from nothing, and what is overwritten was not known
        results = [each for each in self._leaves(out) if isinstance(each, self.fake)]
        finite = _finite(name, args)
        if finite is not None and results:
            self.keep(results[0], torch.full((), finite).expand(results[0].shape))
        elif name in FINITE and results:
            self.keep(results[0], torch.full((), FINITE[name]).expand(results[0].shape))
        elif name in ("histc", "bincount") and results and args[0] not in self.known:
            self.even = True
            self.keep(results[0], _balanced(torch, args[0].numel(), results[0]))
        elif name == "topk" and len(results) == 2:
            index, experts = results[1], args[0].shape[args[2] if len(args) > 2 else -1]
            if index.numel() <= MOST_ELEMENTS:
                self.even = True
                self.keep(index, (torch.arange(index.numel()) % experts).view(index.shape))
        elif func.namespace in ("_c10d_functional", "c10d"):
            self._through(func, args, tensors, results)
        elif name in WRITTEN:
            self._written(name, args, results[0])
        elif not tensors:
            if name in BORN and results and self._small(results[0]):
                self.keep(results[0], func(*args, **{**kwargs, "device": torch.device("cpu")}))
        elif name in LIKE:
            if results and self._small(results[0]):
                at = 1 if name == "full_like" else 2
                value = (args[at] if name.startswith(("full", "new_full")) else 0) or 0
                value = 1 if "ones" in name else value
                self.keep(results[0], torch.full(results[0].shape, value, dtype=results[0].dtype))
        elif name not in UNCHANGED:
            self._follow(func, args, kwargs, tensors, out, results)

    def _written(self, name: str, args: Any, result: Any) -> None:
        """Note what a tensor is after all of it was written, perhaps from the CPU."""
        source = 0 if name == "zero_" else args[0 if name == "_to_copy" else 1]
        if isinstance(source, self.fake):
            source = self.known.get(source)
        if source is None or not self._small(result):
            self.known.pop(result, None)
        elif isinstance(source, self.torch.Tensor):
            self.keep(result, source.detach().expand(result.shape).clone())
        else:
            self.keep(result, self.torch.full(result.shape, source))

    def _small(self, tensor: Any) -> bool:
        numbers = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        return bool(tensor.numel() <= (MOST_NUMBERS if numbers else MOST_ELEMENTS))

    def keep(self, tensor: Any, value: Any) -> None:
        """Note what the value of a tensor is."""
        self.known[tensor] = value.to(tensor.dtype)

    def _through(self, func: Any, args: Any, tensors: list[Any], results: list[Any]) -> None:
        """Pass what is known through a collective: the other ranks have the same."""
        name = func._overloadpacket.__name__
        if name == "alltoall_base_" and tensors[1] in self.known and tensors[0].numel() == tensors[1].numel():
            self.known[tensors[0]] = self._exchanged(self.known[tensors[1]], args[2], *args[3:5])
        elif func.namespace == "_c10d_functional" and tensors and results and tensors[0] in self.known:
            value, result = self.known[tensors[0]], results[0]
            times = result.numel() // max(value.numel(), 1)
            if name == "all_to_all_single" and times == 1:
                self.known[result] = self._exchanged(value, args[3], *args[1:3]).view(result.shape)
            elif times * value.numel() == result.numel() and times:
                self.known[result] = value.repeat(times, *[1] * (value.dim() - 1)).view(result.shape)

    def _exchanged(self, value: Any, group: Any, *splits: Any) -> Any:
        """Return what a rank gets that gives `value` to the members of a group: of each its own part.

        Parts that differ by one only are an even choice of experts, rounded: all ranks get what they give, so that
        they stay alike.
        """
        core = torch_part("distributed.distributed_c10d")
        if isinstance(group, str):
            group = core._resolve_process_group(group)
        elif isinstance(group, self.torch.ScriptObject):
            group = self.torch.distributed.ProcessGroup.unbox(group)
        rank, members = group.rank(), group.size()
        uneven = any(len(set(each)) > 1 for each in splits if each)
        whole = bool(value.numel()) and value.shape[0] % members == 0
        if uneven or not whole or value.dtype == self.torch.bool or value.max() - value.min() <= 1:
            return value.clone()
        mine = value.chunk(members)[rank]
        return mine.repeat(members, *[1] * (value.dim() - 1))

    def _follow(
        self, func: Any, args: Any, kwargs: Any, tensors: list[Any], out: Any, results: list[Any]
    ) -> None:
        torch = self.torch
        known = all(each in self.known for each in tensors)
        if known and all(each.numel() <= MOST_ELEMENTS for each in results):
            try:
                found = func(*self._real(args), **self._real(kwargs))
            except Exception:
                found = None
            if found is not None:
                for fake, real in zip(self._leaves(out), self._leaves(found), strict=False):
                    if isinstance(fake, self.fake) and isinstance(real, torch.Tensor) and self._small(fake):
                        self.known[fake] = real
                return
        both = func._overloadpacket.__name__ in ("bitwise_and", "logical_and", "__and__") and results
        # What is false stays false, whatever the other says.
        if both and any(each in self.known and not self.known[each].any() for each in tensors):
            self.keep(results[0], torch.zeros(results[0].shape, dtype=results[0].dtype))
            return
        # What is overwritten by something unknown is unknown.
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if (
                argument.alias_info is not None
                and argument.alias_info.is_write
                and isinstance(value, self.fake)
            ):
                self.known.pop(value, None)

    def _real(self, value: Any) -> Any:
        cpu = self.torch.device("cpu")

        def of(leaf: Any) -> Any:
            if isinstance(leaf, self.fake):
                return self.known[leaf]
            return cpu if isinstance(leaf, self.torch.device) else leaf

        return self.torch.utils._pytree.tree_map(of, value)


def _finite(name: str, args: Any) -> bool | None:
    """Return what a comparison says that only asks whether numbers are finite: with themselves, or with infinity."""
    if name not in ("eq", "ne") or len(args) != 2:
        return None
    if args[0] is args[1]:
        return name == "eq"
    infinite = isinstance(args[1], float) and args[1] in (float("inf"), float("-inf"))
    return name == "ne" if infinite else None


def _balanced(torch: Any, tokens: int, like: Any) -> Any:
    """Return how many tokens each of the experts gets."""
    each, more = divmod(tokens, max(like.numel(), 1))
    value = torch.full((like.numel(),), each, dtype=torch.int64)
    value[:more] += 1
    return value.view(like.shape)
