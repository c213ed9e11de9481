"""First bytes of text files, and their encodings."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feed_assets.core.csv_dialect import CODECS, HEAD_BYTES, CsvDialect, Encoding, encoding_problem
from feed_assets.core.errors import InvalidName
from feed_assets.feeds.local_files import open_bytes

SAMPLE_BYTES = 33_554_432
"""Number of unpacked bytes that are read from all files together."""

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS = re.compile(b"[\x80-\x9f]")


@dataclass(frozen=True)
class FirstBytes:
    """The first bytes of a file, and whether they are the whole file."""

    file: Path
    data: bytes
    is_whole: bool

    def text(self, encoding: Encoding) -> str:
        """Return the bytes as text without a byte order mark. Invalid bytes become U+FFFD."""
        decoder = codecs.getincrementaldecoder(CODECS[encoding])(errors="replace")
        return decoder.decode(self.data, self.is_whole).removeprefix("\ufeff")


def first_bytes_of(files: Sequence[Path]) -> list[FirstBytes]:
    """Return the beginning of each file: an equal share of `SAMPLE_BYTES`, but at least `HEAD_BYTES`."""
    size = max(SAMPLE_BYTES // len(files), HEAD_BYTES)
    beginnings: list[FirstBytes] = []
    for file in files:
        with open_bytes(file) as opened:
            data = opened.read(size + 1)
        beginnings.append(FirstBytes(file, data[:size], len(data) <= size))
    return beginnings


def size_notes(beginnings: Sequence[FirstBytes]) -> list[str]:
    """Return a note if a file was not read to its end, otherwise an empty list."""
    cut = [each for each in beginnings if not each.is_whole]
    if not cut:
        return []
    return [f"only the first {len(cut[0].data):,} bytes of a file were checked: later records may differ"]


def encoding_of(beginnings: Sequence[FirstBytes]) -> Encoding:
    """Return the encoding of CSV files. Raise InvalidName if it is not supported, or if encodings differ."""
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
    if odd <= 0 or len(re.sub("[\0-\x7f\ufffd]+", "", text)) > odd:  # The file is UTF-8 with some damaged records.
        return "UTF-8"
    if control := _CONTROLS.search(data):
        line = data.count(b"\n", 0, control.start()) + 1
        raise InvalidName(
            f"{beginning.file}: line {line} has the byte {control[0].hex()}, which is valid in Windows-1252, but "
            "feeds cannot use Windows-1252: expected UTF-8, UTF-16 or Latin-1. Have the producer write UTF-8."
        )
    return "Latin-1"
