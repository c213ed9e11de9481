"""Changes that a re-run made, in numbers."""

from base64 import b64decode

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.rerun_report import BeforeAfter, Effect, UpdateFigures, as_markdown, reads
from feed_assets_tests.support.each_case import each_case

RAW, FX = Feed.parse("t/raw/v1.0"), Feed.parse("t/fx/v1.0")
OUT = Partition(Feed.parse("t/sums/v1.0"), "2020-01-01")


def pin(feed: Feed, key: str, version: str, size: int, files: int = 1) -> Pin:
    return Pin(Partition(feed, key), f"2020010{version}.000000", version, size, files)


@each_case(
    ("before", "after", "said"),
    [(100, 110, "+10.0%"), (100, 90, "-10.0%"), (-10, -5, "+50.0%"), (5, 5, "="), (0, 5, "new"), (None, 5, "?")],
)
def test_the_change_of_a_number_in_words(before, after, said):
    assert BeforeAfter("clicks", before, after).change == said


def test_an_input_is_told_as_a_whole_and_only_if_its_data_differ():
    before = [pin(RAW, "00", "1", 10), pin(RAW, "01", "1", 20), pin(FX, "", "1", 5)]
    after = [pin(RAW, "00", "1", 10), pin(RAW, "01", "2", 30, 2), pin(RAW, "02", "1", 2), pin(FX, "", "1", 5)]
    (raw,) = reads(after, before)
    assert raw.changed == 2
    assert raw.rows == (BeforeAfter(f"{RAW}: bytes", 30, 42), BeforeAfter(f"{RAW}: files", 2, 4))


def test_a_rerun_report_of_windows_compares_records_instead_of_bytes():
    (raw,) = reads([pin(RAW, "a", "2", 7, 0)], [pin(RAW, "a", "1", 5, 0)])
    assert raw.rows == (BeforeAfter(f"{RAW}: records", 5, 7),)


def found(before: dict, after: dict) -> Effect:
    read = reads([pin(RAW, "00", "2", 110)], [pin(RAW, "00", "1", 100)])
    return Effect(
        OUT, UpdateFigures("20200101.000000", 10, 1, 3, before), UpdateFigures("20200102.000000", 12, 1, 4, after), read
    )


def test_a_rerun_report_lists_figures_first_and_unknown_ones_last():
    effect = found({"clicks": 7.0, "spend": 1.5}, {"clicks": 8.0})
    assert [row.label for row in effect.written] == ["clicks", "records", "bytes", "files", "spend"]
    assert effect.written[-1] == BeforeAfter("spend", 1.5, None)


def test_a_rerun_report_is_a_line_and_a_table_with_a_chart():
    effect = found({"clicks": 7.0}, {"clicks": 8.5})
    assert str(effect) == (
        "t/sums/v1.0 2020-01-01: update 20200102.000000 replaces 20200101.000000: t/raw/v1.0: bytes 100 to 110 "
        "(+10.0%); t/raw/v1.0: files 1 to 1 (=); clicks 7 to 8.5 (+21.4%); records 3 to 4 (+33.3%); "
        "bytes 10 to 12 (+20.0%); files 1 to 1 (=)"
    )
    markdown = as_markdown(effect)
    assert "| clicks | 7 | 8.5 | +21.4% |" in markdown
    svg = b64decode(markdown.partition("base64,")[2].rstrip(")")).decode()
    assert ">clicks, before</text>" in svg
    assert svg.count("<rect") == 9  # The background, and two bars each of figure, records, bytes and files.
