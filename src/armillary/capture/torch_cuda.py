"""`torch.cuda` of a device that is not there: what programs ask of it, answered from the data sheet.

Everything that depends on the internals of PyTorch, beside the dispatch mode of `armillary.capture.mode`, is in this
file and the two for streams and for process groups. What is replaced here stays replaced: a process that captures does
nothing else.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable
from copyreg import _slotnames  # type: ignore[attr-defined]
from typing import Any

from armillary.capture import compilers, profilers
from armillary.capture.cuda_streams import streams
from armillary.capture.device import FakeDevice
from armillary.capture.graphs import Graphs
from armillary.capture.library import Library
from armillary.capture.memory import Memory
from armillary.capture.recorder import Recorder
from armillary.convert.torch_import import torch_part

WHOLE = ("_fused_rms_norm", "silu_backward", "mish_backward")
"""Operators that are one kernel on CUDA, of which a CPU's wheel knows only the parts: `native_functions.yaml` has CUDA
beside CompositeImplicitAutograd for them."""

OLD_TYPES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool")
"""Of tensors that `torch.cuda` had a class for before devices were arguments."""
_DTYPES = {"Byte": "uint8", "Char": "int8"}


def install(
    torch: Any, library: Library, device: FakeDevice, count: int, recorder: Recorder, graphs: Graphs
) -> None:
    """Let PyTorch see `count` devices.

    The recorder learns of streams and events, and of what `torch.compile` is asked for; it knows the memory.
    """
    noted = recorder.noted
    # Under their real device checks; both ask what there is when they are imported.
    torch_part("_dynamo")
    torch_part("_inductor.utils")
    library.install(count, noted)
    torch._C._cuda_getCurrentRawStream = lambda _=0: library.stream()
    cuda = torch.cuda
    answers = {
        **_state(torch, device, count),
        **streams(torch, noted, graphs, lambda given: _index(torch, given)),
        **_memory(device, recorder.memory),
        **_random(torch, count),
    }
    for name, value in answers.items():
        if isinstance(value, types.FunctionType):
            # A function object of its own for every name: Dynamo has a table of them.
            value = _own(value)
        setattr(cuda, name, value)
        for part in (cuda.memory, cuda.streams, cuda.random, cuda.graphs):
            if hasattr(part, name):
                setattr(part, name, value)
    torch.version.cuda = torch.version.cuda or "12.8"
    torch.backends.cuda.is_built = lambda: True
    torch._C._host_emptyCache = lambda: None
    torch.cuda.nccl.version = lambda: (2, 27, 5)
    # It is said to be there; layers of RNNs ask further, for kernels that only the device has.
    cudnn = torch.backends.cudnn
    cudnn.is_acceptable = lambda _: False
    cudnn.is_available, cudnn.version = lambda: True, lambda: 91002
    torch.Tensor.record_stream = lambda *_, **__: None
    torch.Tensor.pin_memory = lambda self, *_, **__: self
    torch.Tensor.is_pinned = lambda *_, **__: False
    _fake_tensors(torch)
    _old_types(torch)
    _layouts(recorder)
    _moves(torch)
    _lengths(torch)
    profilers.install(torch)
    compilers.install(torch, recorder.where)


def _lengths(torch: Any) -> None:
    """Let lengths of `ctc_loss` that are on the CPU be numbers, as they are for CUDA."""
    plain = torch.ctc_loss

    def ctc_loss(x: Any, targets: Any, *lengths: Any, **more: Any) -> Any:
        first = [
            each.tolist() if isinstance(each, torch.Tensor) and each.device.type == "cpu" else each
            for each in lengths[:2]
        ]
        return plain(x, targets, *first, *lengths[2:], **more)

    torch.ctc_loss = ctc_loss


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    def own(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return own


def _index(torch: Any, device: Any) -> int:
    if device is None:
        return int(torch.accelerator.current_device_index())
    return device if isinstance(device, int) else (torch.device(device).index or 0)


def _state(torch: Any, device: FakeDevice, count: int) -> dict[str, Any]:
    major, minor = device.capability
    properties = types.SimpleNamespace(
        name=device.title, major=major, minor=minor, total_memory=device.memory,
        multi_processor_count=device.processors, warp_size=32, gcnArchName="", regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048, max_threads_per_block=1024, shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, L2_cache_size=50 << 20,
        is_integrated=0, is_multi_gpu_board=0, uuid="0", clock_rate=1_980_000, memory_clock_rate=2_619_000,
        memory_bus_width=5120, pci_bus_id=0, pci_device_id=0, pci_domain_id=0,
    )  # fmt: skip

    class Context:
        """``with torch.cuda.device(1):``."""

        def __init__(self, index: Any) -> None:
            self.index = _index(torch, index)

        def __enter__(self) -> None:
            self.before = torch.accelerator.current_device_index()
            torch.accelerator.set_device_index(self.index)

        def __exit__(self, *_: object) -> None:
            torch.accelerator.set_device_index(self.before)

    nothing = types.SimpleNamespace(cudaProfilerStart=lambda: None, cudaProfilerStop=lambda: None)
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_compiled": lambda: True,
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "device": Context,
        "device_count": lambda: count,
        "current_device": torch.accelerator.current_device_index,
        "set_device": lambda index: torch.accelerator.set_device_index(_index(torch, index)),
        "get_device_properties": lambda _=None: properties,
        "get_device_capability": lambda _=None: device.capability,
        "get_device_name": lambda _=None: device.title,
        "get_arch_list": lambda: [f"sm_{major}{minor}"],
        "is_bf16_supported": lambda *_, **__: True,
        "can_device_access_peer": lambda *_: True,
        **dict.fromkeys(("utilization", "memory_usage", "temperature", "power_draw"), lambda *_, **__: 0),
        "ipc_collect": lambda: None,
        "current_blas_handle": lambda: 0,
        "_sleep": lambda *_: None,
        "cudart": lambda: nothing,
    }


def _memory(device: FakeDevice, memory: Memory) -> dict[str, Any]:
    def now(*_: Any, **__: Any) -> int:
        return memory.now

    def most(*_: Any, **__: Any) -> int:
        return memory.asked_peak

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def statistics(*_: Any, **__: Any) -> dict[str, int]:
        # One pool, whose blocks are those of the tensors; whatever else a program asks for is 0.
        found: dict[str, int] = defaultdict(int)
        for what in ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes"):
            found[f"{what}.all.current"], found[f"{what}.all.peak"] = memory.now, memory.asked_peak
        return found

    resets = ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")
    without = (
        "empty_cache", "reset_accumulated_memory_stats", "set_per_process_memory_fraction",
        "_record_memory_history", "_dump_snapshot",
    )  # fmt: skip
    return {
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), now),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), most),
        **dict.fromkeys(resets, lambda *_, **__: memory.ask_anew()),
        **dict.fromkeys(without, nothing),
        "mem_get_info": lambda _=None: (max(0, device.memory - memory.now), device.memory),
        "memory_stats": statistics,
        "memory_summary": lambda *_, **__: "",
        "memory_snapshot": lambda *_, **__: [],
    }


def _random(torch: Any, count: int) -> dict[str, Any]:
    class Generator:
        """A generator whose numbers nobody sees."""

        def get_state(self) -> Any:
            # As long as that of Philox, which DTensor looks into.
            return torch.zeros(16, dtype=torch.uint8)

        def clone_state(self) -> Generator:
            return self

        graphsafe_get_state = clone_state

        def set_state(self, *_: Any) -> None:
            pass

        graphsafe_set_state = set_offset = manual_seed = set_state

        def initial_seed(self) -> int:
            return 0

        seed = get_offset = initial_seed

    generators = tuple(Generator() for _ in range(count))
    nothing = ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all")
    return {
        **{name: _own(lambda *_, **__: None) for name in nothing},
        "initial_seed": lambda: 0,
        "get_rng_state": lambda *_, **__: generators[0].get_state(),
        "get_rng_state_all": lambda: [each.get_state() for each in generators],
        "default_generators": generators,
    }


def _without_memory(*_: Any) -> Any:
    """Stand where a kernel of CUDA does: the mode that records takes the call before it comes here."""
    raise RuntimeError("a tensor of the device has memory")


def _fake_tensors(torch: Any) -> None:
    fake_tensor = torch_part("_subclasses.fake_tensor")

    # Without it `FakeTensorMode` copies constants to the device as soon as there is one.
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda _: True)
    fake_tensor.init_gpu_context = lambda *_: None
    # Optimizers take several tensors at once where their types are known, as those of parameters on GPUs are.
    torch_part("optim.optimizer")._foreach_supported_types.append(fake_tensor.FakeTensor)
    # torch.tensor(…, device="cuda") would go past all modes.
    torch._C._set_only_lift_cpu_tensors(True)
    # The CPU's wheel knows no choice of attention for CUDA: it would multiply scores of the full square.
    kept = torch.library.Library("aten", "IMPL")

    def choice(query: Any, key: Any, value: Any, mask: Any = None, *_: Any, **__: Any) -> int:
        return 1 if mask is None and query.dtype in (torch.bfloat16, torch.float16) else 2

    for key in ("CUDA", "Meta"):
        kept.impl("_fused_sdp_choice", choice, key)
    for name in WHOLE:
        kept.impl(name, _without_memory, "CUDA")
    torch._armillary_kept = kept  # a library that is collected takes its operators away


def _old_types(torch: Any) -> None:
    """Let `torch.cuda.FloatTensor` and its like make tensors: PyTorch refuses without CUDA. Older programs use them."""

    class Type(type):
        dtype: Any

        def __call__(cls, *data: Any, **_: Any) -> Any:
            if len(data) == 1 and not isinstance(data[0], int | torch.Size):
                return torch.as_tensor(data[0], dtype=cls.dtype, device="cuda")
            return torch.empty(*data, dtype=cls.dtype, device="cuda")

        def __instancecheck__(cls, each: object) -> bool:
            return isinstance(each, torch.Tensor) and each.device.type == "cuda" and each.dtype == cls.dtype

    for name in OLD_TYPES:
        # The whole name, by which `Tensor.type` knows what is meant.
        made = Type(
            f"torch.cuda.{name}Tensor", (), {"dtype": getattr(torch, _DTYPES.get(name, name.lower()))}
        )
        setattr(torch.cuda, f"{name}Tensor", made)
    plain = torch.set_default_tensor_type

    def set_default_tensor_type(given: Any) -> None:
        found = getattr(torch.cuda, str(getattr(given, "__name__", given)).removeprefix("torch.cuda."), None)
        if not isinstance(found, Type):
            plain(given)
            return
        torch.set_default_dtype(found.dtype)
        torch.set_default_device("cuda")

    torch.set_default_tensor_type = set_default_tensor_type


def _layouts(recorder: Recorder) -> None:
    """Record nothing of what DTensor runs on tensors of global shape, only to learn what an operator gives."""
    propagator = torch_part("distributed.tensor._sharding_prop").ShardingPropagator
    ask = propagator._propagate_tensor_meta_non_cached

    def asked(self: Any, schema: Any) -> Any:
        before, recorder.paused = recorder.paused, True
        try:
            return ask(self, schema)
        finally:
            recorder.paused = before

    propagator._propagate_tensor_meta_non_cached = asked


def _moves(torch: Any) -> None:
    """Let parameters move to the device and stay the same objects: optimizers may have them already.

    PyTorch would put the memory of a tensor without any into a real one, or keep its class, and lose the device.
    """
    fake, plain = torch_part("_subclasses.fake_tensor").FakeTensor, torch.Tensor.data

    def become(self: Any, new: Any) -> None:
        """Let a tensor be another one, as `torch.utils.swap_tensors`, which refuses those with weak references."""
        torch._C._swap_tensor_impl(self, new)
        for name in _slotnames(type(self)) if type(self) is type(new) else ():
            mine, its = getattr(self, name), getattr(new, name)
            setattr(self, name, its)
            setattr(new, name, mine)
        self.__class__, new.__class__ = new.__class__, self.__class__
        vars(new).update({name: value for name, value in vars(self).items() if name not in vars(new)})
        self.__dict__, new.__dict__ = new.__dict__, self.__dict__

    def assign(self: Any, value: Any) -> None:
        # One without memory stays what it is, but for its device.
        if not isinstance(value, fake) or (isinstance(self, fake) and self.device == value.device):
            plain.__set__(self, value)
            return
        with torch_part("utils._python_dispatch")._disable_current_modes():
            # No view: FSDP assigns parts of a larger one, which nobody could change in place.
            new = plain.__get__(value)
            if isinstance(self, torch.nn.Parameter):
                new = torch.nn.Parameter(new, self.requires_grad)
        become(self, new)

    def _apply(self: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
        return moved(self, function, recurse, {})

    def moved(self: Any, function: Callable[[Any], Any], recurse: bool, seen: dict[int, Any]) -> Any:
        if recurse:
            for module in self.children():
                # A module may have an `_apply` of its own, as RNNs do.
                if type(module)._apply is _apply:
                    moved(module, function, recurse, seen)
                else:
                    module._apply(function)
        for held in (self._parameters, self._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = of(tensor, function, held is self._parameters, seen)
        return self

    def of(tensor: Any, function: Callable[[Any], Any], parameter: bool, seen: dict[int, Any]) -> Any:
        # Tied weights stay tied.
        if id(tensor) in seen:
            return seen[id(tensor)][1]
        with torch.no_grad():
            new = function(tensor)
        if new is not tensor and parameter:
            gradient, new = tensor.grad, torch.nn.Parameter(new, tensor.requires_grad)
            tensor.grad = None
            try:
                become(tensor, new)
                new = tensor
            except RuntimeError:  # a graph holds it
                vars(new).update(
                    {name: value for name, value in vars(tensor).items() if name not in vars(new)}
                )
            if gradient is not None:
                with torch.no_grad():
                    new.grad = function(gradient)
        # The old one is kept, or its id might be another's.
        seen[id(tensor)] = tensor, new
        return new

    torch.nn.Module._apply = _apply
    torch.Tensor.data = property(plain.__get__, assign)
