"""Sweeps: many studies that differ in some keys, their results, and which is best.

A sweep is a tree of values. A document is copied along changed keys only, so a million points cost nothing
until they are used, and counts of subtrees give their number, even with conditions. A constraint is checked
as soon as everything it names is known: before the study is read, before it is simulated, or afterwards.

Screening needs only the peak of memory. What a task adds to the microbatches in flight is the same
whenever it runs, so one number per kind of task and chunk is enough, and after 6 × pp microbatches every
schedule but gpipe repeats; the slow reference is the footprint over time. Neighbouring points that differ
only in the machine share their trace.
"""

from armillary.explore.sweep.evaluate import Evaluator, evaluate_study
from armillary.explore.sweep.load import load_sweep
from armillary.explore.sweep.point import Point, Row
from armillary.explore.sweep.sweep import Sweep

__all__ = ["Evaluator", "Point", "Row", "Sweep", "evaluate_study", "load_sweep"]
