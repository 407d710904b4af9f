"""What `torch.cuda` says of a device, beside what the constants of its kernels know."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.errors import InputError, nearest, one_of
from armillary.compute.gpu.device import gpu_names, load_gpu

CAPABILITIES = {
    "v100": (7, 0), "a100": (8, 0), "h100": (9, 0), "h200": (9, 0), "b200": (10, 0), "b300": (10, 3),
    "gb200": (10, 0), "gb300": (10, 3),
}  # fmt: skip
"""Beginning of a device's name -> compute capability, by which programs choose kernels (CUDA Programming Guide)."""
DEFAULT = "h100-sxm"


@dataclass(frozen=True)
class FakeDevice:
    """A GPU as a program sees it.

    Attributes:
        name: Name of its constants.
        title: As `torch.cuda.get_device_name` has it.
        capability: Of CUDA.
        memory: Bytes.
        processors: Streaming multiprocessors.
    """

    name: str
    title: str
    capability: tuple[int, int]
    memory: int
    processors: int


def fake_device(name: str) -> FakeDevice:
    """Return a device by the name of its constants, or the beginning of it: ``h100`` is ``h100-sxm``.

    Raises:
        InputError: there is none, or it is not one that runs CUDA.
    """
    known = [each for each in gpu_names() if _capability(each)]
    # Of several the usual one: the package of the DGX.
    found = (
        name
        if name in known
        else next((each for each in (f"{name}-sxm", f"{name}-sxm-80") if each in known), "")
    )
    if not found:
        raise InputError(f"device '{name}'{nearest(name, known)}: `torch.cuda` answers as {one_of(known)}")
    gpu = load_gpu(found)
    return FakeDevice(found, gpu.title, _capability(found) or (0, 0), gpu.capacity, gpu.sms)


def _capability(name: str) -> tuple[int, int] | None:
    return CAPABILITIES.get(name.partition("-")[0])
