"""What a machine costs to buy and to run, what a step of work costs, and how to spend a budget of bandwidth.

A timeline is reduced to a `Use` (operations, bytes by dimension, busy time) once per class of ranks; prices
and energies are multiplied with it, and what a file does not say is named and never zero. An allocation of
bandwidth is convex in 1/bandwidth: tangents of the budget make it a linear program whose value is a bound.
Its volumes come from lowering with one dimension slow, so they count links that a sub-group leaves idle.
"""

from armillary.explore.cost.energy import Energy, energy
from armillary.explore.cost.measures import measures_of
from armillary.explore.cost.presets import cost_preset_names
from armillary.explore.cost.price import Price, price
from armillary.explore.cost.schema import Costs, load_costs
from armillary.explore.cost.use import Use, use_of

__all__ = [
    "Costs",
    "Energy",
    "Price",
    "Use",
    "cost_preset_names",
    "energy",
    "load_costs",
    "measures_of",
    "price",
    "use_of",
]
