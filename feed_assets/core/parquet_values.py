"""Values of Parquet files that all readers refuse, because one of the readers would read a wrong value or fail.

Before version 3 (3.1 for INT96) Spark wrote days and moments in an old calendar, which is Julian before 1582. The
metadata of a file shows this. Days are converted as Spark converts them. Moments before 1900 are refused, because their
value would depend on the time zone of the reading machine. Old days inside lists, structs and maps are refused, too.
"""

from datetime import date

DIGITS = 38
"""Maximum number of digits of a decimal."""

FIRST_DAY = date(1, 1, 1)
FIRST_NEW_DAY = date(1582, 10, 15)
"""The first day that has the same date in both calendars."""

OLD_MOMENTS = -2_208_902_400
"""1900-01-02 (UTC) in seconds since 1970.

Old moments depend on the zone only before the local 1900-01-01. In every zone, that day begins before this moment.
"""

REBASED = (
    *((-719_164, 2), (-682_945, 1), (-646_420, 0), (-609_895, -1), (-536_845, -2), (-500_320, -3), (-463_795, -4)),
    *((-390_745, -5), (-354_220, -6), (-317_695, -7), (-244_645, -8), (-208_120, -9), (-171_595, -10), (-141_427, 0)),
)
"""Days since 1970 in the old calendar, each with the number of days to add from that day on."""

NO_TEXT = "holds bytes that are not UTF-8: expected text. Have it published in UTF-8, or as binary."
TOO_FINE = (
    "has timestamps in nanoseconds that are no whole microseconds: expected microseconds, the finest unit of Spark. "
    "Have it published with microseconds (of pandas: to_parquet(…, coerce_timestamps='us'))."
)
OLD_DAY = (
    "has days in Spark's old calendar that cannot be converted: expected days from 0001-01-01 on, inside of lists, "
    "structs and maps from 1582-10-15 on. Have it published by Spark 3 or later."
)
OLD_MOMENT = (
    "has moments of before 1900-01-02 in Spark's old calendar, whose value depends on the reader's time zone: expected "
    "today's calendar. Have it published by Spark 3.1 or later."
)
TOO_LARGE = "has moments beyond the years that microseconds since 1970 reach. Have it published without them."


def too_long(precision: int, scale: int) -> str:
    """Return the reason for refusing a decimal with more digits than its type has."""
    return (
        f"holds a number with more digits than its type, decimal({precision},{scale}), has: expected numbers that fit. "
        "Have it published with the right type."
    )
