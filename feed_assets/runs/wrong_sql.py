"""Search for the SQL aggregate that Spark refuses.

One job computes all aggregates of a dataset, and Spark's error does not say which aggregate is wrong.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.message_words import excerpt, sentence
from feed_assets.runs.outcomes import wanted_of
from feed_assets.runs.profiling import FIGURE, MEASURE, sql_aggregates
from feed_assets.runs.recipe import Recipe
from feed_assets.spark.spark_errors import SPARK_ERRORS, is_lasting

_DECLARED = {FIGURE: ("figure", "figures"), MEASURE: ("measure", "the profile's measures")}


@contextmanager
def naming_sql(recipe: Recipe, rows: DataFrame) -> Generator[None]:
    """If an aggregate cannot be computed, raise InvalidDefinition, which names it. Let other errors pass."""
    try:
        yield
    except SPARK_ERRORS as error:
        if (
            _error(rows.write.format("noop").mode("overwrite").save) is None
        ):  # If this fails, the rows themselves cannot be read.
            for name, sql in (sql_aggregates(recipe) | wanted_of(recipe.deep_checks)).items():
                why = _error(lambda sql=sql: rows.selectExpr("count(1)", sql).collect())
                if why and is_lasting(why):  # Errors of other types may come from lack of memory or a lost connection.
                    raise InvalidDefinition(_message(recipe, name, sql, str(why))) from error
        raise


def _error(job: Callable[[], object]) -> Exception | None:
    """Run a Spark job, and return the error that Spark raises. Return None if the job succeeds."""
    try:
        job()
    except SPARK_ERRORS as error:
        return error
    return None


def _message(recipe: Recipe, name: str, sql: str, why: str) -> str:
    kind = next((kind for kind in _DECLARED if name.startswith(kind)), "")
    noun, where = _DECLARED.get(kind, ("check", "checks"))
    return (
        f"{recipe.feed}: the {noun} {name.removeprefix(kind)!r} is {sql!r}, which cannot be computed from its rows: "
        f"{sentence(excerpt(why))} Correct it in {where}."
    )
