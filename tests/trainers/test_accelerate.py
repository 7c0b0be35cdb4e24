"""Accelerate leaves our loaders whole, and is told what it needs to know of them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import call, results, torchrun, train

HEAD = """
import json, sys
import torch
from accelerate import Accelerator
import fastshard as fs
import fastshard.torch


def write(value):
    with open(f"rank-{accelerator.process_index}.json", "w") as file:
        json.dump(value, file)


def finish():
    accelerator.wait_for_everyone()
    accelerator.end_training()
"""

LOADERS = """
made = [
    fs.ShardLoader("train", batch_size=4, shuffle=True),
    fastshard.torch.DataLoader(fs.ShardDataset("train", shuffle=True), batch_size=4),
    fastshard.torch.DataLoader(fs.ShardDataset("train", shuffle=True), batch_size=4, num_workers=2),
    fastshard.torch.DataLoader(
        fs.ShardDataset("train", shuffle=True), batch_size=4, collate_fn=torch.utils.data.default_collate
    ),
]
"""


def test_every_id_comes_once_and_metrics_have_no_repeats(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(29)
    main = """
accelerator = Accelerator(gradient_accumulation_steps=3)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, *loaders = accelerator.prepare(model, optimizer, *made)
assert all(loader is its for loader, its in zip(loaders, made))
epochs = []
for loader in (*loaders, loaders[0], loaders[2]):
    ids, gathered, synced = [], [], []
    for batch in loader:
        assert batch["x"].device.type == accelerator.device.type
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
            accelerator.backward(loss)
            synced.append(accelerator.sync_gradients)
            optimizer.step()
            optimizer.zero_grad()
        ids += batch["id"].tolist()
        gathered += accelerator.gather_for_metrics(batch["id"]).tolist()
    epochs.append([ids, gathered, synced])
assert not accelerator.gradient_state.in_dataloader
write(epochs)
finish()
"""
    train(script(HEAD + LOADERS + main), 2)
    orders = []
    for first, second in zip(*results(tmp_path), strict=True):
        # 29 samples, 8 a step: three whole steps, then 3 samples and 2 with a repeat.
        assert Counter(Counter(first[0] + second[0]).values()) == {1: 28, 2: 1}
        assert sorted(first[1]) == list(range(29))
        assert first[1] == second[1]
        assert first[2] == second[2] == [False, False, True, True]
        orders.append(first[0])
    assert orders[0] == orders[1] == orders[2] == orders[3] != orders[4] == orders[5]


def test_three_processes_gather_each_id_once(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(31)  # 9 a step: the last step has 4 samples, so that two of three processes get a repeat
    main = """
accelerator = Accelerator()
found = []
for loader in (
    fs.ShardLoader("train", batch_size=3, shuffle=True),
    fastshard.torch.DataLoader(fs.ShardDataset("train", shuffle=True), batch_size=3),
    fastshard.torch.DataLoader(fs.ShardDataset("train", shuffle=True), batch_size=3, num_workers=2),
):
    loader = accelerator.prepare(loader)
    found.append([accelerator.gather_for_metrics(batch["id"]).tolist() for batch in loader])
write(found)
finish()
"""
    train(script(HEAD + main), 3)
    for rank in results(tmp_path):
        for batches in rank:
            assert sorted(id for batch in batches for id in batch) == list(range(31))


def test_batches_are_on_the_accelerators_device(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(8)
    main = """
from accelerate.state import PartialState
accelerator = Accelerator()
PartialState._shared_state["device"] = torch.device("meta")
said = []
for loader in (
    fs.ShardLoader("train", batch_size=4),
    fs.ShardLoader("train", batch_size=4, device="cpu"),
    fastshard.torch.DataLoader(fs.ShardDataset("train"), batch_size=4),
    fastshard.torch.DataLoader(
        fs.ShardDataset("train", transform=lambda batch: (batch["x"], [batch["y"]]), batched=True, batch_size=4)
    ),
):
    batch = next(iter(loader))
    values = (batch[0], batch[1][0]) if isinstance(batch, tuple) else batch.values()
    said.append([value.device.type for value in values])
write(said)
"""
    done = call([sys.executable, str(script(HEAD + main))], tmp_path)
    assert done.returncode == 0, done.stdout
    assert results(tmp_path) == [[["meta"] * 3, ["cpu"] * 3, ["meta"] * 3, ["meta"] * 2]]


def test_loader_within_a_loader(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(20)
    data(6, "val")
    main = """
accelerator = Accelerator()
train = accelerator.prepare(fs.ShardLoader("train", batch_size=5))
val = fs.ShardLoader("val", batch_size=3)
ends = []
for step, batch in enumerate(train):
    if step == 1:
        for _ in val:
            ends.append(accelerator.gradient_state.end_of_dataloader)
    ends.append(accelerator.gradient_state.end_of_dataloader)
    if step == 2:
        break
ends.append(accelerator.gradient_state.in_dataloader)
write(ends)
"""
    done = call([sys.executable, str(script(HEAD + main))], tmp_path)
    assert done.returncode == 0, done.stdout
    assert results(tmp_path) == [[False, False, True, False, False, False]]


@pytest.mark.slow
def test_state_is_saved_with_accelerates(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(40)
    main = """
accelerator = Accelerator()
loader = accelerator.prepare(
    fastshard.torch.DataLoader(fs.ShardDataset("train", shuffle=True), batch_size=4, num_workers=2))
other = fs.ShardLoader("train", batch_size=4, shuffle=True)
accelerator.register_for_checkpointing(other)
if sys.argv[1] == "resume":
    accelerator.load_state("checkpoint")
found = [[], []]
for step, (batch, its) in enumerate(zip(loader, other)):
    found[0] += batch["id"].tolist()
    found[1] += its["id"].tolist()
    if sys.argv[1] == "begin" and step == 1:
        accelerator.save_state("checkpoint")
        break
write(found)
finish()
"""
    path = script(HEAD + main)
    train(path, 2, "begin")
    begun = results(tmp_path)
    train(path, 2, "resume")
    resumed = results(tmp_path)
    for which in range(2):
        ids = [id for rank in (*begun, *resumed) for id in rank[which]]
        assert sorted(ids) == list(range(40))
        assert len(begun[0][which]) == 8


DIVIDED_TWICE = """
from torch.utils.data import DataLoader
from accelerate.utils import DataLoaderConfiguration


def loaders():
    return [
        DataLoader(fs.ShardDataset("train", batch_size=4), batch_size=4),
        DataLoader(fs.ShardDataset("train", batch_size=4), batch_size=4, num_workers=2),
        DataLoader(
            fs.ShardDataset("train", batch_size=4), batch_size=4, num_workers=1, multiprocessing_context="spawn"
        ),
    ]
"""


def test_dividing_twice_is_an_error(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(20)
    main = """
if __name__ == "__main__":
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
    said = []
    for loader in accelerator.prepare(*loaders()):
        try:
            list(loader)
        except ValueError as error:
            said.append(str(error))
    write(said)
    finish()
"""
    train(script(HEAD + DIVIDED_TWICE + main), 2)
    for said in results(tmp_path):
        assert len(said) == 3
        for message in said:
            for way_out in ("fastshard.torch.DataLoader", "fastshard.ShardLoader", "rank=0, world_size=1"):
                assert way_out in message


def test_dispatching_what_is_divided_is_an_error(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(20)
    main = """
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
list(accelerator.prepare(loaders()[0]))
"""
    done = call([*torchrun(2), str(script(HEAD + DIVIDED_TWICE + main))], tmp_path)
    assert done.returncode != 0
    assert "fastshard.ShardLoader, which Accelerator.prepare leaves whole" in done.stdout, done.stdout


def test_ways_out_of_dividing_twice(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(24)
    main = """
from torch.utils.data import DataLoader
accelerator = Accelerator()
mine = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
loaders = (
    DataLoader(fs.ShardDataset("train", batch_size=4, **mine), batch_size=4),
    accelerator.prepare(DataLoader(fs.ShardDataset("train", rank=0, world_size=1), batch_size=4)),
    accelerator.prepare(DataLoader(fs.open("train"), batch_size=4, shuffle=True)),
)
write([[id for batch in loader for id in batch["id"].tolist()] for loader in loaders])
finish()
"""
    train(script(HEAD + main), 2)
    first, second = results(tmp_path)
    for mine, its in zip(first, second, strict=True):
        assert sorted(mine + its) == list(range(24))


def test_skipping_batches_of_our_loader_is_an_error(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    data(20)
    main = """
from accelerate import skip_first_batches
accelerator = Accelerator()
loader = accelerator.prepare(fastshard.torch.DataLoader(fs.ShardDataset("train"), batch_size=4))
list(skip_first_batches(loader, 2))
"""
    done = call([sys.executable, str(script(HEAD + main))], tmp_path)
    assert done.returncode != 0
    assert "ignore_data_skip=True" in done.stdout, done.stdout


def test_data_sets_without_accelerate_are_as_ever(data: Callable[..., str]) -> None:
    import fastshard as fs

    assert len(list(fs.ShardDataset(data(10)))) == 10


def test_the_trainer_of_transformers_takes_a_reader(
    tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]
) -> None:
    """`Trainer(train_dataset=fs.open(path))` on two processes: every id once in each epoch."""
    data(32)
    main = """
import json
import torch
from transformers import Trainer, TrainingArguments
import fastshard as fs


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen = []

    def forward(self, id, x, y):
        self.seen += id.tolist()
        return {"loss": torch.nn.functional.mse_loss(self.layer(x)[:, 0], y)}


args = TrainingArguments(
    "out", num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True,
    save_strategy="no")
model = Model()
trainer = Trainer(model=model, args=args, train_dataset=fs.open("train"))
trainer.train()
with open(f"rank-{args.process_index}.json", "w") as file:
    json.dump(model.seen, file)
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()
"""
    train(script(main), 2)
    first, second = results(tmp_path)
    for epoch in range(2):
        part = slice(16 * epoch, 16 * epoch + 16)
        assert sorted(first[part] + second[part]) == list(range(32))
