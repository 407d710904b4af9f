"""Kernel modules, compiled by Numba or interpreted from the same source.

A kernel module is a file named ``*_kernel.py`` whose functions carry `njit`, or `inner` if only other
kernels call them; it is loaded with `load`, once per mode. In mode "compiled" `njit` is Numba's, with a
cache folder of its own per version of all sources that take part (Numba does not notice a change in a callee's
file): ours, with what declares their tables (``layout.py``, ``*_layout.py``), and those of another package that a
kernel of it uses or imports. In mode "interpreted" `njit`
does nothing, Numba is not even imported, and the module is the slow reference.

The interpreted kernel serves two ends: small problems do not wait for a compiler, and tests compare both
modes tick for tick. It contains no Python object, no I/O and no logging, so both do the same.

Kernels get flat arrays of 64-bit integers, and few of them: a program is one array and the state of its run
is another, and both begin with the addresses of their tables. Numba carries every array argument through
every call. With one array per table the event loop took 80 s to compile; with two it takes about ten, once
per machine.

Compiled code does not check indices, so kernels ensure room for every write beforehand. The sizes of most tables
follow from the program. Heaps, rows of messages and entries of ports grow: before an event, a node or a chunk that may
need more room than available, a kernel sets its status to `GROW` with the amount and returns. It is called again with
longer arrays and continues where it stopped. The amount of memory has no effect on ticks. `armillary.base.checked`
tests all of this.

The cache is in `$XDG_CACHE_HOME/armillary` or `~/.cache/armillary`. If that folder is not writable, or others can write
to it, nothing is cached, not even next to the sources, where Numba would put it. A damaged cache file is deleted, and
its kernel is compiled again (`armillary.base.kernel_files`). Code of our own kernels is kept a second time, in a form
that runs without Numba (`armillary.base.machine_code`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from armillary.base.allowed import leave_out_compiler
from armillary.base.errors import InputError
from armillary.base.kernel_files import KernelFiles, cache_home, make_own, sources_of

Mode = Literal["compiled", "interpreted"]
F = TypeVar("F", bound=Callable[..., Any])

# Set while a kernel module is executed, because its decorators run then and take no arguments. `load` nests,
# and restores them.
_mode: Mode = "interpreted"
_variant = ""
_checking = ContextVar("checking", default=False)
_HOME = Path(__file__).parents[1]
_SOURCES = ("*_kernel.py", "layout.py", "*_layout.py")
SETTINGS = ".numba_config.yaml"
"""Which Numba reads when it is imported, and at its every use."""
_WARNED = "ARMILLARY_CACHE_WARNED"
"""Environment variable that is set once the user has been warned that kernels cannot be cached; children inherit it."""


@dataclass
class _Loading:
    """Facts about a kernel module, and about those that it uses, once they have been executed.

    Attributes:
        sources: Their files, but ours.
        entries: Functions whose machine code is to be kept.
    """

    sources: set[Path] = field(default_factory=set)
    entries: list[Any] = field(default_factory=list)


_lock = threading.RLock()
_loading: list[_Loading] = []
"""Of the modules that are being executed, outermost first."""
_loaded: dict[str, _Loading] = {}
"""Of those that were."""


def njit(function: F) -> F:
    """Compile `function` if its module is being loaded in mode "compiled", else return it unchanged."""
    if _mode == "interpreted":
        return function
    compiled = _compile(function)
    _loading[-1].entries.append(compiled)
    return compiled


def inner(function: F) -> F:
    """Like `njit`, for a function that is called by compiled functions only: it compiles faster."""
    return function if _mode == "interpreted" else compile_inner(function)


def inlined(function: F) -> F:
    """Like `inner`, for a function of a hot path: put in place of its calls, which pass seven words for an array."""
    return function if _mode == "interpreted" else compile_inner(function, forceinline=True)


def compile_inner(function: F, **options: bool) -> F:
    """Compile a function that is called by compiled functions only, whatever is being loaded."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def _compile(function: F, **options: bool) -> F:
    # _nrt is known to Numba, but not to its type hints.
    numba: Any = importlib.import_module("numba")
    leave_out_compiler()
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

    With a `variant`, the branches that test for it with `in_variant` are compiled, and the others are not.
    """
    # Another thread would find half a module.
    with _lock:
        if mode == "compiled" and not _loading and not is_checking():
            found = _without_numba(name, variant)
            if found is not None:
                return found
        return _load(name, mode, variant)


class _Entries(ModuleType):
    """Stands for a compiled kernel module, which is loaded only if machine code that was kept does not do."""

    def __init__(self, name: str, variant: str, entries: Iterable[str]) -> None:
        super().__init__(name)
        from armillary.base.machine_code import Entry

        self._of = name, variant
        root = cache_folder()
        for each in entries:
            known = f"{name.rpartition('.')[2]}.{each}"
            code = Entry(root / variant, known, partial(self.__getattr__, each), root)
            setattr(self, each, code)

    def __getattr__(self, name: str) -> Any:
        with _lock:
            return getattr(_load(self._of[0], "compiled", self._of[1]), name)


_entries: dict[tuple[str, str], _Entries | None] = {}
"""By module and variant; None: Numba has to load it."""
_ENTRY = re.compile(r"^@njit\ndef (\w+)\(", re.MULTILINE)


def _without_numba(name: str, variant: str) -> ModuleType | None:
    """Return what stands for a compiled module of ours; of others, what to hash is known only once they have run."""
    if (name, variant) not in _entries:
        # Late: an interpreted run needs nothing of it.
        from armillary.base.machine_code import usable

        spec = importlib.util.find_spec(name)
        ours = spec is not None and spec.origin is not None and Path(spec.origin).is_relative_to(_HOME)
        if not ours or ("." in variant and not variant.startswith(f"{_HOME.name}.")) or not usable():
            _entries[name, variant] = None
        else:
            assert spec is not None and spec.origin is not None
            source = Path(spec.origin).read_text(encoding="utf-8")
            _entries[name, variant] = _Entries(name, variant, _ENTRY.findall(source))
    return _entries[name, variant]


def _load(name: str, mode: Mode, variant: str) -> ModuleType:
    global _mode, _variant
    # One module per mode and variant, side by side in `sys.modules` under names that no import uses.
    key = f"{name}:{mode}:{variant}" + (":checked" if is_checking() else "")
    if key not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(name)
        alias = importlib.util.spec_from_file_location(key, spec.origin)
        if alias is None or alias.loader is None:
            raise ModuleNotFoundError(name)
        module = importlib.util.module_from_spec(alias)
        before = _mode, _variant
        _mode, _variant = mode, variant
        # As the import system does: before the code runs.
        sys.modules[key] = module
        mine = _Loading()
        _loading.append(mine)
        try:
            if mode == "compiled":
                _check_settings()
            if is_checking():
                _execute_checked(module, spec.origin)
            elif mode == "interpreted":
                from armillary.base.accessors import compile_inlined

                exec(
                    compile_inlined(Path(spec.origin).read_text(encoding="utf-8"), spec.origin), vars(module)
                )
            else:
                alias.loader.exec_module(module)
        except BaseException:
            # Half a module must not be found by the next call.
            del sys.modules[key]
            raise
        finally:
            _loading.pop()
            _mode, _variant = before
        _loaded[key] = mine
        if mode == "compiled":
            mine.sources.update(sources_of(name, Path(spec.origin), _HOME))
            _keep(mine, variant)
    # What the user of this module compiles contains this module's code, so its cache depends on these
    # sources, too.
    if _loading and key in _loaded:
        _loading[-1].sources |= _loaded[key].sources
    return sys.modules[key]


def _check_settings() -> None:
    """Refuse to import Numba where a file of the current folder, whoever wrote it, would tell Numba what to do."""
    if "numba" not in sys.modules and Path(SETTINGS).exists():
        raise InputError(
            f"{SETTINGS}: Numba would take its settings from this file of the current folder, expected none (Armillary "
            "takes only those of NUMBA_… variables)"
        )


def is_loaded(name: str, mode: Mode, variant: str = "") -> bool:
    """Tell whether this process has a kernel module in a mode."""
    return f"{name}:{mode}:{variant}" in sys.modules or (
        mode == "compiled" and _entries.get((name, variant)) is not None
    )


def _execute_checked(module: ModuleType, path: str) -> None:
    """Run the source of a kernel module, with its array accesses checked."""
    from armillary.base import checked

    # The checks themselves are not checked.
    if not path.endswith("bounds_kernel.py"):
        bounds = use("armillary.base.bounds_kernel")
        names = {
            checked.AT: bounds.at,
            checked.LONG_ENOUGH: bounds.long_enough,
        }
        vars(module).update(names)
        exec(checked.compile_checked(Path(path).read_text(encoding="utf-8"), path), vars(module))
    else:
        exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), vars(module))


@contextmanager
def checking() -> Iterator[None]:
    """Load kernels whose every array access is checked within this context: see `armillary.base.checked`."""
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


def variant() -> str:
    """Return the variant in which the module that calls this is being loaded."""
    return _variant


def compiling() -> bool:
    """Tell whether the module that calls this is being loaded in mode "compiled"."""
    return _mode == "compiled"


def cache_folder(sources: Iterable[Path] = ()) -> Path:
    """Return the folder of the compiled kernels of our sources, and of `sources`; it exists once they were compiled."""
    digest = _ours().copy()
    for source in sorted(sources):
        digest.update(os.fsencode(source))
        digest.update(source.read_bytes())
    return cache_home() / f"kernels-{digest.hexdigest()[:16]}"


@cache
def _ours() -> Any:
    """Return the hash of our sources: kernels, what declares their tables, and what makes code of both."""
    digest = hashlib.sha256()
    makers = [
        Path(__file__).with_name(f"{name}.py")
        for name in ("jit", "machine_code", "tables", "accessors", "spans")
    ]
    for source in (*makers, *sorted(each for each in _HOME.rglob("*.py") if any(map(each.match, _SOURCES)))):
        digest.update(source.read_bytes())
    return digest


def _keep(loading: _Loading, variant: str) -> None:
    """Let Numba keep the machine code of the entries of a module, in the folder of its sources.

    Where nothing can be written, nothing is cached: Numba's default, beside the sources, does not track callees.
    """
    if not loading.entries:
        return
    numba: Any = importlib.import_module("numba")
    root = cache_folder(loading.sources)
    folder = root / variant
    if is_checking():
        # What is compiled follows from that source, too.
        made = hashlib.sha256(Path(__file__).with_name("checked.py").read_bytes()).hexdigest()
        folder = folder / f"checked-{made[:16]}"
    try:
        make_own(folder, root)
        # Permissions do not tell all (read-only mounts, quotas); to write is the sure test.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _warn(folder, error)
        return
    # Numba reads the folder when caching is enabled, so it is set only for that long; other users of Numba
    # keep theirs.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    try:
        for entry in loading.entries:
            entry.enable_caching()
            # Numba says where; how is ours, see `kernel_files`.
            entry._cache._cache_file = _Kept(entry._cache, numba.__version__, root)
    finally:
        numba.config.CACHE_DIR = before


class _Kept(KernelFiles):
    """Warns of what cannot be kept."""

    def __init__(self, cache: Any, version: str, root: Path) -> None:
        super().__init__(Path(cache.cache_path), cache._impl.filename_base, version, root=root)

    def save(self, key: object, data: object) -> None:
        """Keep the code of a signature, or warn."""
        super().save(key, data)
        if self.problem:
            _warn(self._folder, self.problem)


def _warn(folder: Path, error: OSError) -> None:
    """Warn once that every run compiles anew."""
    if _WARNED in os.environ:
        return
    os.environ[_WARNED] = "1"
    sys.stderr.write(
        f"warning: compiled kernels cannot be kept in {folder.parent} ({error.strerror or error}): every run compiles "
        "them again, which takes seconds; set XDG_CACHE_HOME to a folder that can be written\n"
    )
