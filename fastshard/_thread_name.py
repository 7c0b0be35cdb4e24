"""Names of Python's threads as the system shows them (`top -H`): Python itself tells it from 3.14 on."""

from __future__ import annotations

import threading
from contextlib import suppress

__all__ = ["show_thread_name"]

_MOST = 15  # characters that Linux keeps


def show_thread_name() -> None:
    """Tells the system the name of the thread that calls this, where it can be told."""
    thread = threading.current_thread()
    with suppress(OSError), open(f"/proc/self/task/{thread.native_id}/comm", "w") as file:
        file.write(thread.name[:_MOST])
