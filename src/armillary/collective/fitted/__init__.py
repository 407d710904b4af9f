"""Times of collectives and messages as measured: constants of NCCL's protocols, fitted to logs of nccl-tests.

NCCL's choice of algorithm (ring, tree, the reducing switch) and protocol (LL, LL128, Simple) says what runs (`tuning`);
a few constants of a device, shared by all operations and numbers of members, say how long that takes (`mechanism`).
A device that nobody measured is derived from a sibling by link bandwidth and clock (`derive`). A fit also tells how far
measured times were from predictions that had not seen them (`CollectiveFit.deviation`). A file may state regimes of
latency + bytes ÷ bandwidth instead (`regimes`, `between`), where a library is not like NCCL.
"""

from armillary.collective.fitted.model import CollectiveFit, CollectiveTime
from armillary.collective.fitted.read import fit_names, load_fit

__all__ = ["CollectiveFit", "CollectiveTime", "fit_names", "load_fit"]
