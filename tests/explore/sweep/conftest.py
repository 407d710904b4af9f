"""A small model on a small machine, swept in milliseconds."""

import copy

import pytest

MODEL = """
kind: decoder
name: Tiny
layers: 12
hidden: 1600
vocabulary: 50304
context: 1024
tied: false
norm: layer
activation: gelu
attention: {heads: 20}
mlp: {size: 6400}
"""
STUDY = {
    "workload": {
        "generate": {"model": "tiny", "batch": 16, "sequence": 256, "parallel": {"tp": 1, "pp": 1}},
    },
    "platform": {
        "network": [
            {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "450 GB/s", "latency": "1 us"},
            {"name": "fabric", "topology": "Switch", "size": 2, "bandwidth": "50 GB/s", "latency": "5 us"},
        ],
        "npu": {"peak": "312 TFLOP/s", "memory": {"bandwidth": "2 TB/s", "capacity": "40 GB"}},
    },
}


@pytest.fixture
def study(tmp_path):
    (tmp_path / "tiny.yaml").write_text(MODEL)
    study = copy.deepcopy(STUDY)
    study["workload"]["generate"]["model"] = str(tmp_path / "tiny.yaml")
    return study
