"""The blackboard as an outsider sees it: a folder or a bucket of objects. It imports nothing of the system."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import boto3
from botocore.config import Config


class Store(Protocol):
    """Objects by key."""

    def keys(self, prefix: str) -> list[str]:
        """Return the sorted keys below a prefix."""
        ...

    def get(self, key: str) -> bytes:
        """Return an object."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        ...

    def damage(self, key: str) -> None:
        """Change the last byte of an object, as a bad disk does."""
        ...


def opened(url: str) -> Store:
    """Return the store of a `file://` or `s3://` URL. Keys and endpoint of S3 are in the environment."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Folder(Path(unquote(parts.path)))
    where = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "region_name": "us-east-1"}
    client = boto3.client("s3", **where, config=Config(s3={"addressing_style": "path"}))
    return Bucket(client, parts.netloc, parts.path.strip("/"))


@dataclass(frozen=True)
class Folder:
    """A blackboard on disk."""

    root: Path

    def keys(self, prefix: str) -> list[str]:
        """Return the sorted paths of files below a folder."""
        return sorted(str(Path(at, name).relative_to(self.root)) for at, name in self._files(self.root / prefix))

    def _files(self, folder: Path) -> Iterator[tuple[str, str]]:
        for at, _, names in os.walk(folder):
            yield from ((at, name) for name in names)

    def get(self, key: str) -> bytes:
        """Return the content of a file."""
        return (self.root / key).read_bytes()

    def put(self, key: str, data: bytes) -> None:
        """Write a file, which appears at once."""
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        (half := path.with_name(f"{path.name}#1")).write_bytes(data)
        half.rename(path)

    def damage(self, key: str) -> None:
        """Change the last byte in place: size, inode and time stay."""
        path = self.root / key
        status = path.stat()
        with path.open("r+b") as file:
            file.write(_changed(self.get(key)))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@dataclass(frozen=True)
class Bucket:
    """A blackboard on S3."""

    client: Any
    bucket: str
    root: str

    def keys(self, prefix: str) -> list[str]:
        """Return the sorted keys below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._key(prefix, "/"))
        found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return sorted(key.removeprefix(f"{self.root}/") for key in found)

    def get(self, key: str) -> bytes:
        """Return an object."""
        return self.client.get_object(Bucket=self.bucket, Key=self._key(key))["Body"].read()

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket=self.bucket, Key=self._key(key), Body=data)

    def damage(self, key: str) -> None:
        """Write the object with another last byte."""
        self.put(key, _changed(self.get(key)))

    def _key(self, key: str, end: str = "") -> str:
        return f"{self.root}/{key}{end}"


def _changed(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])
