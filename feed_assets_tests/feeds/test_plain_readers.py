"""A reader without our code, through `os` or boto3, sees the same as we do."""

import os
import random
from datetime import datetime

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.read import latest

MEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
NAMES = ["20191125.060000", "20191125.060001", "20191126.000000", "20191231.235959", "20180231.000000", "20191126.2460"]
FILES = ["a", "part-1.csv", "sub/b", "sub/deep/c", "_metadata", ".hidden", "sub/_SUCCESS", "_temporary/0/x", "é ü"]
MANIFESTS = [None, b"", b"+1", b"-1", b"01", b"1\n", b"1\r\n", b"1\n\n", b" 1", "١".encode(), b"1_0", b"9" * 100]

Plain = tuple[str, dict[str, int]] | None


def layout(seed: int) -> dict[str, bytes]:
    """Return some updates of one partition, about half of them valid, the others wrong in some way."""
    chance = random.Random(seed)  # noqa: S311
    objects: dict[str, bytes] = {}
    for name in chance.sample(NAMES, chance.randint(0, len(NAMES))):
        files = chance.sample(FILES, chance.randint(0, 4))
        objects |= {f"{name}/{file}": b"x" * chance.randint(0, 9) for file in files}
        right = f"{len(files) + chance.choice([0, 0, 0, 1, -1])}{chance.choice(['', '', chr(10)])}".encode()
        manifest = chance.choice([right, right, right, chance.choice(MANIFESTS)])
        objects |= {f"{name}/_SUCCESS": manifest} if manifest is not None else {}
    return objects


def choose(updates: dict[str, dict[str, int]], manifest_of) -> Plain:
    """Choose by the article's rule, written again: newest first; the manifest is the count, as `echo` writes it."""
    for name in sorted(updates, reverse=True):
        try:
            moment = datetime.strptime(name, "%Y%m%d.%H%M%S").strftime("%Y%m%d.%H%M%S")  # noqa: DTZ007
        except ValueError:
            continue
        files = {file: size for file, size in updates[name].items() if file != "_SUCCESS"}
        right = {f"{len(files)}".encode(), f"{len(files)}\n".encode()}
        if moment == name and len(files) < len(updates[name]) and manifest_of(name) in right:
            return name, files
    return None


def read_with_os(folder) -> Plain:
    updates = {name: {} for name in (os.listdir(folder) if folder.exists() else ())}  # noqa: PTH208
    for name, files in updates.items():
        for path in (folder / name).rglob("*"):
            if path.is_file():
                files[path.relative_to(folder / name).as_posix()] = path.stat().st_size
    return choose(updates, lambda name: (folder / name / "_SUCCESS").read_bytes())


def read_with_boto3(client, bucket, prefix) -> Plain:
    updates: dict[str, dict[str, int]] = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
        for item in page.get("Contents", ()):
            name, _, file = item["Key"].removeprefix(f"{prefix}/").partition("/")
            updates.setdefault(name, {}).update({file: item["Size"]} if file else {})
    get = client.get_object
    return choose(updates, lambda name: get(Bucket=bucket, Key=f"{prefix}/{name}/_SUCCESS")["Body"].read())


def ours(board) -> Plain:
    update = latest(board, MEN).update
    return update and (update.id, {file.key.removeprefix(f"{update.path}/"): file.size for file in update.files})


def test_the_layouts_hold_valid_and_invalid_partitions():
    newest = [choose_in_memory(layout(seed)) for seed in range(200)]
    assert 40 < sum(found is None for found in newest) < 160


def choose_in_memory(objects: dict[str, bytes]) -> Plain:
    updates: dict[str, dict[str, int]] = {}
    for key, content in objects.items():
        name, _, file = key.partition("/")
        updates.setdefault(name, {})[file] = len(content)
    return choose(updates, lambda name: objects[f"{name}/_SUCCESS"])


@pytest.mark.parametrize("seed", range(60))
def test_a_reader_with_os_listdir_sees_what_we_see(local_board, tmp_path, seed):
    folder = tmp_path / "black board" / MEN.path
    for key, content in layout(seed).items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(content)
    assert ours(local_board) == read_with_os(folder)


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_with_boto3_sees_what_we_see(s3_board, s3_url, s3_env, seed):
    _, _, bucket, prefix = s3_url.split("/")
    client = s3_env.client()
    for key, content in layout(seed).items():
        client.put_object(Bucket=bucket, Key=f"{prefix}/{MEN.path}/{key}", Body=content)
    assert ours(s3_board) == read_with_boto3(client, bucket, f"{prefix}/{MEN.path}")
