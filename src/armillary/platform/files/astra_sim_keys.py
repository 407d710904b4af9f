"""Every key of ASTRA-sim's configuration files: those that count, and those it reads past."""

from __future__ import annotations

from armillary.platform.collectives import COLLECTIVES

NETWORK_KEYS = ("topology", "npus_count", "bandwidth", "latency")
# Keys of version 1.0 and of its documentation that version 2 does not read.
NETWORK_IGNORED = [
    "topology-name",
    "topologies-per-dim",
    "dimension-type",
    "dimensions-count",
    "units-count",
    "links-count",
    "link-latency",
    "link-bandwidth",
    "nic-latency",
    "router-latency",
    "hbm-latency",
    "hbm-bandwidth",
    "hbm-scale",
    "use-fast-version",
]
SYSTEM_KEYS = (
    *["scheduling-policy", "collective-optimization", "endpoint-delay", "local-reduction-delay"],
    *["inter-dimension-scheduling", "intra-dimension-scheduling"],
    *["active-chunks-per-dimension", "preferred-dataset-splits", "local-mem-bw", "peak-perf"],
    *[
        "roofline-enabled",
        "replay-only",
        "model-shared-bus",
        "L",
        "o",
        "g",
        "G",
        "per-node-custom-implementation",
    ],
    *(f"{kind}-implementation" for kind in COLLECTIVES),
    *(f"{kind}-implementation-custom" for kind in COLLECTIVES),
)
SYSTEM_IGNORED = [
    "boost-mode",
    "injection-policy",
    "injection-scale",
    "comm-scale",
    "compute-scale",
    "packet-routing",
]
# They change no tick, but what is said of a run.
LOG_KEYS = ("trace-enabled", "track-local-mem", "local-mem-trace-filename")
MEMORY_KEYS = ("memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node")
# Their values, with the names that version 1.0 also knows; the first is what version 2 always does.
INTER_DIMENSION = {
    "ascending": "ascending",
    "baseline": "ascending",
    "roundRobin": "roundRobin",
    "onlineGreedy": "onlineGreedy",
    "offlineGreedy": "offlineGreedy",
    "themis": "offlineGreedy",
    "offlineGreedyFlex": "offlineGreedyFlex",
    "themisFlex": "offlineGreedyFlex",
}
INTRA_DIMENSION = {
    "FIFO": "FIFO",
    "RG": "RG",
    "smallestFirst": "smallestFirst",
    "SCF": "smallestFirst",
    "lessRemainingPhaseFirst": "lessRemainingPhaseFirst",
}
