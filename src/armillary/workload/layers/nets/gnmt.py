"""The layers of the LSTM translator: embedding, encoder, decoder, and the head.

All target tokens are known in training, so each layer processes the whole sequence before the next one starts. The
embedding and encoder layers pass on their output and the embedded target, which the decoder will need; decoder layers
pass on their output and the attention's context.
"""

from __future__ import annotations

from armillary.trace.gemm import Gemm
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.nets.kernels import Kernel, Kernels, check_plan, gemm, product
from armillary.workload.models.operations import HEAD, SCORES, default_sequence
from armillary.workload.models.schema import Gnmt
from armillary.workload.plan.schema import Plan


def gnmt_layers(model: Gnmt, plan: Plan) -> list[Layer]:
    """Return the layers for one microbatch; those of one shape are one object.

    Residual connections are those of NVIDIA's GNMT v2: encoder layers from the third, decoder layers from the third.

    Raises:
        InputError: the plan does not go with such a model.
    """
    check_plan(model, plan)
    own = _Translator(model, plan)
    width = own.tokens * model.hidden
    # Widths count what passes a boundary: the target beside one output, or beside both directions of the first layer.
    encoder = {
        n: own.layer(name, own.lstm(inputs, residual=n > 1), inputs=inputs, outputs=2)
        for n, name, inputs in ((1, "second encoder", 2), (2, "encoder", 1))
    }
    # The two directions of the first encoder layer read the same input.
    first = [*own.lstm(1, "forward "), *own.lstm(1, "reverse ")]
    decoder = {
        name: own.layer(name, own.later(residual), inputs=2, outputs=outputs)
        for name, residual, outputs in (
            ("second decoder", False, 2), ("decoder", True, 2), ("last decoder", model.decoder_layers > 2, 1),
        )
    }  # fmt: skip
    middle = ["second decoder" if n == 0 else "decoder" for n in range(model.decoder_layers - 2)]
    logits = own.tokens * model.vocabulary
    head = [
        gemm("classifier", own.tokens, model.hidden, model.vocabulary, bias=model.vocabulary, part=HEAD),
        Kernel("softmax", 3 * logits, 2 * logits, saved=logits, held=2 * logits, part=HEAD),
    ]
    return [
        own.embedding(),
        own.layer("bidirectional encoder", first, inputs=1, outputs=3),
        encoder[1],
        *[encoder[2]] * (model.encoder_layers - 2),
        own.layer("first decoder", [*own.lstm(1), *own.attention()], inputs=2, outputs=2),
        *[decoder[name] for name in (*middle, "last decoder")],
        own.made.layer("head", head, inputs=width, outputs=logits),
    ]


class _Translator:
    """Kernels for all tokens of a microbatch; widths count in units of the hidden size."""

    def __init__(self, model: Gnmt, plan: Plan) -> None:
        self.model, self.plan, self.made = model, plan, Kernels(plan)
        self.sequence = plan.sequence or default_sequence(model) or 1
        self.tokens = plan.microbatch * self.sequence
        self.width = self.tokens * model.hidden

    def layer(self, name: str, kernels: list[Kernel], *, inputs: int, outputs: int) -> Layer:
        """Return a layer whose inputs and outputs are given in multiples of the hidden size."""
        return self.made.layer(name, kernels, inputs=inputs * self.width, outputs=outputs * self.width)

    def lstm(self, inputs: int, prefix: str = "", *, residual: bool = False) -> list[Kernel]:
        """Return the kernels of an LSTM: one GEMM for the inputs of all time steps, then the steps one by one.

        Each step reads the recurrent weights again. Gates and cells of all steps are kept.
        """
        tokens, hidden, width = self.tokens, self.model.hidden, self.width
        kernels = [self._dropout(prefix, inputs * width)] if self.plan.dropout else []
        kernels += [
            # Four gates; cuDNN's LSTM has two biases for each, which 8 hidden counts here.
            gemm(f"{prefix}inputs", tokens, inputs * hidden, 4 * hidden, bias=8 * hidden),
            product(
                f"{prefix}recurrence", 4 * hidden * width, width, 4 * hidden**2, 4 * width,
                reads=self.sequence, besides=6 * width, saved=5 * width,
                shape=Gemm(self.plan.microbatch, 4 * hidden, hidden, calls=self.sequence),
            ),
        ]  # fmt: skip
        if residual:
            kernels.append(Kernel("residual", 3 * width, 3 * width, saved=width, held=2 * width))
        return kernels

    def attention(self) -> list[Kernel]:
        """Return the kernels of additive attention; sums of queries and keys stay inside the kernel."""
        tokens, hidden, width = self.tokens, self.model.hidden, self.width
        weights = tokens * self.sequence
        # Both projections see all tokens at once, as queries and keys of all positions are known.
        sides = [
            product(
                name,
                hidden * width,
                width,
                hidden**2,
                width,
                saved=2 * width,
                shape=Gemm(tokens, hidden, hidden),
            )
            for name in ("query", "key")
        ]
        # Queries, keys and values come in, the context goes out, and so do the weights, by way of a softmax.
        moved = 4 * width + 3 * weights
        scores = Kernel(
            "attention", moved, 2 * moved, parameters=2 * hidden + 1, saved=weights, held=moved,
            macs=2 * hidden * weights, both=True, part=SCORES,
        )  # fmt: skip
        return [*sides, scores]

    def later(self, residual: bool) -> list[Kernel]:
        """Return the kernels of a decoder layer that takes the context, too."""
        joined = Kernel("concatenation", 4 * self.width, 4 * self.width, held=4 * self.width)
        return [joined, *self.lstm(2, residual=residual)]

    def embedding(self) -> Layer:
        """Return the layer that looks up source and target; gradients are added to these rows."""
        model, size = self.model, 2 * self.width
        tables = 1 if model.shared_embedding else 2
        parameters = tables * model.hidden * model.vocabulary
        lookup = Kernel("embedding", 2 * size, operands=size, weights=size, parameters=parameters, held=size)
        return self.made.layer("embedding", [lookup], inputs=0, outputs=size)

    def _dropout(self, prefix: str, size: int) -> Kernel:
        return Kernel(f"{prefix}dropout", 2 * size, 2 * size, held=2 * size, masks=size)
