"""The examples of docs/trainers.md run, on what the page takes as given."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from journals import make_data
from launching import call, ended_well

PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"

COMMON = """
import sys
sys.path.insert(0, {examples!r})
import torch
from common import loss_of, make_model
import fastshard as fs
import fastshard.torch
"""

# By section: what comes before its example, what stands for what in it, and what comes after.
GIVEN: dict[str, tuple[str, dict[str, str], str]] = {
    "torchrun and DDP": (
        """
import os
import torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(make_model())
""",
        {"...": "loss_of(model, batch).backward()"},
        """
assert torch.load("checkpoint.pt")["data"] == loader.state_dict()
dist.destroy_process_group()
""",
    ),
    "TorchDistributor": (
        """
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1").config(
    "spark.driver.bindAddress", "127.0.0.1").config("spark.driver.memory", "1g").config(
    "spark.ui.enabled", "false").getOrCreate()

def train(dataset):
    import torch.distributed as dist
    import fastshard.torch
    dist.init_process_group("gloo")
    loader = fastshard.torch.DataLoader(dataset, batch_size=6)
    with open(FOLDER + f"/ids-{dist.get_rank()}", "w") as file:
        print(*[id for batch in loader for id in batch["id"].tolist()], file=file)
    dist.barrier()
    dist.destroy_process_group()

import os
FOLDER = os.getcwd()
""",
        {
            '"/Volumes/ml/data/train"': 'FOLDER + "/train"',
            "num_processes=8": "use_gpu=False, num_processes=2",
        },
        """
found = [id for rank in range(2) for id in map(int, open(f"ids-{rank}").read().split())]
assert sorted(found) == list(range(120))
spark.stop()
""",
    ),
    "DeepSpeed": (
        """
import os
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
import deepspeed
deepspeed.init_distributed("gloo")
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
micro_batch, folder = 12, "deepspeed"
config = {"train_micro_batch_size_per_gpu": 12, "train_batch_size": 12}
""",
        {"...": "loss_of(engine, batch)"},
        """
found, client = engine.load_checkpoint(folder)
assert client["data"] == loader.state_dict()
""",
    ),
    "Ray": (
        """
import ray, ray.data, ray.train.torch
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=256 << 20, log_to_driver=False)
ray.data.from_arrow(fs.open("train").to_arrow()).write_parquet("raw")
import os
FOLDER = os.getcwd()

def prepare(batch):
    return batch
""",
        {
            '"s3://bucket/raw"': '"raw"',
            '"/mnt/shared/train"': 'FOLDER + "/out"',
            "        ...": (
                "        with open(FOLDER + f'/ids-{ray.train.get_context().get_world_rank()}', 'a') as file:\n"
                "            print(*batch['id'].tolist(), file=file)"
            ),
        },
        """
ray.train.torch.TorchTrainer(
    train,
    scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    run_config=ray.train.RunConfig(storage_path=FOLDER + "/ray"),
).fit()
found = [id for rank in range(2) for id in map(int, open(f"ids-{rank}").read().split())]
assert set(found) == set(range(120)) and len(found) == 120
ray.shutdown()
""",
    ),
    "Lightning": (
        """
import functools
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.seen = make_model(), []

    def training_step(self, batch, index):
        self.seen += batch["id"].tolist()
        return loss_of(self.model, batch)

    def validation_step(self, batch, index):
        return loss_of(self.model, batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

def Trainer(strategy, devices):
    epochs.append(1)
    return lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=len(epochs), logger=False, enable_progress_bar=False,
        callbacks=[ModelCheckpoint(dirpath=".", save_last=True)])

epochs, model = [], Model()
""",
        {"batch_size=256": "batch_size=16", "data/": "train/"},
        "assert len(model.seen) == 216 and len(set(model.seen)) == 108",
    ),
    "Accelerate": (
        """
from accelerate import Accelerator
accelerator = Accelerator()
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
""",
        {},
        """
assert type(loader) is fs.ShardLoader
assert sum(len(batch["id"]) for batch in loader) == 120
""",
    ),
    "transformers": (
        """
import torch
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.seen = make_model(), []

    def forward(self, id, x, y):
        self.seen += id.tolist()
        return {"loss": torch.nn.functional.mse_loss(self.model(x)[:, 0], y)}
""",
        {},
        """
model = Model()
args = TrainingArguments(
    "out", num_train_epochs=1, per_device_train_batch_size=12, use_cpu=True, report_to=[], disable_tqdm=True,
    save_strategy="no")
trainer = ShardTrainer(model=model, args=args, train_dataset=fs.open("train/"))
trainer.dataset = fs.ShardDataset("train/", shuffle=True)
trainer.train()
assert sorted(model.seen) == list(range(120))
assert model.seen == [int(sample["id"]) for sample in fs.ShardDataset("train/", shuffle=True)]
""",
    ),
}
MARKS = {
    "TorchDistributor": [pytest.mark.spark, pytest.mark.slow],
    "DeepSpeed": [pytest.mark.ray],
    "Ray": [pytest.mark.ray],
}


def sections() -> dict[str, str]:
    """The Python of each section that has some."""
    found = {}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
        if blocks:
            found[part.partition("\n")[0]] = "\n".join(blocks)
    return found


@pytest.mark.parametrize("title", [pytest.param(title, marks=MARKS.get(title, [])) for title in GIVEN])
def test_example(title: str, tmp_path: Path) -> None:
    make_data(tmp_path)
    before, replaced, after = GIVEN[title]
    example = sections()[title]
    for old, new in replaced.items():
        assert old in example
        example = example.replace(old, new)
    examples = str(PAGE.parents[1] / "examples" / "trainers")
    script = tmp_path / "script.py"
    script.write_text(COMMON.format(examples=examples) + before + example + after)
    done = call(
        [sys.executable, str(script)],
        tmp_path,
        timeout=280,
        DS_ACCELERATOR="cpu",
        PYSPARK_PYTHON=sys.executable,
    )
    assert ended_well(done), done.stdout[-5000:]


def test_every_example_is_run() -> None:
    assert set(sections()) == set(GIVEN)
