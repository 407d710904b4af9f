"""Collectives made for one network, where the built-in algorithms are made for none.

An all-gather is grown on a graph. Whenever a link out of an NPU becomes free, it takes a chunk that the other
end lacks, or that the part of the machine behind the other end lacks if faster links join that part. Time is
expanded by events, so links may differ. A reduce-scatter is an all-gather on the reversed graph, backwards in
time. Switches hold nothing: NPUs behind a switch have links to each other that share ports.

Where all NPUs are alike, one tree is enough: the tree of one root in which no class of links carries two
sends at once. Translations of it serve all other roots and never meet, so 4,096 NPUs cost what one root
costs. `engine.messages.plan` runs the schedule on the transports that workloads use, in whole ticks, so its
times compare with those of built-in algorithms. Tests move real numbers along each schedule, and a slow
reference with sets and lists finds the same sends.
"""

from __future__ import annotations

from armillary.collective.synthesis.bound import lower_bound
from armillary.collective.synthesis.check import check_schedule
from armillary.collective.synthesis.synthesize import OPERATIONS, SynthesizedSchedule, synthesize

__all__ = ["OPERATIONS", "SynthesizedSchedule", "check_schedule", "lower_bound", "synthesize"]
