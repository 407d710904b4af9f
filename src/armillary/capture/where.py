"""Where in the program an operator is from: its module and line; in the backward pass, those of its forward one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.capture.log import Place

OURS = str(Path(__file__).parents[1])
MOST_FRAMES = 200


class Where:
    """Follows modules as they are called, and knows which line called.

    A line is that of the innermost caller that is the user's own: that is not installed, or of the package that runs.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._here = threading.local()
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        # Nodes of autograd are numbered as they are made, forward; their gradients have the same numbers.
        self._forward: dict[int, tuple[str, str]] = {}
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
        node = self._torch._C._current_autograd_node()
        if node is not None and not self._stack():
            number = node._sequence_nr()
            if number in self._forward:
                return Place(*self._forward[number], True)
            return Place("", self.line(), True)
        module, line = (self._stack() or [""])[-1], self.line()
        # The node of this operator was made just before it came here.
        self._forward.setdefault(self._torch.autograd._get_sequence_nr() - 1, (module, line))
        return Place(module, line, node is not None)

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

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Yield the modules that were called, and theirs, with their names."""
        for root in self._kept:
            for module in root.modules():
                yield self._names.get(id(module), ""), module

    def _stack(self) -> list[str]:
        if not hasattr(self._here, "stack"):
            self._here.stack = []
        stack: list[str] = self._here.stack
        return stack

    def _enter(self, module: Any, *_: Any) -> None:
        stack = self._stack()
        if id(module) not in self._names:
            # A root, or a module that was made since. Kept, or its id might be another's.
            self._kept.append(module)
            above = f"{stack[-1]}." if stack and stack[-1] else ""
            for name, each in module.named_modules(prefix="" if not stack else above + type(module).__name__):
                self._names.setdefault(id(each), name)
        stack.append(self._names[id(module)])

    def _leave(self, *_: Any) -> None:
        stack = self._stack()
        if stack:
            stack.pop()


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
