"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import fastshard

# Child processes find the package where this one does, whatever their working directory is.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(fastshard.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)
