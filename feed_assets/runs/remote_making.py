"""Rows of a run that another process makes: the order for that process, its report, and the rows as the run sees them.

The other process reads and writes the blackboard, under update ids that the run has claimed. It writes no manifest, and
does not know the ledger. So only the run publishes. Rows that a lost process wrote never become valid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from feed_assets.core import errors
from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import FeedAssetsError, FunctionFailed, TargetLost
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.message_words import text_of
from feed_assets.core.secrets import without_secrets
from feed_assets.core.write_result import Counts, Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.runs.checks import Check
from feed_assets.runs.job_values import decoded, encoded
from feed_assets.runs.maker import Audit, Maker, Output, Task
from feed_assets.runs.place_inputs import board_names
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.users_code import located

_NOT_SENT = {"recipe", "boards"}
"""Parts of a task that the other process makes anew, from its own code and settings."""

Report = Mapping[str, Any]


def order_of(task: Task, blackboard: str) -> dict[str, Any]:
    """Return the order for a task as JSON. It has no secret, and names the recipe instead of containing code."""
    task = task.with_reader(None)
    sent = {each.name: encoded(getattr(task, each.name)) for each in fields(task) if each.name not in _NOT_SENT}
    of_recipe = {"feed": str(task.recipe.feed), "recipe": task.recipe.digest}
    return {**of_recipe, "blackboard": blackboard, "task": sent}


def task_of(order: Report, recipe: Recipe, boards: Mapping[str | None, Blackboard]) -> Task:
    """Return the task of an order. Raise TargetLost if this process has other code than the run."""
    if order["recipe"] != recipe.digest:
        raise TargetLost(
            f"the job has other code of {recipe.feed} than the run: expected equal code. Install the same version for "
            "both."
        )
    parts: dict[str, Any] = {name: decoded(each, _checks(recipe)) for name, each in order["task"].items()}
    named = {name: boards[board] for name, board in board_names(recipe, parts.get("place")).items()}
    return Task(recipe, boards=named, **parts)


def feed_of(order: Report) -> Feed:
    """Return the dataset of an order."""
    return Feed.parse(order["feed"])


def report_of(task: Task, board: Blackboard, maker: Maker) -> dict[str, Any]:
    """Make, write, count and audit the rows of a task. Return the report, which has the error if a step fails."""
    try:
        with maker.make(task, board) as rows:
            outputs: list[Output] = []
            for partition, update_id in reversed(task.claims):  # Dataset first: its write shows if there are rejects.
                outputs.insert(0, Output(partition, update_id, rows.write(partition, update_id)))
            counted = rows.counted()
            audit = rows.audit(outputs)
    except OF_ITS_OWN as error:
        return failure_of(located(error, task.recipe.transform))
    written = {each.partition: replace(each.written, observed={}) for each in outputs}
    return {"written": encoded(written), "counted": encoded([*counted]), "audit": encoded(audit)}


def failure_of(error: BaseException) -> dict[str, Any]:
    """Return an error as report, with secrets masked."""
    clean = without_secrets(error)
    return {"error": type(clean).__name__, "message": text_of(clean)}


def made_of(report: Report, task: Task) -> "RemoteRows":
    """Return the rows that a report describes. If the report has an error, raise this error.

    If the other process did not reach a service, raise TargetLost, because another target may reach the service.
    """
    if "error" in report:
        raise _error(report["error"], report["message"])
    parts = [decoded(report[name], _checks(task.recipe)) for name in ("written", "counted", "audit")]
    return RemoteRows(*parts)


def _error(name: str, message: str) -> FeedAssetsError:
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, FeedAssetsError)):
        return FunctionFailed(f"{name}: {message}")
    if issubclass(kind, errors.ServiceUnavailable) and not issubclass(kind, errors.SparkDied):
        return TargetLost(f"{name}: {message}")
    return kind(message)


def _checks(recipe: Recipe) -> dict[str, Check]:
    return {each.name: each for each in recipe.all_checks}


@dataclass(frozen=True)
class RemoteRows:
    """The rows of a task that another process has made, written and audited already."""

    written: Mapping[Partition, Written]
    counts: Sequence[tuple[Update, Counts]]
    result: Audit

    def write(self, partition: Partition, update_id: str) -> Written:  # noqa: ARG002  The order already has it.
        """Return one output's written files. Its manifest is written only if a listing shows exactly these files."""
        return self.written[partition]

    def counted(self) -> Sequence[tuple[Update, Counts]]:
        """Return the record counts of the updates that no earlier run has counted (`Task.uncounted`)."""
        return self.counts

    def audit(self, outputs: Sequence[Output]) -> Audit:  # noqa: ARG002  They were audited where they were written.
        """Return the results of the checks."""
        return self.result
