"""Text workloads of ASTRA-sim 1.0 for tests."""

from __future__ import annotations

TWO = """\
a -1 1000 ALLGATHER 8 2000 ALLREDUCE 16 3000 ALLREDUCE 32 0
b -1 4000 ALLGATHER 8 5000 ALLREDUCE 16 6000 ALLREDUCE 32 0
"""


def layers(count: int) -> str:
    """Return layers 0, 1, … that compute 1 µs in each phase and communicate after each."""
    return "".join(f"{n} -1 1000 ALLREDUCE 8 1000 ALLREDUCE 8 1000 ALLREDUCE 8 0\n" for n in range(count))


# Read off the iterate_* functions of ASTRA-sim 1.0 by hand: capitals compute, small letters communicate.
ORDERS = {
    "MICRO": ("w0 w1 w2", 3),
    "DATA": ("F0 F1 F2 W2 w2 I2 W1 w1 I1 W0 w0", 3),
    "DATA_REORDER": ("F0 F1 F2 I2 W2 w2 I1 W1 w1 W0 w0", 3),
    "MODEL": ("F0 f0 F1 f1 I1 i1 W1 I0 W0", 2),
    "DISTRIBUTED_INFERENCE": ("F0 f0 F1 f1", 2),
    "HYBRID_DATA_MODEL": ("F0 f0 F1 f1 I1 i1 W1 w1 I0 W0 w0", 2),
    "HYBRID_MODEL_DATA": ("F0 f0 F1 f1 I1 i1 W1 w1 I0 W0 w0", 2),
    "HYBRID_TRANSFORMER model_parallel_NPU_group: 2": ("F0 f0 F1 f1 I1 i1 W1 w1 I0 i0 W0 w0", 2),
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 1 0 checkpoint_initiates: 1 2": (
        "F0 f0 F1 f1 F2 f2 F0 f0 F1 f1 I2 i2 W2 w2 I1 i1 W1 w1 I0 i0 W0 w0",
        3,
    ),
    "HYBRID_DLRM 1": ("F0 f0 F1 F2 F3 W3 w3 I3 W2 w2 I2 i0 W1 w1 I1 W0 w0", 4),
    "HYBRID_DLRM_ENHANCED 1": ("F0 f0 F1 F2 F3 W3 w3 I3 W2 w2 I2 i0 W1 w1 I1 W0 w0", 4),
}
