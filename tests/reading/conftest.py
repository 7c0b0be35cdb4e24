"""The reading tests use the tables of the writing tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "writing"))  # for arrow_tables
