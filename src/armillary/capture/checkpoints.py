"""Checkpoints: nothing is written where a program says, and what it has saved it can load again.

Weights have no values, so a file of them would be worthless, and might take the place of a good one. What a rank saves
with `torch.save` is kept for the ranks of the run, as shapes and small numbers: programs let the first rank save, and
all of them load.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from armillary.base.files import replacing
from armillary.capture.log import Log
from armillary.capture.values import MOST_ELEMENTS, MOST_NUMBERS
from armillary.convert.torch_import import torch_part


class Shape(NamedTuple):
    """What is kept of a tensor in place of its numbers; `spec` is that of a DTensor whose local part it is."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: str
    spec: Any = None


def install(torch: Any, log: Log, folder: Path) -> None:
    """Replace what writes and reads checkpoints; `folder` is that of the run."""
    _files(torch, log, folder)
    _addresses(torch)
    checkpoint = torch_part("distributed.checkpoint")
    for name in ("save", "load", "async_save"):
        if hasattr(checkpoint, name):
            what = f"torch.distributed.checkpoint.{name}"
            setattr(checkpoint, name, _skipped(log, what, later=name == "async_save"))
    if importlib.util.find_spec("safetensors") is not None:
        tensors = importlib.import_module("safetensors.torch")
        for name in ("save_file", "save_model"):
            vars(tensors)[name] = _skipped(log, f"safetensors.torch.{name}")


def _skipped(log: Log, what: str, *, later: bool = False) -> Callable[..., Any]:
    def nothing(*_: Any, **__: Any) -> Any:
        log.note(f"{what} was left out: weights have no values")
        if not later:
            return None
        done: Future[None] = Future()
        done.set_result(None)
        return done

    return nothing


def _files(torch: Any, log: Log, folder: Path) -> None:
    save, load = torch.save, torch.load
    fake = torch_part("_subclasses.fake_tensor").FakeTensor
    tree_map, tree_map_only = torch.utils._pytree.tree_map, torch.utils._pytree.tree_map_only
    torch.serialization.add_safe_globals([Shape])

    def kept(file: Any) -> Path | None:
        if not isinstance(file, str | os.PathLike):
            return None
        name = hashlib.sha256(os.fsencode(Path(os.fsdecode(file)).absolute())).hexdigest()
        return folder / f"saved_{name}"

    def shape_of(tensor: Any) -> Any:
        most = MOST_NUMBERS if tensor.is_floating_point() else MOST_ELEMENTS
        spec = getattr(tensor, "_spec", None)
        held = tensor._local_tensor if spec is not None else tensor
        small = not isinstance(held, fake) and held.numel() <= most and spec is None
        if small or type(held) not in (torch.Tensor, torch.nn.Parameter, fake):
            return tensor
        return Shape(tuple(held.shape), held.stride(), held.dtype, str(held.device), spec)

    def saved(given: Any, f: Any, *_: Any, **__: Any) -> None:
        log.note("torch.save was left out: weights have no values")
        path = kept(f)
        if path is None and not isinstance(f, io.BytesIO):
            return
        # A buffer is the program's own: it sends it to others, or reads it again.
        target = replacing(path) if path is not None else nullcontext(f)
        try:
            with target as part, torch_part("utils._python_dispatch")._disable_current_modes():
                save(tree_map_only(torch.Tensor, shape_of, given), part)
        except Exception as error:  # such as a whole module, with hooks that nobody can pickle
            sys.stderr.write(f"{f}: not kept for the other ranks ({error})\n")

    def loaded(f: Any, map_location: Any = None, *args: Any, **named: Any) -> Any:
        path = kept(f)
        # To the CPU: pickle would make tensors of the device past all modes.
        if path is None or Path(f).exists() or not path.exists():
            found = load(f, "cpu", *args, **named)
        else:
            found = load(path, "cpu", weights_only=False)
        return tree_map_only(torch.Tensor, lambda each: moved(each, map_location), made(found, map_location))

    def made(found: Any, place: Any) -> Any:
        return tree_map(
            lambda each: again(each, place) if isinstance(each, Shape) else each,
            found,
            is_leaf=lambda each: isinstance(each, Shape),
        )

    def again(shape: Shape, place: Any) -> Any:
        wanted = torch.device(where(place, shape.device))
        if wanted.type == "cuda":
            wanted = torch.device("cuda", torch.cuda.current_device())
        tensor = torch.empty_strided(shape.shape, shape.stride, dtype=shape.dtype, device=wanted)
        if shape.spec is None:
            return tensor
        return torch_part("distributed.tensor").DTensor(tensor, shape.spec, requires_grad=False)

    def where(place: Any, device: str) -> Any:
        """Return what `map_location` says of what was on a device: a function most often says the CPU."""
        if place is None or isinstance(place, dict):
            return (place or {}).get(device, device)
        return place if isinstance(place, str | torch.device | int) else "cpu"

    def moved(tensor: Any, place: Any) -> Any:
        wanted = torch.device(where(place, str(tensor.device)))
        return tensor if hasattr(tensor, "_spec") else tensor.to(wanted)

    torch.save, torch.load = saved, loaded


def _addresses(torch: Any) -> None:
    """Give each storage without memory an address of its own: programs look for weights that are tied."""
    fake = torch_part("_subclasses.fake_tensor").FakeTensor
    of_storage, of_tensor = torch.UntypedStorage.data_ptr, torch.Tensor.data_ptr
    apart = 1 << 44  # no storage is larger

    def storage(self: Any) -> int:
        return int(self._cdata) * apart if self.device.type == "meta" else int(of_storage(self))

    def tensor(self: Any) -> int:
        if not isinstance(self, fake):
            return int(of_tensor(self))
        return storage(self.untyped_storage()) + int(self.storage_offset()) * int(self.element_size())

    torch.UntypedStorage.data_ptr, torch.Tensor.data_ptr = storage, tensor
    fake.data_ptr = tensor
