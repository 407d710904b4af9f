"""Lets tests of this folder import the machine that is known."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
