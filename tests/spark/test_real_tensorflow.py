"""`make_tf_dataset` with TensorFlow itself: elements, epochs, parts of ranks, and a step of Keras."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs
from fastshard.spark import TransformSpec, make_spark_converter

pytestmark = pytest.mark.tensorflow

ROWS = 40


@pytest.fixture(scope="module")
def tf() -> Any:
    import tensorflow

    return tensorflow


@pytest.fixture
def converter(tmp_path: Path) -> Any:
    ids = np.arange(ROWS)
    table = pa.table(
        {
            "id": ids,
            "x": pa.FixedSizeListArray.from_arrays(np.repeat(ids, 4).astype(np.float32), 4),
            "y": (ids % 2).astype(np.float32),
            "text": [f"row {i}" for i in ids],
            "odd name": ids % 2 == 1,
        }
    )
    fs.write(table, tmp_path / "data")
    return make_spark_converter(str(tmp_path / "data"))


def test_elements_are_named_tuples_of_tensors(tf: Any, converter: Any) -> None:
    with converter.make_tf_dataset(batch_size=16, num_epochs=1) as dataset:
        spec = dataset.element_spec
        assert (spec.id.dtype, spec.x.shape.as_list()) == (tf.int64, [None, 4])
        assert (spec.text.dtype, spec.odd_name.dtype) == (tf.string, tf.bool)
        batches = list(dataset)
    assert [len(batch.id) for batch in batches] == [16, 16, 8]
    assert sorted(int(i) for batch in batches for i in batch.id) == list(range(ROWS))
    for batch in batches:
        ids = batch.id.numpy()
        assert batch.x.numpy().tolist() == [[float(i)] * 4 for i in ids]
        assert batch.text.numpy().tolist() == [f"row {i}".encode() for i in ids]
        assert batch.odd_name.numpy().tolist() == (ids % 2 == 1).tolist()


def test_epochs_have_no_end_unless_counted(tf: Any, converter: Any) -> None:
    with converter.make_tf_dataset(batch_size=20) as dataset:
        epochs = [
            [int(i) for b in pair for i in b.id] for pair in zip(*[islice(iter(dataset), 6)] * 2, strict=True)
        ]
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 3
    assert epochs[0] != epochs[1]
    with converter.make_tf_dataset(batch_size=20, num_epochs=2, prefetch=1) as dataset:
        assert sum(1 for _ in dataset) == 4


def test_parts_of_ranks(tf: Any, converter: Any) -> None:
    parts = []
    for rank in range(3):
        with converter.make_tf_dataset(
            batch_size=8, num_epochs=1, cur_shard=rank, shard_count=3, shuffle_row_groups=False
        ) as dataset:
            parts.append([int(i) for batch in dataset for i in batch.id])
    assert {len(part) for part in parts} == {14}  # equally many steps
    assert set().union(*parts) == set(range(ROWS))


def test_transform_spec(tf: Any, converter: Any) -> None:
    def double(frame: Any) -> Any:
        frame["twice"] = frame["id"] * 2
        return frame

    spec = TransformSpec(double, removed_fields=["text", "x"])
    with converter.make_tf_dataset(batch_size=ROWS, num_epochs=1, transform_spec=spec) as dataset:
        (batch,) = list(dataset)
    assert set(batch._fields) == {"id", "y", "odd_name", "twice"}
    assert (batch.twice.numpy() == 2 * batch.id.numpy()).all()


def test_keras_trains_on_it(tf: Any, converter: Any) -> None:
    tf.random.set_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1, activation="sigmoid")])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss="binary_crossentropy")
    with converter.make_tf_dataset(batch_size=8, num_epochs=None) as dataset:
        history = model.fit(
            dataset.map(lambda row: (row.x, row.y)), steps_per_epoch=5, epochs=2, shuffle=False, verbose=0
        )
    assert len(history.history["loss"]) == 2
    assert np.isfinite(history.history["loss"]).all()
