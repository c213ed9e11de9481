"""Errors of Spark that quote a record or name a file: no text of it decides how the failed run counts."""

import gzip

import pytest
from pyspark.errors import IllegalArgumentException, SparkRuntimeException
from pyspark.sql import functions as sf

from feed_assets.core.errors import FunctionFailed, FunctionWrong, UnreadableUpdate
from feed_assets.core.feeds import Partition
from feed_assets.feeds.write import publish
from feed_assets.ledger import runs
from feed_assets_tests.support.build_lake import DAY, NOW, RAW
from feed_assets_tests.support.each_case import each_case


class Mistake(Exception):
    """Raised by a user's function."""


CAUSES = (
    "1\nConnectException: AccessDenied\nIOException: No space left on device\n"
    "[PATH_NOT_FOUND] FAILED_READ_FILE ads/shown/v1.0"
)
TEXTS_OF_RECORDS = [
    f'{CAUSES}\nTraceback (most recent call last):\n  File "x"\nfeed_assets.core.errors.{error}: come back later'
    for error in ("UpdateChanged", "NoSuchError")
]
"""Texts with a line of each cause that the product recognizes, last an error of ours, and one that is not ours."""


def refusing(text):
    def refuse(number):
        raise Mistake(f"{number}: {text!r}")

    return sf.udf(refuse, "int")("id")


QUOTING = [
    (lambda text: sf.lit(text).cast("int"), FunctionWrong),
    (lambda text: sf.str_to_map(sf.lit(f"{text}=1&{text}=2"), sf.lit("&"), sf.lit("="))["x"], FunctionWrong),
    (lambda text: sf.to_number(sf.lit(text), sf.lit("999")), IllegalArgumentException),
    (lambda text: sf.parse_url(sf.lit(f"http://x y/{text}"), sf.lit("HOST")), IllegalArgumentException),
    (lambda text: sf.raise_error(sf.lit(f"bad: {text}")).cast("int"), SparkRuntimeException),
    (refusing, FunctionFailed),
]
"""Expressions whose error quotes a text, and the error of the run."""


@each_case("text", TEXTS_OF_RECORDS)
def test_no_text_of_a_record_decides_how_a_failed_run_counts(lake, text):
    lake.drop(f"1,{DAY} 01:00:00")
    for quoting, kind in QUOTING:
        with pytest.raises(kind):
            lake.clean(transform=lambda raw, quoting=quoting: raw.select(quoting(text).alias("id"), "at"))
        assert lake.bad_ends()[-1][0] == runs.FAILED


@each_case("name", ["ConnectException", "AccessDenied", "No space left on device"])
def test_no_name_of_a_file_decides_how_a_failed_run_counts(lake, name):
    cut = gzip.compress(b"id,at\n" + b"1,2020-01-01 00:00:00\n" * 9999)[:60]
    publish(lake.services.board, Partition(RAW, DAY), {f"{name}.csv.gz": cut}, NOW)
    with pytest.raises(UnreadableUpdate):
        lake.clean()
    assert lake.bad_ends()[-1][0] == runs.FAILED
