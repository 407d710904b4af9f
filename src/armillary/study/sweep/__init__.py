"""Sweeps: many studies that differ in some keys, what each of them came to, and which is best."""

from armillary.study.sweep.evaluate import Evaluator, evaluate_study
from armillary.study.sweep.load import load_sweep
from armillary.study.sweep.point import Point, Row
from armillary.study.sweep.sweep import Sweep

__all__ = ["Evaluator", "Point", "Row", "Sweep", "evaluate_study", "load_sweep"]
