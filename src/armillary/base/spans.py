"""Copies and comparisons of spans of bytes, for kernels.

``copy, same = spans()`` in a kernel module gives both as the mode wants them. Interpreted, they are slices. Compiled,
they are the instructions that copy and compare memory: a loop over ``array[i]`` asks for each byte whether i is
negative and counts from the end, which the compiler turns into gathers and scatters of single bytes. Checked, they
are loops.
"""

from __future__ import annotations

import importlib
from typing import Any

from armillary.base import jit


def spans() -> tuple[Any, Any]:
    """Return ``copy(into, at, data, begin, end)`` and ``same(data, a, b, size)`` for what is being loaded."""
    if not jit.compiling():
        return _copy, _same
    if jit.is_checking():
        return jit.compile_inner(_copy_bytes), jit.compile_inner(_same_bytes)
    return _instructions()


def _copy(into: Any, at: int, data: Any, begin: int, end: int) -> None:
    into[at : at + end - begin] = data[begin:end]


def _same(data: Any, a: int, b: int, size: int) -> bool:
    return bool(data[a : a + size] == data[b : b + size])


def _copy_bytes(into: Any, at: int, data: Any, begin: int, end: int) -> None:
    for i in range(end - begin):
        into[at + i] = data[begin + i]


def _same_bytes(data: Any, a: int, b: int, size: int) -> bool:
    for i in range(size):  # noqa: SIM110  a generator would need reference counts
        if data[a + i] != data[b + i]:
            return False
    return True


def _instructions() -> tuple[Any, Any]:
    numba: Any = importlib.import_module("numba")
    arrays: Any = importlib.import_module("numba.np.arrayobj")
    ir: Any = importlib.import_module("llvmlite.ir")
    types, signature = numba.types, numba.core.typing.signature
    byte = ir.IntType(8)

    def pointer(context: Any, builder: Any, of: Any, flat: Any, at: Any) -> Any:
        return builder.gep(arrays.make_array(of)(context, builder, flat).data, [at])

    def copy(context: Any, into: Any, at: Any, data: Any, begin: Any, end: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, at, data, begin, end = args
            size = builder.sub(end, begin)
            kind = ir.FunctionType(
                ir.VoidType(), [byte.as_pointer(), byte.as_pointer(), size.type, ir.IntType(1)]
            )
            name = "llvm.memcpy.p0i8.p0i8.i64"
            move = numba.core.cgutils.get_or_insert_function(builder.module, kind, name)
            ends = (
                pointer(context, builder, sig.args[0], to, at),
                pointer(context, builder, sig.args[2], data, begin),
            )
            builder.call(move, [*ends, size, ir.IntType(1)(0)])
            return context.get_dummy_value()

        return signature(types.none, into, types.int64, data, types.int64, types.int64), code

    def same(context: Any, data: Any, a: Any, b: Any, size: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            data, a, b, size = args
            kind = ir.FunctionType(ir.IntType(32), [byte.as_pointer(), byte.as_pointer(), size.type])
            compare = numba.core.cgutils.get_or_insert_function(builder.module, kind, "memcmp")
            ends = [pointer(context, builder, sig.args[0], data, at) for at in (a, b)]
            return builder.icmp_signed("==", builder.call(compare, [*ends, size]), ir.IntType(32)(0))

        return signature(types.boolean, data, types.int64, types.int64, types.int64), code

    return numba.extending.intrinsic(copy), numba.extending.intrinsic(same)
