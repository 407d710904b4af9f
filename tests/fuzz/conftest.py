"""Lets the tests here import the harness beside them, as `run.py` does when started as a script."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
