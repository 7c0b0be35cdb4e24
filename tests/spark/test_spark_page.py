"""The examples of docs/spark.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fastshard as fs

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("spark4")
def test_the_examples_run(spark: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    images = spark.range(0, 20, 1, 2).selectExpr(
        "cast(repeat('a', 3 * 224 * 224) as binary) AS image",
        "cast(id % 4 as int) AS label",
        "if(id < 15, 'train', 'val') AS split",
    )
    given = {
        "spark": spark,
        "df": images.select("label"),
        "rank": 0,
        "world": 2,
        "images": images,
    }
    stands_for = {
        'spark.table("ml.images")': "images",
        "/Volumes/ml/data/train": str(tmp_path / "train"),
        "file:///dbfs/tmp/cache": (tmp_path / "cache").as_uri(),
    }
    try:
        for number, block in enumerate(blocks):
            for text, other in stands_for.items():
                block = block.replace(text, other)
            exec(compile(block, f"spark.md, example {number}", "exec"), given)
            if number == 0:
                with fs.open(tmp_path / "train") as reader:
                    assert len(reader) == 15
                    assert reader[0]["image"].shape == (3, 224, 224)
    finally:
        spark.conf.unset("fastshard.spark.converter.parentCacheDirUrl")
    assert len(fs.open(tmp_path / "train")) == 40
    assert not list((tmp_path / "cache").iterdir())
