"""The peer: how "Data Orchestration via Events" (2024) finds what is complete, in Polars, over the whole table.

Events have the columns table_name, marker and correlation_id.
"""

import polars as pl

from benchmarks.histories import PIPELINES

TABLE_TO_PIPELINE = pl.DataFrame(
    [(table, name) for name, tables in PIPELINES.items() for table in tables], ["table_name", "pipeline"], orient="row"
)


def keep_only_complete_propagation(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep complete propagations, as the article does: those with as many events as their pipeline's longest one."""
    return (
        frame.join(TABLE_TO_PIPELINE, on="table_name", how="left")
        .with_columns(pl.len().over(["correlation_id", "pipeline"]).alias("count"))
        .with_columns(pl.max("count").over("pipeline").alias("max"))
        .filter(pl.col("count") == pl.col("max"))
        .drop("pipeline", "count", "max")
    )


def is_time_to_trigger(frame: pl.DataFrame, last_marker: str, dependencies: list[str]) -> pl.DataFrame:
    """Return the new complete events, as the article does; the original returns only whether there are any.

    The marker comes last: among what is new alone, an update that is partial may be the longest of its pipeline.
    """
    frame = frame.filter(pl.col("table_name").is_in(dependencies))
    return keep_only_complete_propagation(frame).filter(pl.col("marker") > last_marker)
