"""The mixtures of experts of case study 3: of a model "MoE-1T" the paper gives neither sizes nor a name.

So it is every mixture of 1 to 2 trillion parameters whose sizes were published before it (April 2023). Encoder-decoders
are taken for decoders with as many layers in all, and no attention across. A test compares parameters with those of
the papers.
"""

from __future__ import annotations

from functools import cache

from armillary.workload.models import load_model
from armillary.workload.models.read import read_model
from armillary.workload.models.schema import Decoder


def _mixture(
    name: str, source: str, *, layers: int, hidden: int, vocabulary: int, heads: int, head: int, experts: int,
    top_k: int, inner: int, every: int = 1, dense: int = 0,
) -> Decoder:  # fmt: skip
    """Return a decoder with `experts` of inner size `inner` in every so many layers, `dense` in the rest."""
    model = read_model(
        {
            "kind": "decoder", "name": name, "source": [source], "layers": layers, "hidden": hidden,
            "vocabulary": vocabulary, "context": 2048, "tied": True, "norm": "layer", "activation": "relu",
            # A model of experts in every layer has no dense layers.
            "attention": {"heads": heads, "head_size": head}, **({"mlp": {"size": dense}} if dense else {}),
            "experts": {"count": experts, "top_k": top_k, "size": inner, "every": every},
        }
    )  # fmt: skip
    assert isinstance(model, Decoder)
    return model


TRILLION = {
    model.name: model
    for model in (
        _mixture(
            "Switch-C", "arXiv 2101.03961, table 9: 15 + 15 layers, 1571B", layers=30, hidden=2080,
            vocabulary=32128, heads=32, head=64, experts=2048, top_k=1, inner=6144,
        ),
        _mixture(
            "GShard-1T", "arXiv 2006.16668: MoE(2048E, 60L), 1T", layers=60, hidden=1024,
            vocabulary=64000, heads=16, head=128, experts=2048, top_k=2, inner=8192, every=2, dense=8192,
        ),
        _mixture(
            "DeepSpeed-MoE-1T", "arXiv 2201.05596: 24B+MoE-128, 1064.9B; its dense 24B are 30 layers of 12 x 8192^2",
            layers=30, hidden=8192, vocabulary=51200, heads=64, head=128, experts=128, top_k=1, inner=32768,
            every=2, dense=32768,
        ),
        _mixture(
            "GLaM", "arXiv 2112.06905: 64B/64E, 1.2T; its dense layers are gated: 1.5 times as wide here",
            layers=64, hidden=8192, vocabulary=256000, heads=128, head=128, experts=64, top_k=2, inner=32768,
            every=2, dense=49152,
        ),
    )
}  # fmt: skip
"""Name -> model."""
SMALLER = ("mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3")
"""Mixtures that the workload generator knew when this was written; of 47B to 671B, so not the paper's."""


@cache
def mixture(name: str) -> Decoder:
    """Return one of `TRILLION`, or a preset."""
    model = TRILLION.get(name) or load_model(name)
    assert isinstance(model, Decoder)
    return model
