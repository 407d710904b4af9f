"""The convolutions of a residual network, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from armillary.workload.models.schema import Conv2d, Resnet

# Outputs of a bottleneck block over its width.
EXPANSION = 4


def convolutions(model: Resnet) -> Iterator[tuple[str, Conv2d]]:
    """Yield (name, convolution) in the order of the data; each has a batch norm over its outputs.

    The stem is 7x7 with stride 2 and a 3x3 pooling with stride 2; every stage but the first halves the image and
    doubles the width (arXiv 1512.03385, table 1). A block whose input differs in shape has a 1x1 on its shortcut.
    """
    side = model.image
    stem = _square(model.channels, model.width, side, kernel=7, stride=2)
    yield "stem", stem
    side = _halved(_halved(side))
    inputs = model.width
    for stage, blocks in enumerate(model.blocks):
        width = model.width * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            # The paper halves the image in the first 1x1, torchvision ("v1.5") in the 3x3.
            first, second = (stride, 1) if model.stride_in == "1x1" else (1, stride)
            name = f"stage {stage + 1} block {block + 1}"
            after = side if stride == 1 else _halved(side)
            yield f"{name} reduce", _square(inputs, width, side, kernel=1, stride=first)
            yield name, _square(width, width, side if first == 1 else after, kernel=3, stride=second)
            yield f"{name} expand", _square(width, width * EXPANSION, after, kernel=1)
            # The first block of every stage changes the number of channels, in the first stage without a stride.
            if not block:
                yield f"{name} shortcut", _square(inputs, width * EXPANSION, side, kernel=1, stride=stride)
            inputs, side = width * EXPANSION, after


def features(model: Resnet) -> int:
    """Return the inputs of the classifier."""
    return int(model.width * 2 ** (len(model.blocks) - 1) * EXPANSION)


def _halved(side: int) -> int:
    return (side + 1) // 2


def _square(inputs: int, outputs: int, side: int, *, kernel: int, stride: int = 1) -> Conv2d:
    return Conv2d(
        inputs=inputs,
        outputs=outputs,
        height=side,
        width=side,
        kernel=kernel,
        stride=stride,
        padding=kernel // 2,
    )
