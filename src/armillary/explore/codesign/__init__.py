"""Which machine within a budget of dollars and watts does the most of a mix of training and serving.

Machines are branches of a best-first search. Each has a bound that needs no simulation: peak operations and memory
bandwidth, with a network of no cost (`ideal`). The machine with the best bound is looked at next, one workload after
the other, and given up as soon as what is known of it (simulated times, and bounds of plans and of the rest) cannot
beat the best. The search ends when no bound beats the best, and so proves its answer; ended earlier, it says by how
much another machine may be better.
"""
