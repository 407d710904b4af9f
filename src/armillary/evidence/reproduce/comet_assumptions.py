"""What the reproduction of COMET assumes: of the paper nothing but the abstract is public where we can read it.

So every number here is an assumption. Those that we have from memory of the paper say "recalled, unverified".
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice

NODES = 1024
RECALLED = "Recalled from the paper, unverified"


# Nested dataclasses: each part of the method depends on some of them only, and caches by those.
@dataclass(frozen=True)
class TrainingAssumptions:
    """How Transformer-1T is trained."""

    batch: int = assumed(
        "1024",
        readers.whole,
        "Sequences per step: the minimum with which each replica of MP1_DP1024 has one; not public.",
        others=("3072",),
    )
    sharding: str = choice(
        "zero-2",
        ("ddp", "zero-1", "zero-2", "zero-3"),
        f"ZeRO stage. {RECALLED}: that it is used; with stage 2, MP64_DP16 is the lowest MP that fits, as recalled.",
    )
    recompute: str = choice(
        # Values that the paper may have used and we do not know are named as such in `why`.
        "full",
        ("none", "selective", "full"),
        "Without recomputation, the activations of no plan fit into 80 GB.",
    )
    sequence: bool = assumed(
        "yes", readers.yes_or_no,
        "Whether MP divides norms and residuals along the sequence: otherwise activations do not shrink with MP.",
        others=("no",), choices=("yes", "no"),
    )  # fmt: skip
    gradients: str = choice("bf16", ("bf16", "fp32"), "Precision of gradient reductions: not public.")
    overlap: bool = assumed(
        "yes",
        readers.yes_or_no,
        "Whether gradient reductions overlap the backward pass, as in ASTRA-sim's training loop.",
        others=("no",),
        choices=("yes", "no"),
    )


@dataclass(frozen=True)
class DlrmAssumptions(TrainingAssumptions):
    """Which DLRM is trained, and how: the paper's is not public."""

    dlrm_parameters: int = assumed(
        "1200000000000", readers.counting(1 << 20, 1 << 50),
        f"Parameters of the tables. {RECALLED}: 1.2 T; MLPs, tables and rows are those of the DLRM of LIBRA.",
        others=("400000000000", "2400000000000"),
    )  # fmt: skip
    dlrm_batch: int = assumed(
        "65536",
        readers.whole,
        "Samples per step of one DLRM, for any number of nodes: usual for DLRMs of that size; not public.",
        others=("16384", "262144"),
    )
    dlrm_pooling: int = assumed(
        "20", readers.whole, "Rows that a sample looks up in each table: not public.", others=("1", "80")
    )
    dlrm_precision: str = choice(
        "fp32",
        ("fp32", "bf16"),
        "Precision of rows, sums and GEMMs, at the single peak of the node; bf16 also keeps an fp32 copy: not public.",
    )


@dataclass(frozen=True)
class NodeAssumptions(DlrmAssumptions):
    """What a node of the base cluster is, and how its memory is expanded."""

    peak: float = assumed(
        "312 TFLOP/s", readers.flops,
        f"Data sheet of the A100, dense. {RECALLED}: 624 TFLOP/s, which is the peak with sparsity.",
        others=("624 TFLOP/s",),
    )  # fmt: skip
    efficiency: float = assumed(
        "100 %", readers.part, "Share of the peak that GEMMs reach: a roofline of peaks.", others=("50 %",)
    )
    buffer: int = assumed(
        "40 MB", readers.size,
        f"On-chip buffer for the tiles of GEMMs. {RECALLED}; it is also the L2 cache of the A100.",
        others=("4 MB", "1 TB"),
    )  # fmt: skip
    memory: float = assumed(
        "2039 GB/s",
        readers.bandwidth,
        "Data sheet of the A100 with 80 GB, approximately as recalled.",
        others=("1555 GB/s",),
    )
    capacity: int = assumed("80 GB", readers.size, "Data sheet of the A100, as recalled.", others=("40 GB",))
    expansion: float = assumed(
        "500 GB/s", readers.bandwidth,
        "Bandwidth between a node and its memory expansion, if not swept: near the point where more gains nothing; not "
        "public.",
        others=("100 GB/s", "2 TB/s"),
    )  # fmt: skip
    expansion_capacity: int = assumed(
        "512 GB",
        readers.size,
        f"Capacity of the expansion, if not swept. {RECALLED}: hundreds of GB.",
        others=("128 GB", "1 TB"),
    )
    placement: str = choice(
        "spread", ("spread", "weights"),
        "Contents of the expansion: an equal share of everything, so that 1/BW = f_local/BW_local + f_exp/BW_exp, or "
        f"only weights, loaded for each use. {RECALLED}: the former.",
    )  # fmt: skip


@dataclass(frozen=True)
class Assumptions(NodeAssumptions):
    """And the network, and the other clusters."""

    pod: int = assumed(
        "8",
        readers.counting(2, NODES // 2),
        f"Nodes per pod: a server of A100. {RECALLED}.",
        others=("16", "64"),
    )
    intra: float = assumed(
        "300 GB/s",
        readers.bandwidth,
        f"Bandwidth of a node within its pod, each way: NVLink of the A100. {RECALLED}.",
        others=("150 GB/s",),
    )
    inter: float = assumed(
        "31.25 GB/s", readers.bandwidth,
        f"Bandwidth of a node between pods, each way. {RECALLED}; a DGX A100 has adapters of 25 GB/s.",
        others=("25 GB/s", "50 GB/s"),
    )  # fmt: skip
    latency: float = assumed("1 us", readers.time, "Latency of a hop: not public.", others=("5 us",))
    chunks: int = assumed("16", readers.chunks, "Chunks per collective: not public.", others=("1", "64"))
    dojo: str = choice(
        "die", ("die", "tile"), "Part of Dojo that is a node: a D1 die, or a tile of 25 dies; not public."
    )
