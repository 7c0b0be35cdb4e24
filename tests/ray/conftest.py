"""One small session of Ray for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# Where Ray is not installed, these files cannot be read; `make test-ray` runs where it is.
collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def session() -> Iterator[None]:
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=256 << 20,
        log_to_driver=False,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()
