"""Kernel modules, compiled by Numba or interpreted from the same source.

A kernel module is a file named ``*_kernel.py`` whose functions carry `njit`, or `inner` if only other
kernels call them; it is loaded with `load`, once per mode. In mode "compiled" `njit` is Numba's, with a
cache folder of its own per version of the kernel sources (Numba does not notice a change in a callee's
file). In mode "interpreted" `njit` does nothing, Numba is not even imported, and the module is the slow twin.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

Mode = Literal["compiled", "interpreted"]
F = TypeVar("F", bound=Callable[..., Any])

_mode: Mode = "interpreted"
_variant = ""
_checking = ContextVar("checking", default=False)


def njit(function: F) -> F:
    """Compile `function` if its module is being loaded in mode "compiled", else return it unchanged."""
    if _mode == "interpreted":
        return function
    return _compile(function, cache=True)


def inner(function: F) -> F:
    """Like `njit`, for a function that is called by compiled functions only: it compiles faster."""
    if _mode == "interpreted":
        return function
    return _compile(function, cache=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compile(function: F, **options: bool) -> F:
    # _nrt is known to Numba, but not to its type hints.
    numba: Any = importlib.import_module("numba")
    # The kernels allocate nothing and divide by nothing that is 0: leave that machinery out.
    compiled = numba.njit(nogil=True, error_model="numpy", _nrt=False, **options)(function)
    template = compiled.get_call_template

    def one_signature(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        # Numba would compile a copy of the callee for every literal that it is called with.
        plain = numba.types.unliteral
        return template(tuple(map(plain, args)), {name: plain(value) for name, value in kws.items()})

    compiled.get_call_template = one_signature
    result: F = compiled
    return result


def load(name: str, mode: Mode, variant: str = "") -> ModuleType:
    """Return the kernel module `name` in `mode`, loading it and the kernels it uses on first call.

    With a `variant`, the branches that ask for it by `in_variant` are compiled, and those without it are not.
    """
    global _mode, _variant
    key = f"{name}:{mode}:{variant}" + (":checked" if is_checking() else "")
    if key in sys.modules:
        return sys.modules[key]
    if mode == "compiled":
        _point_cache_at_sources(variant)
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    alias = importlib.util.spec_from_file_location(key, spec.origin)
    if alias is None or alias.loader is None:
        raise ModuleNotFoundError(name)
    module = importlib.util.module_from_spec(alias)
    before = _mode, _variant
    _mode, _variant = mode, variant
    sys.modules[key] = module
    try:
        if is_checking():
            _execute_checked(module, spec.origin)
        else:
            alias.loader.exec_module(module)
    except BaseException:
        del sys.modules[key]
        raise
    finally:
        _mode, _variant = before
    return module


def _execute_checked(module: ModuleType, path: str) -> None:
    """Run the source of a kernel module, with its array accesses checked."""
    from armillary import checked

    if not path.endswith("bounds_kernel.py"):
        bounds = use("armillary.bounds_kernel")
        names = {
            checked.AT: bounds.at,
            checked.INSIDE: bounds.inside,
            checked.LONG_ENOUGH: bounds.long_enough,
        }
        vars(module).update(names)
        exec(checked.compile_checked(Path(path).read_text(encoding="utf-8"), path), vars(module))
    else:
        exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), vars(module))


@contextmanager
def checking() -> Iterator[None]:
    """Load kernels whose every array access is checked within this context: see `armillary.checked`."""
    before = _checking.set(True)
    try:
        yield
    finally:
        _checking.reset(before)


def is_checking() -> bool:
    """Tell whether kernels are to be checked."""
    return _checking.get()


def use(name: str) -> ModuleType:
    """Return the kernel module `name` in the mode and variant of the module that calls this while it is loaded."""
    return load(name, _mode, _variant)


def in_variant(name: str) -> bool:
    """Tell whether the module that calls this is being loaded in variant `name`."""
    return _variant == name


def compiling() -> bool:
    """Tell whether the module that calls this is being loaded in mode "compiled"."""
    return _mode == "compiled"


def cache_folder() -> Path:
    """Return the folder of the compiled kernels of these sources; it exists once they were compiled."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*_kernel.py")):
        digest.update(source.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "armillary" / f"kernels-{digest.hexdigest()[:16]}"


def _point_cache_at_sources(variant: str) -> None:
    numba: Any = importlib.import_module("numba")

    folder = cache_folder() / variant
    if is_checking():
        # What is compiled follows from that source, too.
        made = hashlib.sha256(Path(__file__).with_name("checked.py").read_bytes()).hexdigest()
        folder = folder / f"checked-{made[:16]}"
    numba.config.CACHE_DIR = str(folder)
