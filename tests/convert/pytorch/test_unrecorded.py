"""What a Kineto file lacks of its kernels is said."""

from __future__ import annotations

from pathlib import Path

from tests.convert.pytorch.kineto import NVIDIA, Document


def step(kernels: int, without: int = 0) -> Document:
    """Return a step with so many kernels, and so many launches without one at its end."""
    made = Document()
    made.op("aten::linear", 0, 100 + 20 * (kernels + without))
    for at in range(kernels):
        made.launched("gemm", 20 * at, 20 * at + 10, 20 * at + 25)
    for at in range(kernels, kernels + without):
        made.call(NVIDIA.launch, 20 * at, 20 * at + 5)
    return made


def test_launches_without_a_kernel_are_counted(tmp_path: Path) -> None:
    assert not any("no kernel" in text for text in step(5).converted(tmp_path).warnings)
    found = step(5, without=3).converted(tmp_path).warnings
    assert any("rank 0: 3 of 8 launches have no kernel in the file" in text for text in found)


def test_kernels_without_a_launch_are_those_of_launches_without_a_kernel(tmp_path: Path) -> None:
    """Old profilers number kernels of graphs in another way."""
    made = step(5)
    made.call(NVIDIA.graph, 200, 205)
    for at in range(3):
        made.kernel("of a graph", 210 + 10 * at, 215 + 10 * at, correlation=0)
    assert not any("no kernel" in text for text in made.converted(tmp_path).warnings)


def test_a_host_alone_has_no_kernels_to_miss(tmp_path: Path) -> None:
    assert not any("no kernel" in text for text in step(0, without=3).converted(tmp_path).warnings)


def test_kernels_without_a_duration_are_counted(tmp_path: Path) -> None:
    made = step(4)
    for event in [each for each in made.events if each["cat"] == "kernel"][:2]:
        del event["dur"]
    found = made.converted(tmp_path).warnings
    assert any("rank 0: 2 of 4 device activities have no dur and take no time" in text for text in found)
