"""The Java that Spark would start on, found as Spark's own scripts find it, and its version."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from feed_assets.core.errors import SparkUnavailable

OLDEST = 17
"""The oldest Java that Spark runs on."""

_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
_SECONDS_TO_ANSWER = 30
_DO = (
    f"Install a Java {OLDEST} runtime (`apt install openjdk-{OLDEST}-jre-headless`, `brew install openjdk@{OLDEST}`) "
    "or set JAVA_HOME; or name a Connect server in FEED_ASSETS_SPARK_REMOTE, which brings its own."
)


def java() -> str:
    """Return the Java that Spark starts on, with its version. Raise SparkUnavailable if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if path is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer, and there is no java {where}. {_DO}")
    version = _version(path)
    if version < OLDEST:
        raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer, and {path} is Java {version}. {_DO}")
    return f"Java {version} ({path})"


@cache
def _version(path: str) -> int:
    """Return the version of a java. Errors are not cached: a machine that was too busy is tried again."""
    match = _VERSION.search(_version_text(path))
    if match is None:
        raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer, and {path} does not say its version. {_DO}")
    return int(match[1])


def _version_text(path: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            [path, "-version"], capture_output=True, text=True, timeout=_SECONDS_TO_ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout
