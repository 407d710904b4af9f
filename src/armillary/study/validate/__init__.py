"""Predictions beside measurements of real machines."""

from armillary.study.validate.run import validate

__all__ = ["validate"]
