"""examples/images.py: JPEG files from Parquet, decoded, augmented, trained on."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "images.py"


def jpeg(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray((pixels * 15).astype(np.uint8)).resize((32, 32)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


@pytest.mark.unsanitized
def test_the_example_learns_and_repeats_itself(tmp_path: Path) -> None:
    digits = load_digits()
    images = [jpeg(pixels) for pixels in digits.images[:600]]
    pq.write_table(pa.table({"image": images, "label": digits.target[:600]}), tmp_path / "images.parquet")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "FASTSHARD_CACHE": str(tmp_path / "cache")}
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), str(tmp_path / "images.parquet"), "--epochs", "3"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        outputs.append([float(loss) for loss in re.findall(r"10 steps, loss ([\d.]+)", done.stdout)])
    first, second = outputs
    assert len(first) == 3
    assert first[-1] < first[0] - 0.1
    assert first == pytest.approx(second, abs=0.02)  # the same pictures, however threads ran
