"""The order of the rooms: what may import what, and that no modules import each other in a circle."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "armillary"

# A room may import itself and what stands before it. A sub-room that is not listed belongs to the one around it.
# "" is what `armillary` itself offers. What an `__init__` names for its users is no import of the rooms around it.
ROOMS = (
    "base",
    "trace",
    "platform",
    "platform.files",
    "compute",
    "collective",
    "engine.transport",
    "engine.common",
    "engine.physical",
    "engine.astra_sim",
    "engine.messages",
    "engine",
    "convert",
    "capture",
    "workload",
    "report",
    "serving",
    "explore",
    "lab",
    "evidence",
    "studio",
    "",
    "cli",
    "testing",
)
# Circles between modules that still stand; the list may only become shorter.
CIRCLES = {
    # `jit` loads what rewrites kernels when it first loads one.
    frozenset(f"armillary.base.{name}" for name in ("accessors", "bounds_kernel", "jit", "tables")),
}
# The same where an import serves types only.
TYPE_CIRCLES: set[frozenset[str]] = set()


def _name(file: Path) -> str:
    parts = ("armillary", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


class _Imports(ast.NodeVisitor):
    """The modules of the package that a file imports: at its head, in its functions, and for its types only."""

    def __init__(self, module: str) -> None:
        self.package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
        self.loaded: set[str] = set()
        self.for_types: set[str] = set()
        self._found = self.loaded
        self.visit(ast.parse(MODULES[module].read_text()))

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            self._found = self.for_types
            for statement in node.body:
                self.visit(statement)
            self._found = self.loaded
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self._found.update(alias.name for alias in node.names if alias.name in MODULES)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        for alias in node.names:
            if f"{base}.{alias.name}" in MODULES:
                self._found.add(f"{base}.{alias.name}")
            elif base in MODULES:
                self._found.add(base)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Tables of what is loaded by its name: ``module:attribute``."""
        module, _, name = node.value.partition(":") if isinstance(node.value, str) else ("", "", "")
        if name.isidentifier() and module in MODULES:
            self.loaded.add(module)


@cache
def _imports() -> dict[str, _Imports]:
    # Not at import: that is done by every process of a run, for the tests of one.
    return {module: _Imports(module) for module in MODULES}


def _room(module: str) -> str:
    path = module.partition(".")[2]
    found = [room for room in ROOMS if room and (path == room or path.startswith(room + "."))]
    return max(found, key=len, default="cli" if module == "armillary.__main__" else "")


def _is_face(module: str) -> bool:
    return MODULES[module].name == "__init__.py"


def _circles(edges: dict[str, set[str]]) -> Iterator[frozenset[str]]:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def walk(module: str) -> Iterator[frozenset[str]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in index:
                yield from walk(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            found = stack[stack.index(module) :]
            del stack[-len(found) :]
            if len(found) > 1:
                yield frozenset(found)

    for module in edges:
        if module not in index:
            yield from walk(module)


def test_every_package_has_its_place_in_the_order():
    packages = {file.parent.name for file in SOURCE.glob("*/__init__.py")}
    assert packages == {room.partition(".")[0] for room in ROOMS if room}


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_imports_from_a_later_room(room: str):
    later = set(ROOMS[ROOMS.index(room) + 1 :])
    wrong = {}
    for module in (module for module in MODULES if _room(module) == room):
        found = _imports()[module].loaded | (set() if _is_face(module) else _imports()[module].for_types)
        if upward := {other for other in found if _room(other) in later}:
            wrong[module] = upward
    assert wrong == {}


def test_no_modules_import_each_other_in_a_circle():
    edges = {module: imports.loaded - {module} for module, imports in _imports().items()}
    assert set(_circles(edges)) <= CIRCLES


def test_no_modules_need_each_other_in_a_circle_for_their_types():
    edges = {
        module: imports.loaded | (set() if _is_face(module) else imports.for_types) - {module}
        for module, imports in _imports().items()
    }
    assert set(_circles(edges)) - CIRCLES <= TYPE_CIRCLES


def test_no_name_of_a_package_is_one_of_its_modules():
    """Whoever had imported the module would find it where the package promises a function."""
    for face in SOURCE.rglob("__init__.py"):
        inside = {path.stem for path in face.parent.iterdir()}
        for call in ast.walk(ast.parse(face.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "lazy":
                names = {name for _, group in ast.literal_eval(call.args[1]).items() for name in group}
                assert not names & inside, face
