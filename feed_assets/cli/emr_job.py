"""A job of EMR Serverless: it makes the rows that a run has ordered, and reports them by Dagster Pipes (ADR 142).

The job's script has two lines: `from feed_assets.cli.emr_job import main` and `main()`.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import TargetLost
from feed_assets.core.message_words import reason_of

if TYPE_CHECKING:
    from feed_assets.runs.recipe import Recipe
    from feed_assets.settings import Settings


def main() -> None:
    """Carry out the order of the run that has started this job. The first argument is the project's module."""
    import boto3  # pyright: ignore[reportMissingTypeStubs]
    from dagster_pipes import PipesS3ContextLoader, PipesS3MessageWriter
    from dagster_pipes import open_dagster_pipes as opened  # pyright: ignore[reportUnknownVariableType]

    connect: Any = boto3.client  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    s3 = connect("s3")
    with opened(
        context_loader=PipesS3ContextLoader(client=s3), message_writer=PipesS3MessageWriter(client=s3)
    ) as pipes:
        pipes.report_custom_message(_carried_out(sys.argv[1], pipes.extras))


def _carried_out(module: str, order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report.

    Report an error before the rows are made as TargetLost: code is wrong, or rights are missing.
    """
    from feed_assets.runs import remote_making
    from feed_assets.runs.services import Boards, spark_maker
    from feed_assets.settings import settings
    from feed_assets.sources.slice_rows import rows_of

    try:
        own = _started(settings().model_copy(update={"blackboard": order["blackboard"]}))
        recipe = _recipe(module, order)
        boards = Boards(own)
        task, board = remote_making.task_of(order, recipe, boards), boards[recipe.blackboard]
        maker = spark_maker(own, own.profile(order["profile"]), may_start=False, reader=rows_of)
    except OF_ITS_OWN as error:
        return remote_making.failure_of(TargetLost(reason_of(error)))
    return remote_making.report_of(task, board, maker)


def _recipe(module: str, order: Mapping[str, Any]) -> "Recipe":
    from feed_assets.cli.loaded_location import load
    from feed_assets.orchestration.execute.declared_recipes import recipe_in
    from feed_assets.runs.remote_making import feed_of

    return recipe_in(load(module), feed_of(order))


def _started(settings: "Settings") -> "Settings":
    """Start Spark with our configuration, but with the master of `spark-submit`. Return the settings of this Spark."""
    from pyspark.sql import SparkSession

    from feed_assets.spark.session import conf

    own = settings.model_copy(update={"spark_master": "emr-serverless", "spark_remote": None})
    builder = SparkSession.builder
    for key, value in conf(own).items():
        if key != "spark.master":
            builder = builder.config(key, value)
    builder.getOrCreate()
    return own
