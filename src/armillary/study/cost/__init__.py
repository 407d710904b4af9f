"""What a machine costs to buy and to run, what a step of work costs, and how to spend a budget of bandwidth."""

from armillary.study.cost.energy import Energy, energy
from armillary.study.cost.measures import measures_of
from armillary.study.cost.presets import cost_preset_names, load_costs
from armillary.study.cost.price import Price, price
from armillary.study.cost.schema import Costs
from armillary.study.cost.use import Use, use_of

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
