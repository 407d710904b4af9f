"""Predictions beside measurements of real machines."""

from armillary.evidence.validate.run import validate

__all__ = ["validate"]
