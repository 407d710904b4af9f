"""Where in the program an operator is from: its module and line; in the backward pass, those of its forward one."""

from __future__ import annotations

import functools
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from armillary.capture.log import Place

OURS = str(Path(__file__).parents[1])
MOST_FRAMES = 200
EXCEPTED = -1
"""Region of what `torch.compiler.disable` keeps from being compiled, also within a compiled part."""


class Where:
    """Follows modules as they are called, and knows which line called.

    Attributes:
        region: Call of a compiled part that the last operator is in, below 0 in its backward pass; 0: none.
        eager: Whether nothing is compiled now, whatever was asked for.

    A line is that of the innermost caller that is the user's own: that is not installed, or of the package that runs.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._here = threading.local()
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        # Nodes of autograd are numbered as they are made, forward; their gradients have the same numbers. What a
        # checkpoint makes again in a backward pass, its thread numbers anew.
        self._forward: dict[int, tuple[str, str, int]] = {}
        self._again: dict[int, tuple[int, tuple[str, str, int] | None]] = {}
        # The numbers of the next node where a module began or ended, and where the program was then: nodes of
        # functions without an operator, such as those that only quantise gradients, are known by these alone.
        self._numbers: list[int] = []
        self._bounds: list[tuple[str, int]] = []
        # Parts that `torch.compile` was asked for, and how often one was called.
        self._compiled: set[int] = set()
        self._excepted: set[int] = set()
        self.eager: Callable[[], bool] = lambda: False
        self._calls = 0
        self.region = 0
        self._user: dict[str, str] = {}
        self._last = Place("", "", False)
        hooks = torch.nn.modules.module
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]

    def close(self) -> None:
        """Follow no further module."""
        for handle in self._handles:
            handle.remove()

    def now(self) -> Place:
        """Return where the current operator is from; a hook without a line of its own is where it was called from."""
        place = self._now()
        if place.line or not self._last.line:
            self._last = place
            return place
        return Place(self._last.module, self._last.line, place.backward or self._last.backward)

    def _now(self) -> Place:
        node, task = self._torch._C._current_autograd_node(), self._torch._C._current_graph_task_id()
        if task < 0:
            self._again.clear()
        if node is not None and not self._stack():
            number = node._sequence_nr()
            made, found = self._again.get(number, (task, None))
            # What a backward pass goes through was made before it began.
            found = found if made != task else self._forward.get(number) or self._between(number)
            if found is not None:
                module, line, region = found
                self.region = -region
                return Place(module, line, True)
            self.region = 0
            return Place("", self.line(), True)
        (module, region), line = self._top(), self.line()
        self.region = max(region, 0)
        # The node of this operator was made just before it came here.
        number = self._torch.autograd._get_sequence_nr() - 1
        if task < 0:
            self._forward.setdefault(number, (module, line, self.region))
        else:
            self._again.setdefault(number, (task, (module, line, self.region)))
        return Place(module, line, node is not None)

    def _between(self, number: int) -> tuple[str, str, int] | None:
        at = bisect_right(self._numbers, number) - 1
        if at < 0:
            return None
        name, region = self._bounds[at]
        return name, "", max(region, 0)

    def line(self) -> str:
        """Return file and line of the innermost caller that is not installed; "" if there is none."""
        frame: Any = sys._getframe(1)
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            file = frame.f_code.co_filename
            if file not in self._user:
                self._user[file] = _of_user(file)
            if self._user[file]:
                return f"{self._user[file]}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def step(self) -> None:
        """Forget the graph of the step before."""
        self._forward.clear()
        self._numbers.clear()
        self._bounds.clear()

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Yield the modules that were called, and theirs, with their names."""
        for root in self._kept:
            for module in root.modules():
                yield self._names.get(id(module), ""), module

    def compiled(self, part: Any) -> Any:
        """Take a module or function for compiled, and return what to use instead of it."""
        if isinstance(part, self._torch.nn.Module):
            # A part of it may be called alone, as checkpointing does in the backward pass.
            self._kept.append(part)
            self._compiled.update(id(each) for each in part.modules())
            return part
        if not callable(part) or isinstance(part, type):
            return part
        return self._wrapped(part, lambda above: self._within(above, True))

    def excepted(self, part: Any) -> Any:
        """Take a module or function for one that is never compiled, and return what to use instead of it."""
        if isinstance(part, self._torch.nn.Module):
            self._kept.append(part)
            self._excepted.add(id(part))
            return part
        return self._wrapped(part, lambda above: (above[0], EXCEPTED))

    def _wrapped(self, part: Any, within: Callable[[tuple[str, int]], tuple[str, int]]) -> Any:
        @functools.wraps(part)
        def called(*args: Any, **named: Any) -> Any:
            self._push(within(self._top()))
            try:
                return part(*args, **named)
            finally:
                self._pop()

        return called

    @property
    def regions(self) -> int:
        """Calls of compiled parts so far."""
        return self._calls

    def skip(self, regions: int) -> None:
        """Count calls of compiled parts that were not made."""
        self._calls += regions

    @property
    def compiles(self) -> bool:
        """Whether anything was compiled."""
        return bool(self._compiled) or self._calls > 0

    def _within(self, above: tuple[str, int], compiled: bool) -> tuple[str, int]:
        name, region = above
        if compiled and not region and not self.eager():
            self._calls += 1
            region = self._calls
        return name, region

    def _stack(self) -> list[tuple[str, int]]:
        if not hasattr(self._here, "stack"):
            self._here.stack = []
        stack: list[tuple[str, int]] = self._here.stack
        return stack

    def _enter(self, module: Any, *_: Any) -> None:
        stack = self._stack()
        if id(module) not in self._names:
            # A root, or a module that was made since. Kept, or its id might be another's.
            self._kept.append(module)
            above = f"{stack[-1][0]}." if stack and stack[-1][0] else ""
            for name, each in module.named_modules(prefix="" if not stack else above + type(module).__name__):
                self._names.setdefault(id(each), _plain(name))
        region = EXCEPTED if id(module) in self._excepted else stack[-1][1] if stack else 0
        self._push(self._within((self._names[id(module)], region), id(module) in self._compiled))

    def _leave(self, *_: Any) -> None:
        if self._stack():
            self._pop()

    def _top(self) -> tuple[str, int]:
        return (self._stack() or [("", 0)])[-1]

    def _push(self, where: tuple[str, int]) -> None:
        self._stack().append(where)
        self._bound()

    def _pop(self) -> None:
        self._stack().pop()
        self._bound()

    def _bound(self) -> None:
        number = self._torch.autograd._get_sequence_nr()
        if self._torch._C._current_graph_task_id() >= 0 or (self._numbers and number < self._numbers[-1]):
            return
        if self._numbers and number == self._numbers[-1]:
            self._bounds.pop()
        else:
            self._numbers.append(number)
        self._bounds.append(self._top())


def _plain(name: str) -> str:
    """Return the name of a module without what `torch.compile` adds to it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _of_user(file: str) -> str:
    """Return the name of a file of the user's, below the folder of the script or package; "": it is not the user's."""
    if file.startswith((OURS, "<")):
        return ""
    path = Path(file)
    package = _package()
    if package is not None and path.is_relative_to(package):
        return str(path.relative_to(package.parent))
    installed = ("site-packages", "dist-packages", f"python3.{sys.version_info.minor}")
    if any(part in installed for part in path.parts):
        return ""
    folder = Path(sys.path[0] or ".").resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name


def is_users(file: str) -> bool:
    """Return whether a file is the user's."""
    return bool(_of_user(file))


def _package() -> Path | None:
    """Return the folder of the package that runs as ``python -m package.module``."""
    name = str(getattr(sys.modules.get("__main__"), "__package__", None) or "").partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None) if name not in ("", "armillary") else None
    return Path(file).parent if file else None
