"""Layouts of one partition with names that programs, people and clocks leave, and the answer expected of a reader.

On S3 a key that ends in `/` is a directory marker. On a local disk it is a folder if it is an update's own prefix.
Otherwise it is an empty file, and counts as one.
"""

OLD, NEW = "20191125.060000", "20191126.060000"

Layout = dict[str, bytes]


def update(name: str, *files: str, manifest: int | None = None) -> Layout:
    """Return an update of these files, or of `a` and `b`.

    Its manifest holds their number unless `manifest` is given.
    """
    files = files or ("a", "b")
    count = len(files) if manifest is None else manifest
    return {f"{name}/{file}": file.encode() for file in files} | {f"{name}/_SUCCESS": str(count).encode()}


def by_echo(name: str) -> Layout:
    """Return such an update with the manifest that a shell's `echo` writes."""
    return update(name) | {f"{name}/_SUCCESS": b"2\n"}


def newest(name: str) -> tuple[Layout, str | None]:
    """Return a layout in which a valid update of this name is the newest one."""
    return update(OLD) | update(name), name


def no_update(name: str) -> tuple[Layout, str | None]:
    """Return a layout in which this name is no update, although its files look like a valid one."""
    return update(OLD) | update(name), OLD


def counts(*files: str) -> tuple[Layout, str | None]:
    """Return a layout in which files of these names count like any others."""
    return update(OLD) | update(NEW, "a", *files), NEW


def one_too_many(file: str) -> tuple[Layout, str | None]:
    """Return a layout in which an uncounted file of this name makes the newest update invalid."""
    return update(OLD) | update(NEW) | {f"{NEW}/{file}": b""}, OLD


CASES: dict[str, tuple[Layout, str | None]] = {
    "nothing": ({}, None),
    "one update": (update(OLD), OLD),
    "two updates": (update(OLD) | update(NEW), NEW),
    "no files": (update(OLD) | {f"{NEW}/_SUCCESS": b"0"}, NEW),
    "no manifest": (update(OLD) | {f"{NEW}/a": b""}, OLD),
    "nothing but a manifest": (update(OLD) | {f"{NEW}/_SUCCESS": b"1"}, OLD),
    "manifest by echo": (update(OLD) | by_echo(NEW), NEW),
    "manifest by echo that counts wrong": (update(OLD) | by_echo(NEW) | {f"{NEW}/c": b""}, OLD),
    # Moments that do not exist, and names that are close to one.
    "30 February": no_update("20260230.120000"),
    "29 February of a common year": no_update("20190229.000000"),
    "29 February of a leap year": newest("20240229.000000"),
    "29 February 2100": no_update("21000229.000000"),
    "month 13": no_update("20261301.000000"),
    "month 0": no_update("20260001.000000"),
    "day 0": no_update("20260100.000000"),
    "year 0": no_update("00000101.000000"),
    "hour 24": no_update("20260101.240000"),
    "minute 60": no_update("20260101.006000"),
    "leap second": no_update("20161231.235960"),
    "no seconds": no_update("20260101.0000"),
    "too many digits": no_update("20260101.0000000"),
    "no point": no_update("20260101000000"),
    "dash for point": no_update("20260101-000000"),
    "ISO 8601": no_update("2026-01-01T00:00:00"),
    "with a zone": no_update("20260101.000000Z"),
    "letters": no_update("latest"),
    "letters in it": no_update("2026O101.000000"),
    "prefixed": no_update("v20260101.000000"),
    "suffixed": no_update("20260101.000000-old"),
    "backup": no_update("20260101.000000~"),
    "copy": no_update("20260101.000000 (1)"),
    "trailing space": no_update("20260101.000000 "),
    "leading space": no_update(" 20260101.000000"),
    "hidden": no_update(".20260101.000000"),
    "underscore": no_update("_20260101.000000"),
    "Arabic digits": no_update("٢٠٢٦٠١٠١.٠٠٠٠٠٠"),
    "full width digits": no_update("２０２６０１０１.００００００"),
    "half of it": no_update("20260101"),
    "dead job beside": no_update("_temporary"),
    "percent-encoded point": no_update("20260101%2E000000"),
    # Clocks.
    "future stamp": newest("20991231.235959"),
    "last moment": newest("99991231.235959"),
    "first moment": (update("00010101.000000") | update(OLD), OLD),
    "clock that went back": (update(NEW) | update(OLD, "late"), NEW),
    "same second": (update(OLD) | update("20191125.060001"), "20191125.060001"),
    "hour that summer time skips": newest("20260329.023000"),
    "hour that winter time repeats": newest("20261025.023000"),
    "future stamp that is not finished": (update(OLD) | {"20991231.235959/a": b""}, OLD),
    "future stamp that counts wrong": (update(OLD) | update("20991231.235959", manifest=9), OLD),
    # Files that nobody means to count, but that count.
    "hidden file": one_too_many(".hidden"),
    "checksum": one_too_many(".a.crc"),
    "metadata": one_too_many("_metadata"),
    "dead job": one_too_many("_temporary/0/task_1/part-0"),
    "second manifest below": one_too_many("sub/_SUCCESS"),
    "manifest in lower case": one_too_many("_success"),
    "manifest with a suffix": one_too_many("_SUCCESS.crc"),
    "marker below": one_too_many("sub/"),
    "invalidated": one_too_many("_invalidated-0"),
    "half-written": one_too_many("a#1"),
    "marker of its own": (update(OLD) | update(NEW) | {f"{NEW}/": b""}, NEW),
    "only a marker": (update(OLD) | {f"{NEW}/": b""}, OLD),
    "marker in the future": (update(OLD) | {"20991231.235959/": b""}, OLD),
    # Files that the manifest counts.
    "hidden files": counts(".hidden", "_metadata"),
    "deep": counts("b/c/d/e/f/g/h"),
    "deeper manifest": counts("sub/_SUCCESS"),
    "update in the update": counts(f"{OLD}/a", f"{OLD}/_SUCCESS"),
    "percent-encoded slash": counts("b%2Fc"),
    "percent-encoded space": counts("b%20c", "b c"),
    "percent": counts("100%"),
    "plus and space": counts("b+c", "b c"),
    "signs": counts("x=1&y", "q?r", "~[z]", "a,b;c", "'q'", "(p)", "$", "!", "@", "*"),
    "quotes": counts('"b"'),
    "accents": counts("é ü"),
    "accents composed and not": counts("\u00e9", "e\u0301"),
    "Chinese": counts("数据"),
    "emoji": counts("🙂"),
    "case": counts("B", "b"),
    "long": counts("x" * 200),
    "leading dash": counts("-rf"),
    "sorts around the manifest": counts("A", "Z", "_", "^", "z"),
    "control character": one_too_many("b\x01c"),
    "newline": one_too_many("b\nc"),
    "control character that is counted": (update(OLD) | update(NEW, "a", "b\x07"), OLD),
    # Objects beside updates.
    "manifest of the partition": (update(OLD) | {"_SUCCESS": b"0"}, OLD),
    "file beside": (update(OLD) | {"README": b"hello"}, OLD),
    "file that is called as an update": (update(OLD) | {NEW: b"2"}, OLD),
    "partition beside": (update(OLD) | update(f"women/{NEW}"), OLD),
    "deeper partition only": (update(f"women/{NEW}"), None),
    "version beside": (update(OLD) | update(f"v2.0/{NEW}"), OLD),
    "every update invalid": (update(OLD, manifest=7) | update(NEW, manifest=1), None),
}
