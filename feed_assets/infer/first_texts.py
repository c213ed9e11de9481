"""The beginnings of text files, and their encoding."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feed_assets.core.csv_dialect import CODECS, HEAD_BYTES, CsvDialect, Encoding, encoding_problem
from feed_assets.core.errors import InvalidName
from feed_assets.feeds.local_files import open_bytes

SAMPLE_BYTES = 33_554_432
"""Unpacked bytes that are read, of all files together."""

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS = re.compile(b"[\x80-\x9f]")


@dataclass(frozen=True)
class FirstBytes:
    """The first bytes of a file, and whether they are all."""

    file: Path
    data: bytes
    is_whole: bool

    def text(self, encoding: Encoding) -> str:
        """Return them as text, with U+FFFD for invalid bytes, and without the file's byte order mark."""
        decoder = codecs.getincrementaldecoder(CODECS[encoding])(errors="replace")
        return decoder.decode(self.data, self.is_whole).removeprefix("\ufeff")


def first_bytes_of(files: Sequence[Path]) -> list[FirstBytes]:
    """Return the beginning of each file: the files share `SAMPLE_BYTES`."""
    size = max(SAMPLE_BYTES // len(files), HEAD_BYTES)
    beginnings: list[FirstBytes] = []
    for file in files:
        with open_bytes(file) as opened:
            data = opened.read(size + 1)
        beginnings.append(FirstBytes(file, data[:size], len(data) <= size))
    return beginnings


def size_notes(beginnings: Sequence[FirstBytes]) -> list[str]:
    """Return a note if files were not read to their ends; nothing if they were."""
    cut = [each for each in beginnings if not each.is_whole]
    if not cut:
        return []
    return [f"only the first {len(cut[0].data):,} bytes of a file were looked at: later records may differ"]


def encoding_of(beginnings: Sequence[FirstBytes]) -> Encoding:
    """Return the encoding of CSV files. Raise InvalidName for one that no feed has, or for two."""
    encodings: set[Encoding] = {_encoding_of_one(each) for each in beginnings}
    encodings.discard("UTF-8")
    if len(encodings) > 1:
        raise InvalidName(f"the files are in {' and '.join(sorted(encodings))}: expected one encoding.")
    return encodings.pop() if encodings else "UTF-8"


def _encoding_of_one(beginning: FirstBytes) -> Encoding:
    data = beginning.data
    encoding: Encoding = "UTF-16" if data.startswith(UTF_16_MARKS) else "UTF-8"
    if problem := encoding_problem(data, CsvDialect(encoding=encoding)):
        raise InvalidName(f"{beginning.file}: {problem}.")
    if encoding == "UTF-16":
        return encoding
    text = beginning.text("UTF-8")
    odd = text.count("\ufffd") - data.count("\ufffd".encode())
    if odd <= 0 or len(re.sub("[\0-\x7f\ufffd]+", "", text)) > odd:  # Some records of UTF-8 are damaged.
        return "UTF-8"
    if control := _CONTROLS.search(data):
        line = data.count(b"\n", 0, control.start()) + 1
        raise InvalidName(
            f"{beginning.file}: line {line} is in no encoding of a feed, and has the byte {control[0].hex()}, as "
            "Windows-1252 has: expected UTF-8, UTF-16 or Latin-1. Have the producer write UTF-8."
        )
    return "Latin-1"
