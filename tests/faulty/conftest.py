"""A layer below everything that Python writes, in which a chosen call fails: open, write, close, rename and others."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Fault:
    """From its `nth` call on a function fails: by an error of the system, by half of the bytes, or by Ctrl-C."""

    call: str
    nth: int
    number: int = 0
    short: bool = False

    def __str__(self) -> str:
        what = (
            errno.errorcode[self.number]
            if self.number
            else "Ctrl-C"
            if self.call == "interrupt"
            else "goes on"
        )
        return f"{'short ' * self.short}{self.call} {self.nth} {what}"


FAULTS = [
    *(Fault("open", 1, number) for number in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EMFILE)),
    Fault("open", 2, errno.ENOSPC),
    Fault("open", 3, errno.EIO),
    *(Fault("write", 1, number) for number in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)),
    Fault("write", 2, errno.ENOSPC),
    Fault("write", 3, errno.EIO),
    Fault("write", 1, errno.ENOSPC, short=True),
    Fault("write", 2, errno.ENOSPC, short=True),
    Fault("write", 1, short=True),
    Fault("interrupt", 1),
    Fault("interrupt", 2),
    *(Fault("close", 1, number) for number in (errno.EIO, errno.ENOSPC)),
    *(Fault("rename", 1, number) for number in (errno.EIO, errno.EROFS, errno.EACCES)),
    Fault("rename", 2, errno.ENOSPC),
    Fault("mkdir", 1, errno.EROFS),
    Fault("truncate", 1, errno.EIO),
    Fault("chmod", 1, errno.EPERM),
]


class Layer:
    """Counts calls that would change something below a folder, and lets one of them fail."""

    def __init__(self, folder: Path, fault: Fault) -> None:
        self.folder = folder
        self.fault = fault
        self.calls = dict.fromkeys(
            ("open", "write", "close", "rename", "mkdir", "truncate", "chmod", "interrupt"), 0
        )
        self.failed = False

    def is_below(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and Path(path).absolute().is_relative_to(self.folder)

    def meet(self, call: str) -> bool:
        """Count a call, and tell whether it is to fail."""
        self.calls[call] += 1
        fails = call == self.fault.call and self.calls[call] >= self.fault.nth
        # Ctrl-C comes once.
        self.failed |= fails
        return fails and not (call == "interrupt" and self.calls[call] > self.fault.nth)

    def check(self, call: str) -> None:
        if self.meet(call):
            raise OSError(self.fault.number, os.strerror(self.fault.number))


class _Raw(io.FileIO):
    def __init__(self, layer: Layer, file: Any, mode: str) -> None:
        super().__init__(file, mode)
        self._layer = layer

    def write(self, data: Any, /) -> int | None:
        layer = self._layer
        if layer.meet("interrupt"):
            raise KeyboardInterrupt
        if layer.meet("write"):
            view = memoryview(data).cast("B")
            half = len(view) // 2
            if not layer.fault.short or not half:
                if layer.fault.number:
                    raise OSError(layer.fault.number, os.strerror(layer.fault.number))
                return super().write(view)
            return super().write(view[:half])
        return super().write(data)

    def close(self) -> None:
        was_open = not self.closed
        super().close()
        if was_open:
            self._layer.check("close")


@contextmanager
def layered(folder: Path, fault: Fault) -> Iterator[Layer]:
    """Put the layer below everything in this process."""
    layer = Layer(folder, fault)
    patch = pytest.MonkeyPatch()
    plain_open, plain_os_open = io.open, os.open

    def opened(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any) -> Any:
        if not layer.is_below(file) or not set(mode) & set("wax+"):
            return plain_open(file, mode, buffering, *rest, **more)
        layer.check("open")
        raw = _Raw(layer, file, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return binary if "b" in mode else io.TextIOWrapper(binary, *rest, **more)

    def os_open(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if layer.is_below(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            layer.check("open")
        return plain_os_open(path, flags, *rest, **more)

    def checked(name: str, call: str) -> None:
        plain: Callable[..., Any] = getattr(os, name)

        def function(first: Any, *rest: Any, **more: Any) -> Any:
            # Descriptors are of files that were opened below the folder.
            if isinstance(first, int) or layer.is_below(first):
                layer.check(call)
            return plain(first, *rest, **more)

        patch.setattr(os, name, function)

    with patch.context():
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)
        patch.setattr(os, "open", os_open)
        for name, call in (
            ("replace", "rename"),
            ("rename", "rename"),
            ("mkdir", "mkdir"),
            ("ftruncate", "truncate"),
            ("chmod", "chmod"),
        ):
            checked(name, call)
        try:
            yield layer
        finally:
            patch.undo()


@pytest.fixture
def faults() -> list[Fault]:
    """More than twenty."""
    return FAULTS


@pytest.fixture
def below() -> Callable[[Path, Fault], Any]:
    return layered
