"""Uses an installed fastshard, without torch, as far as every user does. Argument: a folder to write to."""

import importlib.util
import sys

import fastshard as fs


def main(folder: str) -> None:
    assert importlib.util.find_spec("torch") is None, "this check is of an environment without torch"
    assert importlib.util.find_spec("pyspark_fastshard") is not None, (
        "Spark finds its data source by this name"
    )
    fs.write({"x": [1, 2, 3], "name": ["a", None, "c"]}, folder, compression="zstd")
    with fs.open(folder) as reader:
        assert len(reader) == 3
        assert reader[2]["name"] == "c"
        assert reader.take([2, 0])["x"].tolist() == [3, 1]


if __name__ == "__main__":
    main(sys.argv[1])
