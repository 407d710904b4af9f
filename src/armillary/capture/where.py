"""Where in the program an operator is from: its module and line; in the backward pass, those of its forward one."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from armillary.capture.log import Place

OURS = str(Path(__file__).parent)
MOST_FRAMES = 200


class Where:
    """Follows modules as they are called, and knows which line called.

    A line is that of the innermost caller that is not installed: the user's own.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._here = threading.local()
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        # Nodes of autograd are numbered as they are made, forward; their gradients have the same numbers.
        self._forward: dict[int, tuple[str, str]] = {}
        self._user: dict[str, bool] = {}
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
                self._user[file] = _is_users(file)
            if self._user[file]:
                return f"{Path(file).name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def step(self) -> None:
        """Forget the graph of the step before."""
        self._forward.clear()

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


def _is_users(file: str) -> bool:
    if file.startswith((OURS, "<")):
        return False
    parts = Path(file).parts
    return not any(
        part in ("site-packages", "dist-packages", f"python3.{sys.version_info.minor}") for part in parts
    )
