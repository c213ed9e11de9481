"""Manifests written by hand and at random, to be judged by the protocol."""

import random

GOOD = [b"0", b"1", b"2", b"10", b"12", b"0\n", b"2\n", b"12\n"]
"""Contents that are right for this number of files, and wrong for any other. A shell's `echo` adds the newline."""

BAD = {
    "empty": b"",
    "two newlines": b"2\n\n",
    "a newline before": b"\n2",
    "newlines around": b"\n2\n",
    "carriage return": b"2\r\n",
    "carriage return alone": b"2\r",
    "carriage return behind": b"2\n\r",
    "next line": "2\x85".encode(),
    "line separator": "2\u2028".encode(),
    "space and newline": b"2 \n",
    "leading zero and newline": b"02\n",
    "two numbers in lines": b"2\n2",
    "two numbers in ended lines": b"2\n2\n",
    "echo in double quotes": b'"2"\n',
    "PowerShell": b"\xff\xfe2\x00\r\x00\n\x00",
    "NUL and newline": b"2\0\n",
    "19 digits and newline": b"1" * 19 + b"\n",
    "only a newline": b"\n",
    "leading space": b" 2",
    "trailing space": b"2 ",
    "wc -l on a Mac": b"       2\n",
    "echo of cmd.exe": b"2 \r\n",
    "tab": b"\t2",
    "vertical tab": b"2\x0b",
    "form feed": b"2\x0c",
    "no-break space": "\u00a02".encode(),
    "unit separator": b"2\x1f",
    "plus": b"+2",
    "minus": b"-2",
    "minus nothing": b"-0",
    "leading zero": b"02",
    "two zeros": b"00",
    "many zeros": b"0" * 63 + b"2",
    "fraction": b"2.0",
    "a point": b"2.",
    "exponent": b"2e0",
    "hexadecimal": b"0x2",
    "octal": b"0o2",
    "binary": b"0b10",
    "underscore": b"1_0",
    "thousands": b"1,000",
    "true": b"true",
    "a word": b"two",
    "nothing": b"None",
    "not a number": b"NaN",
    "two numbers": b"2 2",
    "quoted": b'"2"',
    "JSON": b'{"count": 2}',
    "a committer's JSON": b'{"name":"org.apache.hadoop.fs.s3a.commit.files.SuccessData/1","success":true}',
    "byte order mark": b"\xef\xbb\xbf2",
    "UTF-16": "2".encode("utf-16"),
    "UTF-16 without mark": "2".encode("utf-16-le"),
    "UTF-32": "2".encode("utf-32"),
    "Arabic digit": "٢".encode(),
    "Devanagari digit": "२".encode(),
    "full width digit": "２".encode(),
    "superscript": "²".encode(),
    "Roman numeral": "Ⅱ".encode(),
    "broken UTF-8": b"\xff\xfe2",
    "NUL": b"\0",
    "NUL after": b"2\0",
    "NUL before": b"\x002",
    "gzip": b"\x1f\x8b\x08\x00",
    "one more": b"3",
    "one less": b"1",
    "19 digits": b"1" * 19,
    "64 digits": b"2" * 64,
    "65 digits": b"2" * 65,
    "right and then 10 MB": b"2" + b" " * 10_000_000,
    "10 MB": b"2" * 10_000_000,
}
"""Contents that must leave an update of two files invalid."""


def fuzzed(seed: int) -> bytes:
    """Return bytes that are often close to a number."""
    chance = random.Random(seed)  # noqa: S311
    content = bytearray(str(chance.choice([0, 1, 2, 10, 12, chance.randrange(10**18)])).encode())
    for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
        at = chance.randrange(len(content) + 1)
        near = chance.choice([*b"0123456789+-_.eExX \t\r\n\0\xef\xbb\xbf\xd9\xa2", chance.randrange(256)])
        content[at : at + chance.randint(0, 1)] = bytes([near])
    return chance.randbytes(chance.randrange(80)) if chance.random() < 0.2 else bytes(content)
