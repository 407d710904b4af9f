"""One-line functions that read and write the tables of kernels, generated from the declarations in `base.tables`.

``lanes = accessors(LANES)`` in a kernel module gives, for a column `head`::

    lanes.head(st, lane)              its value
    lanes.set_head(st, lane, value)   sets it
    lanes.add_head(st, lane, value)   adds to it, and returns the new value
    lanes.at_head(st, lane)           its address in the array, for kernels that work on a part of it
    lanes.touch_head(st, lane)        asks the processor to have it at hand soon: memory is slow, see below

An event that finds its data in memory and not in a cache waits for it as long as 300 instructions take. What the next
event of a thing will read is known when this one ends: `touch` fetches it meanwhile. It changes nothing else, and may
be given any address.

A column of `many` values takes one more index after the row. Rows of a `record` are identified by their addresses.

In mode "interpreted" these are Python functions. `compile_inlined` inlines them at their calls, because a call costs
the interpreter as much as the access itself, and runs would take twice as long. In mode "compiled" each is an
instruction sequence that Numba substitutes for the call: as functions they would take 40 ms each to compile, and the
physical engine would take half as long again. In checked kernels (`armillary.base.checked`) each function first checks
that the element lies in its table.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, ModuleType
from typing import Any, cast

from armillary.base import jit
from armillary.base.tables import Column, Table

KINDS = ("set", "add", "at", "touch")


def _module(table: Table, make: Callable[[str, Column], Any]) -> ModuleType:
    """Return a module with the functions of a table; each is created on first use.

    It is a plain module, because Numba resolves attributes of modules, and the interpreter finds them without a call.
    """
    found = ModuleType(table.name or "columns")

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = make(*parts_of(table, name))
        # Kept in the module, so `__getattr__` is called once per name and never on the hot path.
        setattr(found, name, made)
        return made

    vars(found)["__getattr__"] = missing
    return found


def parts_of(table: Table, name: str) -> tuple[str, Column]:
    """Return the kind of an accessor ("get", "set", "add", "at", "touch") and its column, by its name."""
    kind, _, column = name.partition("_")
    # A column may itself be called `at_once`: its own name comes first.
    if name in table.declared or kind not in KINDS:
        return "get", table.find(name)
    return kind, table.find(column)


def accessors(*tables: Table) -> Any:
    """Return the functions of a table, or of several tables, for the kernel module that is being loaded."""
    compiled, checked = jit.compiling(), jit.is_checking()
    found = tuple(_accessors(table, compiled, checked) for table in tables)
    return found if len(found) > 1 else found[0]


@cache
def _accessors(table: Table, compiled: bool, checked: bool) -> ModuleType:
    # Checked accessors are functions also when compiled: speed does not matter there, and errors name their
    # place.
    if compiled and not checked:
        return _module(table, _instructions)
    bounds = vars(jit.use("armillary.base.bounds_kernel")) if checked else {}

    def one(kind: str, column: Column) -> Any:
        made = _function(kind, column, bounds)
        return jit.compile_inner(made) if compiled else made

    return _module(table, one)


def _function(kind: str, column: Column, bounds: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the Python function; with `bounds` it checks, and its last argument is the place of the call."""
    index = "i" if column.many > 1 else ""
    taken = [
        "flat",
        "row",
        *index,
        *(["value"] if kind in ("set", "add") else []),
        *(["where"] if bounds else []),
    ]
    if bounds and index:
        index = f"within(i, {column.many}, where)"
    terms = [f"flat[{column.head}]"] if column.head >= 0 else []
    terms += [
        f"row * {column.stride}" if column.stride > 1 else "row",
        *([str(column.offset)] if column.offset else []),
    ]
    place = " + ".join(terms + ([index] if index else []))
    if bounds:
        place = (
            f"inside(flat, {terms[0]}, {place}, where)" if column.head >= 0 else f"at(flat, {place}, where)"
        )
    body = {
        "get": f"return flat[{place}]",
        "at": f"return {place}",
        "touch": "return",
        "set": f"flat[{place}] = value",
        # `place` once: an address may cost a table look-up of its own.
        "add": f"place = {place}; flat[place] += value; return flat[place]",
    }[kind]
    names = dict(bounds)
    exec(f"def accessor({', '.join(taken)}): {body}", names)  # `at` is a name of `bounds`
    made: Callable[..., Any] = names["accessor"]
    return made


def _instructions(kind: str, column: Column) -> Any:
    """Return a Numba intrinsic that emits the instructions of the function.

    They are fewer than those of ``flat[flat[head] + row]``, because no index counts from the end of an array.
    """
    numba: Any = importlib.import_module("numba")
    arrays: Any = importlib.import_module("numba.np.arrayobj")
    types, signature = numba.types, numba.core.typing.signature

    def find(context: Any, builder: Any, of: Any, flat: Any, indices: list[Any]) -> Any:
        """Return the index of the element, and a function that returns a pointer to one."""
        data = arrays.make_array(of)(context, builder, flat).data
        word = indices[0].type
        index = builder.mul(indices[0], word(column.stride)) if column.stride > 1 else indices[0]
        for more in (*indices[1:], *([word(column.offset)] if column.offset else [])):
            index = builder.add(index, more)
        if column.head >= 0:
            begin = builder.load(builder.gep(data, [word(column.head)]))
            # No kernel writes the head of an array, so one load of it serves a whole loop, whatever that stores.
            begin.set_metadata("invariant.load", builder.module.add_metadata([]))
            index = builder.add(context.cast(builder, begin, of.dtype, types.intp), index)
        return index, lambda at: builder.gep(data, [at])

    def typed(of: Any, values: int, result: Any) -> Any:
        if not (isinstance(of, types.Array) and of.ndim == 1 and of.layout == "C"):
            raise numba.core.errors.TypingError(f"expected a flat array, got {of}")
        return signature(result, of, *[types.intp] * (2 if column.many > 1 else 1), *[of.dtype] * values)

    def get(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at, pointer = find(context, builder, sig.args[0], args[0], list(args[1:]))
        return context.unpack_value(builder, sig.args[0].dtype, pointer(at))

    def at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return find(context, builder, sig.args[0], args[0], list(args[1:]))[0]

    def touch(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at, pointer = find(context, builder, sig.args[0], args[0], list(args[1:]))
        ir: Any = importlib.import_module("llvmlite.ir")
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        fetch = numba.core.cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # To read, into all caches, data.
        builder.call(fetch, [builder.bitcast(pointer(at), byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    def put(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        of = sig.args[0]
        at, pointer = find(context, builder, of, args[0], list(args[1:-1]))
        context.pack_value(builder, of.dtype, args[-1], pointer(at))
        return context.get_dummy_value()

    def add(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        of = sig.args[0]
        at, pointer = find(context, builder, of, args[0], list(args[1:-1]))
        before = context.unpack_value(builder, of.dtype, pointer(at))
        plus = builder.fadd if isinstance(of.dtype, types.Float) else builder.add
        after = plus(before, args[-1])
        context.pack_value(builder, of.dtype, after, pointer(at))
        return after

    values = 1 if kind in ("set", "add") else 0
    codes = {"get": get, "at": at, "set": put, "add": add, "touch": touch}
    results = {"at": types.intp, "set": types.none, "touch": types.none}

    def typing(context: Any, flat: Any, *more: Any) -> Any:
        return typed(flat, values, results.get(kind) or flat.dtype), codes[kind]

    made = numba.extending.intrinsic(_with_arguments(typing, values + (2 if column.many > 1 else 1)))
    # Numba looks for new intrinsics when it begins to compile, and this one may be made while it does.
    made._numba_type_ = types.Function(
        numba.core.typing.templates.make_intrinsic_template(
            made, made._defn, kind, prefer_literal=False, kwargs={}
        )
    )
    return made


def _with_arguments(typing: Callable[..., Any], more: int) -> Callable[..., Any]:
    """Give a typing function a signature with `more` arguments after the array: Numba inspects it."""
    names = ("context", "flat", "a", "b", "c")[: 2 + more]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return typing


def compile_inlined(source: str, path: str) -> CodeType:
    """Compile the source of a kernel module with its accessors inlined."""
    tree = ast.parse(source, path)
    modules: dict[str, Any] = {}
    tables: dict[str, Table] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                if each.name.endswith("layout"):
                    modules[each.asname or each.name] = importlib.import_module(f"{node.module}.{each.name}")
        elif isinstance(node, ast.Import):
            modules |= {each.asname: importlib.import_module(each.name) for each in node.names if each.asname}
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("accessors("):
            call, target = cast(ast.Call, node.value), node.targets[0]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            for name, table in zip(names, call.args, strict=True):
                # Tables of other modules stay functions.
                if isinstance(name, ast.Name) and isinstance(table, ast.Attribute):
                    of = modules.get(ast.unparse(table.value))
                    tables |= {name.id: getattr(of, table.attr)} if of else {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.body = [_Inline(modules, tables).visit(statement) for statement in node.body]
    return compile(ast.fix_missing_locations(tree), path, "exec")


class _Inline(ast.NodeTransformer):
    def __init__(self, modules: dict[str, Any], tables: dict[str, Table]) -> None:
        self.modules, self.tables = modules, tables

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Inline a constant of a layout."""
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            # An attribute of a module is a dictionary look-up per use; a constant is none.
            value = getattr(self.modules[node.value.id], node.attr)
            if isinstance(value, int):
                return ast.copy_location(ast.Constant(value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Inline an access that is part of an expression."""
        kind, element = self._element(node)
        if element is None:
            self.generic_visit(node)
            return node
        return element.slice if kind == "at" else element

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Inline an access that is a statement."""
        if isinstance(node.value, ast.Call):
            kind, element = self._element(node.value, statement=True)
            if kind == "touch" and element is not None:
                return ast.copy_location(ast.Pass(), node)
            if element is not None and kind in ("set", "add"):
                element.ctx = ast.Store()
                value = self.visit(node.value.args[-1])
                if kind == "set":
                    return ast.copy_location(ast.Assign([element], value), node)
                return ast.copy_location(ast.AugAssign(element, ast.Add(), value), node)
        self.generic_visit(node)
        return node

    def _element(self, call: ast.Call, statement: bool = False) -> tuple[str, ast.Subscript | None]:
        """Return the kind of access of a call, and the element, if the access can be inlined here."""
        name = call.func
        if not (isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name)):
            return "", None
        if name.value.id not in self.tables or not isinstance(call.args[0], ast.Name):
            return "", None
        kind, column = parts_of(self.tables[name.value.id], name.attr)
        # An assignment is no expression: where the value of `add` is used, the function stays.
        if kind in ("set", "add") and not statement:
            return kind, None
        flat = call.args[0].id
        row = self.visit(call.args[1])
        if column.stride > 1:
            row = ast.BinOp(row, ast.Mult(), ast.Constant(column.stride))
        place: ast.expr = row
        if column.head >= 0:
            begin = ast.Subscript(ast.Name(flat, ast.Load()), ast.Constant(column.head), ast.Load())
            place = ast.BinOp(begin, ast.Add(), row)
        if column.offset:
            place = ast.BinOp(place, ast.Add(), ast.Constant(column.offset))
        if column.many > 1:
            place = ast.BinOp(place, ast.Add(), self.visit(call.args[2]))
        return kind, ast.copy_location(ast.Subscript(ast.Name(flat, ast.Load()), place, ast.Load()), call)
