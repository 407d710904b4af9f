"""Times of collectives and messages as measured: regimes fitted to the logs of nccl-tests."""

from armillary.collective.fitted.model import CollectiveFit, CollectiveTime
from armillary.collective.fitted.read import fit_names, load_fit

__all__ = ["CollectiveFit", "CollectiveTime", "fit_names", "load_fit"]
