"""The size of the heap of a Spark on this machine, if the user does not set it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import psutil

HEAP = "spark.driver.memory"
_SHARE = 4
"""The heap is the machine's memory divided by this number, which is also the JVM's default.

Python and other runs need the rest.
"""

_LEAST_BYTES, _MOST_BYTES = 1 << 30, 16 << 30
_CGROUP = Path("/sys/fs/cgroup/memory.max")
"""The file with a container's memory limit.

It must be read, because inside a container the system reports the memory of the whole machine.
"""


def default_heap() -> dict[str, str]:
    """Return the configuration of a heap that fits this machine.

    Return an empty configuration if `SPARK_DRIVER_MEMORY` or `spark-defaults.conf` sets a heap.
    """
    return {} if os.environ.get("SPARK_DRIVER_MEMORY") or _is_in_defaults() else {HEAP: f"{_bytes() >> 20}m"}


def in_words(values: Mapping[str, str]) -> str:
    """Return a text with the heap of a configuration and the setting that changes it."""
    size = values.get(HEAP) or os.environ.get("SPARK_DRIVER_MEMORY") or "1g"
    return f"a heap of {size} ({HEAP} in FEED_ASSETS_SPARK_CONF sets another)"


def _is_in_defaults() -> bool:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    path = Path(folder, "spark-defaults.conf") if folder else None
    lines = path.read_text(errors="replace").splitlines() if path and path.exists() else []
    return any(re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] == HEAP for line in lines)


def _bytes() -> int:
    return min(max(_memory() // _SHARE, _LEAST_BYTES), _MOST_BYTES)


def _memory() -> int:
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
    total = psutil.virtual_memory().total
    return min(total, int(limit)) if limit.isdecimal() else total
