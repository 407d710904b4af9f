"""Machine code of kernels that runs without Numba, which takes most of a second to import and to make ready.

When Numba has compiled a kernel, its code is kept a second time, without what unpacks Python objects: one function that
takes the words of its arguments. A later process gives it to LLVM, which needs some 50 ms, and calls it by `ctypes`.
Whatever this cannot do is left to Numba: other arguments than whole numbers, floats and flat arrays, other results than
numbers, code that calls what a bare process does not have, and every signature that was not compiled before.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.kernel_files import SUFFIX, KernelFiles

_INSTRUCTIONS = {
    "abs", "assume", "bitreverse", "bswap", "ceil", "copysign", "ctlz", "ctpop", "cttz", "expect",
    "experimental", "fabs", "floor", "fma", "fmuladd", "fshl", "fshr", "lifetime", "masked",
    "maximum", "maxnum", "memcpy", "memmove", "memset", "minimum", "minnum", "prefetch", "rint",
    "round", "sadd", "scmp", "smax", "smin", "smul", "sqrt", "ssub", "trunc", "uadd", "ucmp",
    "umax", "umin", "umul", "usub", "vector",
}  # fmt: skip
"""Intrinsics of LLVM that are instructions, or functions that any process has."""
_WORD = ctypes.c_int64
_RESULTS: dict[str, Any] = {"int64": _WORD, "float64": ctypes.c_double, "bool": ctypes.c_bool}
"""Types of results, as Numba names them; none has no word."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1

Code = Callable[..., Any]


def usable() -> bool:
    """Tell whether machine code may stand for Numba: nothing tells Numba to do anything unusual."""
    return (
        not any(name.startswith("NUMBA_") for name in os.environ)
        and importlib.util.find_spec("llvmlite") is not None
    )


class Entry:
    """A kernel function: machine code of an earlier process, or what Numba makes of it."""

    def __init__(
        self, folder: Path, name: str, compiled: Callable[[], Code], root: Path | None = None
    ) -> None:
        """Look for code in a folder.

        Args:
            folder: Where it is kept, by sources and variant.
            name: Of the function.
            compiled: Returns what Numba makes of it.
            root: See `KernelFiles`.
        """
        self._files = KernelFiles(folder, name, repr(_versions()), SUFFIX, root)
        self._compiled = compiled
        self._known: dict[tuple[object, ...], Code] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        kinds = tuple(map(_kind, arguments))
        code = self._known.get(kinds)
        if code is None:
            code = self._known[kinds] = self._of(kinds, arguments)
        return code(*arguments)

    def _of(self, kinds: tuple[object, ...], arguments: Sequence[Any]) -> Code:
        """Return the code for arguments of these kinds; what Numba makes of it is kept before it runs."""
        if None in kinds:
            return self._compiled()
        kept = self._files.load(kinds)
        if kept is not None:
            return _linked(kinds, *kept)
        compiled: Any = self._compiled()
        types = tuple(map(compiled.typeof_pyval, arguments))
        compiled.compile(types)
        # Much here is Numba's own business: another version may lack or change it, and works as it is.
        with suppress(AttributeError):
            if found := _bare(compiled.overloads[types]):
                self._files.save(kinds, found)
        return compiled  # type: ignore[no-any-return]


@cache
def _versions() -> tuple[str, ...]:
    """Return what machine code depends on besides its sources: who made it, and the processor."""
    llvm: Any = importlib.import_module("llvmlite.binding")
    spec = importlib.util.find_spec("numba")
    numba = Path(spec.origin).with_name("_version.py") if spec and spec.origin else Path()
    return (
        numba.read_text(encoding="utf-8") if numba.is_file() else "",
        importlib.import_module("llvmlite").__version__,
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )


def _kind(argument: Any) -> object:
    """Return what the type of an argument depends on; None: machine code without Numba does not take it."""
    if type(argument) is np.ndarray:
        flags = argument.flags
        kind = argument.dtype
        if flags.c_contiguous and flags.aligned and kind.isnative and kind.kind in "biuf":
            return kind.char, argument.ndim, flags.writeable
        return None
    if type(argument) is int:
        return "int" if _LEAST <= argument <= _MOST else None
    return "float" if type(argument) is float else None


def _bare(made: Any) -> tuple[str, list[str], bytes] | None:
    """Return the name, the types of results and the object code of a compiled function that needs nothing of Numba.

    Raises:
        AttributeError: this version of Numba or llvmlite has not what it takes.
    """
    results = _results(made.fndesc.restype)
    library = made.library
    module = library._final_module
    if results is None:
        return None
    llvm: Any = importlib.import_module("llvmlite.binding")
    name, machine = made.fndesc.llvm_func_name, library.codegen._tm
    alone = llvm.parse_bitcode(module.as_bitcode())
    for each in (*alone.functions, *alone.global_variables):
        if each.name != name and not each.is_declaration:
            each.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    passes.run(alone, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    # Code from a file of Numba's comes without its module.
    if not any(each.name == name and not each.is_declaration for each in alone.functions):
        return None
    left = (*alone.functions, *alone.global_variables)
    # Only Numba can make an exception of what is stored for one.
    if any("picklebuf" in each.name for each in left):
        return None
    foreign = [each.name for each in left if each.is_declaration]
    return (name, results, machine.emit_object(alone)) if all(map(_is_everywhere, foreign)) else None


def _results(kind: Any) -> list[str] | None:
    """Return the types of the words that a function returns; None: machine code without Numba has no such result."""
    if str(kind) == "none":
        return []
    words = [str(each) for each in kind] if hasattr(kind, "__len__") else [str(kind)]
    several = ["tuple"] if hasattr(kind, "__len__") else []
    return [*several, *words] if all(each in _RESULTS for each in words) else None


def _is_everywhere(name: str) -> bool:
    """Tell whether machine code may call a function: an instruction of LLVM, or a function of every process."""
    name = name.split(".")[1] if name.startswith("llvm.") else name
    if name in _INSTRUCTIONS:
        return True
    # An unknown name would end the process when code is linked.
    try:
        return hasattr(ctypes.CDLL(None), name)
    except TypeError:  # Windows
        return False


_engines: list[Any] = []
"""What owns the machine code: it must live as long as the process."""


def _linked(kinds: tuple[object, ...], name: str, results: list[str], code: bytes) -> Code:
    """Return a callable of machine code."""
    llvm: Any = importlib.import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Numba's own options: they place code and data such that both reach each other.
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    words = [word for kind in kinds for word in _words_of(kind)]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *words)(
        engine.get_function_address(name)
    )
    several = results[:1] == ["tuple"]
    fields = [(f"word{i}", _RESULTS[each]) for i, each in enumerate(results[several:])]
    returned = type("Returned", (ctypes.Structure,), {"_fields_": fields or [("none", _WORD)]})
    reference, failure = ctypes.byref, ctypes.c_void_p

    def call(*arguments: Any) -> Any:
        values: list[Any] = []
        for argument in arguments:
            if type(argument) is np.ndarray:
                # A structure of Numba's: two owners, which only Python objects need, and what is in NumPy's.
                at = argument.__array_interface__["data"][0]
                values += (None, None, argument.size, argument.itemsize, at)
                values += argument.shape
                values += argument.strides
            else:
                values.append(argument)
        found = returned()
        status = function(reference(found), reference(failure()), *values)
        if status:
            raise SystemError(f"kernel {name} failed with status {status}")
        if several:
            return tuple(getattr(found, each) for each, _ in fields)
        return found.word0 if results else None

    return call


def _words_of(kind: object) -> list[Any]:
    """Return the types of the words of an argument."""
    if isinstance(kind, tuple):
        return [ctypes.c_void_p, ctypes.c_void_p, _WORD, _WORD, ctypes.c_void_p, *[_WORD] * (2 * kind[1])]
    return [ctypes.c_double if kind == "float" else _WORD]
