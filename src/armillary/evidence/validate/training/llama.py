"""Table 4 of arXiv 2407.21783 (Llama 3): 405B on H100 with 400 Gb/s RoCE."""

from __future__ import annotations

from collections.abc import Iterator

from armillary.evidence.validate.training.case import Case
from armillary.workload.models import load_model, parameters
from armillary.workload.models.schema import Decoder

SOURCE = "https://arxiv.org/abs/2407.21783"
TABLE_4 = ((8192, 1, 64, 8192, 32, 430), (16384, 1, 128, 8192, 16, 400), (16384, 16, 8, 131072, 16, 380))
"""GPUs, cp, dp, sequence, sequences of a replica, TFLOP/s of a GPU; tp 8, pp 16. Version 1 prints dp 4."""


def cases() -> Iterator[Case]:
    """Yield the rows.

    Section 3.3.2: bf16, gradients reduced in fp32, FSDP that shards optimizer and gradients but does not reshard
    weights after the forward pass, interleaved stages, all-gathered keys and values, no recomputation. The first chunk
    has only the embedding and the last only the head, so that each of the others has one of 126 layers. FLOP as the
    paper's MFU counts them (arXiv 2204.02311, appendix B): 6 of each parameter but the embedding, 12 of each score.
    """
    model = load_model("llama-3-405b")
    assert isinstance(model, Decoder)
    for gpus, cp, dp, sequence, batch, teraflops in TABLE_4:
        counts = parameters(model)
        # 12 h per head and score: two GEMMs, and their backward passes.
        scores = 12 * model.layers * model.attention.heads * model.head_size * sequence
        flops = (6 * (counts.total - counts.embedding) + scores) * sequence * batch * dp
        yield Case(
            label=f"{gpus} GPUs, cp {cp}, sequence {sequence}",
            group="Llama 3 405B",
            measured=teraflops,
            machine="grand-teton-h100",
            npus=gpus,
            # A row of a longer sequence needs a longer context.
            model=model.model_copy(update={"context": max(model.context, sequence)}),
            plan={
                "batch": batch * dp,
                "microbatch": 1,
                "sequence": sequence,
                "parallel": {"tp": 8, "cp": cp, "pp": 16, "dp": dp, "context": "all-gather"},
                "pipeline": {"schedule": "interleaved", "virtual": 8, "layers": [0, *[1] * model.layers, 0]},
                "data": {"sharding": "zero-1", "bucket": "500 MiB"},
                "numbers": {"gradients": "fp32"},
                "attention": "flash",
                "causal": True,
            },
            stack="llama-3",
            amount=flops / gpus / 1e12,
        )
