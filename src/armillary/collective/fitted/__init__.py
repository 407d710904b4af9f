"""Times of collectives and messages as measured: regimes fitted to the logs of nccl-tests.

For each operation and number of members there are regimes of latency + bytes ÷ bandwidth, because NCCL
changes protocols and algorithms with the size. Between nodes the latency grows with log2(nodes) and with ring
steps, and the bytes are those at each NIC. A device that nobody measured is derived from a sibling by link
bandwidth and clock.
"""

from armillary.collective.fitted.model import CollectiveFit, CollectiveTime
from armillary.collective.fitted.read import fit_names, load_fit

__all__ = ["CollectiveFit", "CollectiveTime", "fit_names", "load_fit"]
