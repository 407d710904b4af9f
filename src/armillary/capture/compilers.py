"""`torch.compile` without a compiler: parts of a program stay as they are, and those that it would fuse are known."""

from __future__ import annotations

import types
from contextlib import nullcontext
from typing import Any

from armillary.capture.where import Where
from armillary.convert.torch_import import torch_part

FUSES = "inductor"
"""The backend of `torch.compile` that makes one kernel of several operators; the others call those of PyTorch."""


def install(torch: Any, where: Where) -> None:
    """Replace what asks for a compiled part, and what excepts one."""
    dynamo, settings = torch_part("_dynamo"), torch_part("_dynamo.config")
    frames = torch_part("_dynamo.eval_frame")
    OptimizedModule: Any = frames.OptimizedModule
    plain, Module = dynamo.disable, torch.nn.Module

    class Compiled(OptimizedModule):  # type: ignore[misc]
        """What `torch.compile` makes of a module: programs ask it for `_orig_mod`, and save its state by that name."""

        def __init__(self, module: Any, context: Any = _same) -> None:
            super().__init__(module, context)

        def __call__(self, *args: Any, **named: Any) -> Any:
            # Without the warning that modules are followed.
            return Module.__call__(self, *args, **named)

    def eager() -> bool:
        stance = getattr(getattr(frames, "_stance", None), "stance", "default")
        return bool(settings.disable) or stance == "force_eager"

    def marked(model: Any = None, *, backend: Any = FUSES, disable: bool = False, **_: Any) -> Any:
        def part(of: Any) -> Any:
            if disable:
                return of
            found = where.compiled(of) if _fuses(backend) else of
            plainly = isinstance(of, Module) and not isinstance(of, torch.jit.ScriptModule)
            return Compiled(found) if plainly else found

        return part(model) if model is not None else part

    def compile_module(self: Any, *_: Any, backend: Any = FUSES, disable: bool = False, **__: Any) -> None:
        if _fuses(backend) and not disable:
            where.compiled(self)

    def disabled(fn: Any = None, recursive: bool = True, **named: Any) -> Any:
        if fn is None:
            return lambda of: disabled(of, recursive, **named)
        own = isinstance(fn, types.FunctionType | types.MethodType | Module)
        # PyTorch excepts functions of its own, such as those of checkpoints, which it compiles in another way.
        if recursive and own and not str(fn.__module__).startswith("torch."):
            return where.excepted(fn)
        return plain(fn, recursive, **named)

    where.eager = eager
    torch.compile = marked
    Module.compile = compile_module
    torch.compiler.disable = dynamo.disable = disabled
    # Backward passes are fused by what they are the gradients of.
    torch_part("_dynamo.utils").maybe_enable_compiled_autograd = lambda *_, **__: nullcontext()
    torch_part("_dynamo.compiled_autograd")._enable = lambda *_, **__: nullcontext()
    # Of graphs of CUDA that the backend would replay.
    torch.compiler.cudagraph_mark_step_begin = lambda: None


def _fuses(backend: Any) -> bool:
    # Inductor has a function, too, which programs give or wrap.
    named = backend if isinstance(backend, str) else str(getattr(backend, "__module__", ""))
    return named == FUSES or named.startswith("torch._inductor")


def _same(function: Any) -> Any:
    return function
