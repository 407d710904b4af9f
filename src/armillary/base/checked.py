"""Kernels that check every array access: tests run them instead of the plain ones.

Within ``with jit.checking():`` every loaded kernel, compiled or interpreted, is built from its source with each access
``x[i]`` replaced by one that first checks that i lies in x (`armillary.base.bounds_kernel`). Tables share flat arrays,
so lying in the array is not enough: within the context a guard word, its length and another guard stand before every
table, and at the end of the array (`armillary.base.tables`), and no access may touch a guard. Accessors
(`armillary.base.accessors`) know their tables, and an index must lie in its table; each call gets its place in the
source as an argument.

Runs get exactly the room they asked for and return after each event. `pytest --checked` does this for any
test.
"""

from __future__ import annotations

import ast
from types import CodeType

AT, LONG_ENOUGH = "_checked_at", "_checked_long_enough"
"""Names under which a checked module has the functions of `bounds_kernel`."""
PLACES = 100_000
"""A place in the sources is ``number of the module * PLACES + line``."""

_modules: list[str] = []


def name_of(place: int) -> str:
    """Return file and line of a place that a checked kernel has printed."""
    return f"{_modules[place // PLACES]}:{place % PLACES}"


def compile_checked(source: str, path: str) -> CodeType:
    """Compile the source of a kernel module so that its accesses are checked."""
    if path not in _modules:
        _modules.append(path)
    tree = ast.parse(source, path)
    _tell_accessors(tree, _modules.index(path) * PLACES)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        # Not its annotations and defaults.
        accesses = _Accesses(_modules.index(path) * PLACES)
        function.body = [accesses.visit(statement) for statement in function.body]
    return compile(ast.fix_missing_locations(tree), path, "exec")


def _tell_accessors(tree: ast.Module, place: int) -> None:
    """Give every call of a function of ``x = accessors(...)`` one more argument: its place in the source."""
    names = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            called = statement.value.func
            if isinstance(called, ast.Name) and called.id == "accessors":
                names |= {each.id for each in ast.walk(statement.targets[0]) if isinstance(each, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Name) and of.id in names:
                node.args.append(ast.Constant(place + node.lineno))


class _Accesses(ast.NodeTransformer):
    """Replaces the accesses in the body of a function."""

    def __init__(self, place: int) -> None:
        self.place = place

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Check the index of one access."""
        if isinstance(node.slice, ast.Slice | ast.Tuple):
            self.generic_visit(node)
            return node
        where = ast.Constant(self.place + node.lineno)
        self.generic_visit(node)
        array = _copy(node.value)  # what it is made of has no effect of its own
        if _constant(node.slice):
            node.value = ast.Call(_read(LONG_ENOUGH), [array, _copy(node.slice), where], [])
        else:
            node.slice = ast.Call(_read(AT), [array, node.slice, where], [])
        return node


def _constant(node: ast.expr) -> bool:
    """Tell whether an expression is made of numbers and constants of a module only."""
    if isinstance(node, ast.BinOp):
        return _constant(node.left) and _constant(node.right)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.attr.isupper()
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())


def _read(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _copy(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body
