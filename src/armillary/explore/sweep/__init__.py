"""Sweeps: many studies that differ in some keys, what each of them came to, and which is best."""

from armillary.explore.sweep.evaluate import Evaluator, evaluate_study
from armillary.explore.sweep.load import load_sweep
from armillary.explore.sweep.point import Point, Row
from armillary.explore.sweep.sweep import Sweep

__all__ = ["Evaluator", "Point", "Row", "Sweep", "evaluate_study", "load_sweep"]
