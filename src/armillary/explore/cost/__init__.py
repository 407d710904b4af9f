"""What a machine costs to buy and to run, what a step of work costs, and how to spend a budget of bandwidth."""

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
