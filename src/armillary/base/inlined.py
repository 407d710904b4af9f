"""Kernels for the interpreter, with the functions of tables (`armillary.base.accessors`) written out at their calls.

A call costs the interpreter as much as the access itself: runs would take twice as long. Source and behaviour are the
same.
"""

from __future__ import annotations

import ast
import importlib
from types import CodeType
from typing import Any, cast

from armillary.base.accessors import parts_of
from armillary.base.tables import Table


def compile_inlined(source: str, path: str) -> CodeType:
    """Compile the source of a kernel module with its accessors written out."""
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
        """Write a constant of a layout out."""
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            # An attribute of a module is a dictionary look-up per use; a constant is none.
            value = getattr(self.modules[node.value.id], node.attr)
            if isinstance(value, int):
                return ast.copy_location(ast.Constant(value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Write an access out that is part of an expression."""
        kind, element = self._element(node)
        if element is None:
            self.generic_visit(node)
            return node
        return element.slice if kind == "at" else element

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Write an access out that is a statement."""
        if isinstance(node.value, ast.Call):
            kind, element = self._element(node.value, statement=True)
            if element is not None and kind in ("set", "add"):
                element.ctx = ast.Store()
                value = self.visit(node.value.args[-1])
                if kind == "set":
                    return ast.copy_location(ast.Assign([element], value), node)
                return ast.copy_location(ast.AugAssign(element, ast.Add(), value), node)
        self.generic_visit(node)
        return node

    def _element(self, call: ast.Call, statement: bool = False) -> tuple[str, ast.Subscript | None]:
        """Return the kind of access that a call is, and the element, if it is one that can be written out here."""
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
