"""The Java that Spark would start with, and its version. Spark's own scripts find it in the same way."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from feed_assets.core.errors import SparkUnavailable

OLDEST = 17
"""The oldest Java version that Spark supports."""

_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
_SECONDS_TO_ANSWER = 30
_DO = (
    f"Install a Java {OLDEST} runtime (`apt install openjdk-{OLDEST}-jre-headless`, `brew install openjdk@{OLDEST}`) "
    "or set JAVA_HOME; or name a Connect server in FEED_ASSETS_SPARK_REMOTE, which has its own Java."
)


def java() -> str:
    """Return the Java that Spark starts with, and its version. Raise SparkUnavailable if Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if path is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer, but no java was found {where}. {_DO}")
    version = _version(path)
    if version < OLDEST:
        raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer, but {path} is Java {version}. {_DO}")
    return f"Java {version} ({path})"


@cache
def _version(path: str) -> int:
    """Return the version of a `java`.

    Errors are not cached, because the machine may only have been too busy to answer.
    """
    match = _VERSION.search(_version_text(path))
    if match is None:
        raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer, but {path} does not print its version. {_DO}")
    return int(match[1])


def _version_text(path: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            [path, "-version"], capture_output=True, text=True, timeout=_SECONDS_TO_ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout
