"""Fetch what comes from Maven Central (jars of Spark, test servers) with the Ivy jar that PySpark ships.

    python scripts/fetch_servers.py [s3a] [kafka] [apicurio] [jdbc]      # all of them by default

A group that is there and whole is left alone; anything else is fetched again, so a killed run is repaired by the next.
"""

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

IVY_XML = Path(__file__).with_name("ivy.xml")
CACHE = Path(__file__).parents[1] / ".cache"
GROUPS = {"s3a": "jars/s3a", "kafka": "servers/kafka", "apicurio": "servers/apicurio", "jdbc": "jars/jdbc"}
PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


class FetchFailed(Exception):
    """Ivy could not retrieve a group; the message holds its last lines."""


def ivy_jar() -> Path:
    """Return the Ivy jar among PySpark's own."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    jars = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not jars:
        raise FetchFailed(f"no Ivy jar in {folder or 'pyspark (not installed)'}: run `uv sync` first.")
    return jars[-1]


def java() -> str:
    """Return the `java` that Spark would take."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def retrieve(group: str, target: Path, cache: Path, lock: int) -> None:
    """Resolve one configuration of ivy.xml with Ivy, and copy its files, checked by their sums, into `target`."""
    target.mkdir(parents=True)
    where = ["-ivy", str(IVY_XML), "-cache", str(cache / "ivy"), "-confs", group]
    command = [java(), "-jar", str(ivy_jar()), *where, "-retrieve", f"{target}/{PATTERN}"]
    done = subprocess.run(  # noqa: S603
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, pass_fds=[lock]
    )
    if done.returncode or not any(target.iterdir()):
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise FetchFailed(f"could not fetch {group} from Maven Central (Ivy's exit code {done.returncode}):\n{tail}")


def unpack(folder: Path) -> None:
    """Replace each tar.gz by its content."""
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Missing before Python 3.11.4.
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as content:
            content.extractall(folder, **options)  # noqa: S202 - from Maven Central, its sum is checked
        archive.unlink()


def inventory(folder: Path) -> dict[str, int]:
    """Return every file under a folder with its size."""
    return {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def receipt(folder: Path) -> Path:
    """Return the path of the record of a group's files. It is beside the folder because `folder/*` is a class path."""
    return folder.with_name(f".{folder.name}.json")


def expected(folder: Path) -> str:
    """Return the text of the receipt for a complete folder."""
    digest = sha256(IVY_XML.read_bytes()).hexdigest()
    return json.dumps({"ivy.xml": digest, "files": inventory(folder)}, indent=0, sort_keys=True)


def is_whole(folder: Path) -> bool:
    """Return True if the folder holds exactly the files that were fetched for this ivy.xml."""
    return folder.is_dir() and receipt(folder).is_file() and receipt(folder).read_text() == expected(folder)


def replace(folder: Path, by: Path) -> None:
    """Put a complete folder in place. The receipt is written last: if killed before it, the next run fetches again."""
    receipt(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    by.rename(folder)
    partial = receipt(folder).with_suffix(".partial")
    partial.write_text(expected(folder))
    partial.rename(receipt(folder))


def fetch(group: str, cache: Path, lock: int) -> None:
    """Fetch one group unless it is complete."""
    folder, partial = cache / GROUPS[group], cache / f"{group}.partial"
    if is_whole(folder):
        return
    print(f"fetching {group} from Maven Central (once)...", flush=True)
    shutil.rmtree(partial, ignore_errors=True)
    retrieve(group, partial, cache, lock)
    unpack(partial)
    replace(folder, partial)


@contextmanager
def alone(cache: Path) -> Iterator[int]:
    """Let one process at a time fetch. Ivy holds the lock too, as it may outlive us when we are killed."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"any of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where to keep what is fetched")
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.groups) - set(GROUPS)):
        parser.error(f"unknown group {unknown[0]!r}: expected any of {', '.join(GROUPS)}")
    return asked


def main(arguments: list[str]) -> int:
    """Fetch the named groups, in order; return 1 if one cannot be fetched."""
    asked = parse(arguments)
    try:
        with alone(asked.cache) as lock:
            for group in asked.groups or GROUPS:
                fetch(group, asked.cache.resolve(), lock)
    except (FetchFailed, OSError) as failure:
        print(f"fetch_servers: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
