"""The dispatch mode that records: tensors of CPUs are real, those of the device have no memory.

A mode sees every operator below autograd: forward, backward and optimizer. Operators on tensors of the device run in
PyTorch's FakeTensorMode, which knows shapes and types only. All others run as they are: data loaders, tokenizers and
device meshes need real numbers.
"""

from __future__ import annotations

from functools import cache
from threading import RLock
from typing import Any, Protocol

from armillary.base.errors import InputError
from armillary.capture.kinds import kept
from armillary.capture.leaves import leaves_of
from armillary.capture.results import Results
from armillary.capture.rules import rules
from armillary.capture.sizes import Sizes
from armillary.capture.values import Values
from armillary.capture.where import Where
from armillary.convert.pytorch.operators.attention import gemms
from armillary.convert.torch_import import torch_part
from armillary.trace.attention import Attention


class Recorder(Protocol):
    """What is told of operators; see `armillary.capture.recorder.Recorder`."""

    values: Values
    where: Where
    paused: bool

    def operator(
        self, func: Any, args: Any, kwargs: Any, tensors: list[Any], out: Any, key: Any = None
    ) -> None:
        """Take an operator that has run; those with an equal `key` have the same arguments but for their values."""

    def higher(
        self, name: str, tensors: list[Any], out: Any, flops: int, shape: Attention | None = None
    ) -> None:
        """Take an operator that takes functions."""

    def wait_for(self, tensor: Any) -> None:
        """Let the current stream wait for what writes a tensor."""

    def read(self, tensor: Any) -> Any:
        """Return the value of a tensor, for which the host waits."""

    def waited(self) -> None:
        """Note that the host waits for the stream."""


def mode_of(torch: Any, recorder: Recorder) -> Any:
    """Return the mode, to be entered around a program."""
    FakeTensor: Any = torch_part("_subclasses.fake_tensor").FakeTensor
    AsyncCollectiveTensor: Any = torch_part("distributed._functional_collectives").AsyncCollectiveTensor
    TorchDispatchMode: Any = torch_part("utils._python_dispatch").TorchDispatchMode
    aten, functional, leaves = torch.ops.aten, torch.ops._c10d_functional, leaves_of(torch)
    fake = torch_part("_subclasses.fake_tensor").FakeTensorMode(allow_non_fake_inputs=True)
    one_thread = RLock()
    ruled, sizes, pinned = rules(torch), Sizes(torch, recorder.values), set[int]()
    results = Results(torch, fake)

    @cache
    def in_parts(func: Any) -> bool:
        """Return whether an operator has no kernel of its own on the device, but calls others."""
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        return has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "CUDA")

    def on_device(device: Any) -> bool:
        return device is not None and torch.device(device).type == "cuda"

    def is_host(device: Any) -> bool:
        return device is not None and torch.device(device).type == "cpu"

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Nothing is compiled here, and PyTorch would guard each call against it.
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if (
                func.namespace == "prim"
            ):  # a tensor's device, which PyTorch asks as often as it calls operators
                return func(*args, **(kwargs or {}))
            # Of a program's threads one at a time: FakeTensorMode knows what it is in by a stack of its own.
            with one_thread:
                return self.called(func, types, args, kwargs or {})

        def called(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(func, torch._ops.HigherOrderOperator):
                return higher(func, args, kwargs)
            # DTensor calls the operators on its local tensors, which come here, too, and so do others that hold
            # tensors, as those of float8; what a collective of functions gives waits for it at its first use, and calls
            # the operator after that.
            if any(hasattr(each, "__tensor_flatten__") for each in types):
                return NotImplemented
            given = leaves((args, kwargs))
            tensors = [each for each in given if isinstance(each, torch.Tensor)]
            has = any(isinstance(each, FakeTensor) for each in tensors)
            device = kwargs.get("device")
            if not has and not on_device(device):
                if func is aten.is_pinned.default:
                    return args[0].untyped_storage()._cdata in pinned
                if not kwargs.get("pin_memory"):
                    return func(*args, **kwargs)
                # There is no CUDA that could lock pages; DDP insists that they are.
                made = func(*args, **{**kwargs, "pin_memory": False})
                pinned.add(made.untyped_storage()._cdata)
                return made
            if in_parts(func):
                # Below autograd such operators come whole; their parts are recorded instead.
                with self:
                    found = func.decompose(*args, **kwargs)
                if found is not NotImplemented:
                    return found
            # Rules for tensors without memory make new tensors of these two, where PyTorch gives back its argument.
            if func is functional._wrap_tensor_autograd.default:
                return AsyncCollectiveTensor(args[0])
            if func is functional.wait_tensor.default:
                recorder.wait_for(args[0])
                return args[0]
            if func is aten._local_scalar_dense.default:
                return recorder.read(args[0])
            if func is aten._to_copy.default and args[0] in recorder.values.known and is_host(device):
                # What is known is real again on the CPU.
                out = func(recorder.values.known[args[0]], *args[1:], **kwargs)
                recorder.operator(func, args, kwargs, tensors, out)
                if not kwargs.get("non_blocking"):
                    recorder.waited()
                return out
            if func in (aten._pin_memory.default, aten.is_pinned.default):
                return args[0]
            if on_device(device):
                index, count = torch.device(device).index, torch.cuda.device_count()
                if index is None:
                    kwargs = {
                        **kwargs,
                        "device": torch.device("cuda", torch.accelerator.current_device_index()),
                    }
                elif index >= count:
                    raise InputError(
                        f"{recorder.where.line()}: cuda:{index} is asked for on a host of {count} GPUs; expected "
                        f"cuda:0 to cuda:{count - 1}: a host has 8, or as many as --ranks says"
                    )
            if has and (rule := sizes.rule(func, args, kwargs)) is not None:
                # Outside of FakeTensorMode, in which no tensor has a value.
                out = rule(func, recorder.where.line(), args, kwargs)
                recorder.operator(func, args, kwargs, tensors, out)
                recorder.waited()
                return out
            like = None
            if not has and func is aten._to_copy.default:
                # FakeTensorMode would remember the real tensor, and it could no longer take the place of another.
                like = func(*args, **{**kwargs, "device": "meta"})
            key = results.key(func, args, kwargs) if like is None else None
            if key is not None and results.has(key):
                out = results.made(key, given)
            else:
                with fake:
                    if like is not None:
                        out = torch.empty_strided(
                            like.shape, like.stride(), dtype=like.dtype, device=kwargs["device"]
                        )
                    elif func is aten.bincount.default:
                        # As many counts as it names: no number is larger.
                        out = args[0].new_empty(args[2], dtype=torch.int64)
                    else:
                        out = ruled.get(func.name(), func)(*args, **kwargs)
                results.keep(key, func, args, kwargs, given, out)
            fakes = [each for each in tensors if isinstance(each, FakeTensor)]
            if isinstance(out, bool):  # which library it goes to
                return out
            recorder.values.note(func, args, kwargs, fakes, out)
            recorder.operator(func, args, kwargs, tensors, out, key)
            return out

    def higher(func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [each for each in leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        with fake:
            out = func(*args, **kwargs)
        name, flops, shape = func.name(), 0, None
        if name in ("flex_attention", "flex_attention_backward"):
            back = name.endswith("backward")
            query, key, value = (tuple(map(int, each.shape)) for each in args[:3])
            shape = Attention(query[0], query[1], key[1], query[2], key[2], query[3], value[3], int(back))
            flops = gemms(query[0] * query[1] * query[2] * key[2], query[3], value[3], backward=back)
            masks = [each[-1] for each in args if isinstance(each, tuple) and each and callable(each[-1])]
            if any(looks_back(part) for mask in masks[-1:] for part in all_of(mask)):
                flops = kept(flops, shape)
        recorder.higher(name, tensors, out, flops, shape)
        return out

    def all_of(mask: Any) -> list[Any]:
        """Return the masks that `and_masks` has put together, and the mask itself."""
        held = [cell.cell_contents for cell in getattr(mask, "__closure__", None) or ()]
        parts = [each for value in held if isinstance(value, tuple) for each in value if callable(each)]
        return [*parts, mask]

    def looks_back(mask: Any) -> bool:
        """Return whether the first query does not see the second key, whatever documents and windows hide besides."""
        recorder.paused = True
        try:
            with mode:
                zero, one = (torch.full((), at, dtype=torch.int64, device="cuda") for at in (0, 1))
                seen = mask(zero, zero, zero, one)
        except Exception:  # a mask of the program's own, of tensors that are elsewhere
            return False
        finally:
            recorder.paused = False
        known = recorder.values.known.get(seen) if isinstance(seen, FakeTensor) else seen
        return known is not None and not bool(known)

    mode = Mode()
    return mode
