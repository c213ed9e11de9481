"""Batches of messages that no client would write, sent to a broker byte by byte."""

import gzip
import socket
from struct import pack, unpack_from
from time import time

GZIP = 1
"""The attribute of a batch that is packed by gzip."""


def with_empty_member(value: bytes) -> bytes:
    """Return a batch of one message in two gzip members. The broker reads both, and librdkafka only the empty one."""
    return _batch(gzip.compress(b"") + gzip.compress(_record(value)), GZIP)


def with_header_that_is_no_text(value: bytes) -> bytes:
    """Return a batch of one message with a header whose name is not UTF-8. The broker takes any name."""
    return _batch(_record(value, _number(1) + _number(1) + b"\xff" + _number(1) + b"x"), 0)


def with_impossible_key() -> bytes:
    """Return a batch whose message has a key of length -5. librdkafka neither delivers it nor reports an error."""
    record = bytes(3) + _number(-5) + _number(1) + b"v" + bytes(1)
    return _batch(gzip.compress(_number(len(record)) + record), GZIP)


def send(server: str, topic: str, partition: int, batch: bytes) -> int:
    """Send a batch to a topic partition, and return the broker's error code; 0 if it took the batch."""
    body = pack(">hhiih", -1, -1, 30_000, 1, len(topic)) + topic.encode()
    body += pack(">iii", 1, partition, len(batch)) + batch
    request = pack(">hhih", 0, 7, 1, 1) + b"x" + body
    host, port = server.split(":")
    with socket.create_connection((host, int(port)), 30) as link, link.makefile("rb") as answers:
        link.sendall(pack(">i", len(request)) + request)
        answer = answers.read(*unpack_from(">i", answers.read(4)))
    return unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]


def _batch(records: bytes, attributes: int) -> bytes:
    now = int(time() * 1000)
    body = pack(">hiqqqhii", attributes, 0, now, now, -1, -1, -1, 1) + records
    return pack(">qiibI", 0, 9 + len(body), -1, 2, _crc32c(body)) + body


def _crc32c(data: bytes) -> int:
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def _record(value: bytes, headers: bytes = bytes(1)) -> bytes:
    content = bytes(3) + _number(-1) + _number(len(value)) + value + headers
    return _number(len(content)) + content


def _number(value: int) -> bytes:
    """Return a small number as Kafka's variable-length integer."""
    zigzag = 2 * value if value >= 0 else -2 * value - 1
    assert zigzag < 1 << 7
    return bytes([zigzag])
