"""The sensor `subscriptions` and the job `deliver`, which deliver changes of datasets to the targets of `on_change`.

The sensor itself posts to webhooks. Statements of a warehouse may take minutes, so each subscription with a due
statement gets a run of the job.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from random import SystemRandom
from time import monotonic

import dagster as dg
from pydantic import Field

from feed_assets.core.delivery_targets import Subscription, Webhook
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.isolation import failing_alone
from feed_assets.deliveries import delivery_alerts, outbox, owners
from feed_assets.deliveries.sender import deliver, fill
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.orchestration.decide.unfinished_runs import has_unfinished
from feed_assets.orchestration.ticks.change_events import event_of
from feed_assets.orchestration.ticks.tick import PROBLEM, Budget, graph_of, location_of
from feed_assets.settings import settings

SENSOR, JOB, OP = "subscriptions", "deliver", "deliver_changes"
"""Names of the sensor, the job and its op."""

TAG = "feed_assets/subscription"
"""The run tag with the subscription's name."""

AT_ONCE = 8
"""Number of webhooks to which one tick posts at the same time. A slow webhook occupies one thread."""

SHARE_SECONDS = 1.0
"""Seconds after which a webhook with more changes waits for the other webhooks. A try that has begun is finished."""

_FILL_SHARE, _SHARE = 0.4, 0.8
"""Shares of a tick's time after which no new changes are read, and no new delivery begins."""


_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_MOST_FAILURES = 10
"""Number of failed runs that are counted. After so many, the pause is the longest one."""


class Deliver(dg.Config):
    """Run configuration of the job `deliver`."""

    subscription: str = Field(description="The subscription whose changes are delivered.")


def delivery_jobs(subscriptions: Sequence[Subscription]) -> list[dg.JobDefinition]:
    """Return the job `deliver`. Return [] if all subscriptions are webhooks, to which the sensor posts."""
    by_name = {each.name: each for each in subscriptions if not isinstance(each.target, Webhook)}
    return [_job(by_name)] if by_name else []


def _job(by_name: Mapping[str, Subscription]) -> dg.JobDefinition:
    @dg.op(name=OP)
    def deliver_changes(context: dg.OpExecutionContext, config: Deliver) -> None:
        """Deliver all changes that a subscription's target can get now."""
        if config.subscription not in by_name:
            raise InvalidDefinition(f"no subscription {config.subscription}: expected one of {', '.join(by_name)}.")
        ledger = open_ledger(settings().ledger)
        count = deliver(ledger, by_name[config.subscription], _clock(context.instance), lambda: False)
        with ledger.read() as connection:
            problem = outbox.problem(connection, config.subscription)
        context.log.info(f"{config.subscription}: {count} changes delivered")
        if problem:
            context.log.warning(problem)

    graph = dg.GraphDefinition(JOB, node_defs=[deliver_changes])
    described = "Refreshes the views and runs the statements of a subscription for the changes that wait for it."
    return dg.JobDefinition(graph_def=graph, description=described)


def delivery_sensor(subscriptions: Sequence[Subscription]) -> dg.SensorDefinition:
    """Return the sensor `subscriptions`."""

    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, subscriptions)

    has_job = any(not isinstance(each.target, Webhook) for each in subscriptions)
    return dg.SensorDefinition(
        name=SENSOR,
        evaluation_fn=tick,
        job_name=JOB if has_job else None,
        minimum_interval_seconds=1,  # the daemon ticks every five seconds, or slightly earlier
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Delivers changes of datasets to subscriptions: posts to webhooks, and requests the job `deliver` "
        "for views and statements.",
    )


def _tick(context: dg.SensorEvaluationContext, subscriptions: Sequence[Subscription]) -> dg.SensorResult:
    """Deliver to webhooks, and request runs for other targets. A subscription that fails does not stop the others."""
    graph, ledger = graph_of(context), open_ledger(settings().ledger)
    budget = Budget(settings().tick_seconds)
    out_of_time, filled_enough = budget.out_of_time(_SHARE), budget.out_of_time(_FILL_SHARE)
    clock, problems = _clock(context.instance), dict[str, str]()
    now, location = clock(), location_of(context)

    def put(subscription: Subscription) -> bool:
        """Return whether changes are left in the log."""
        with failing_alone(problems, delivery_alerts.key_of(subscription)):
            owners.check(ledger, subscription, location, now)
            return not fill(ledger, subscription, partial(event_of, graph, subscription), now, filled_enough)
        return False

    def post(subscription: Subscription, is_over: Callable[[], bool]) -> int:
        with failing_alone(problems, delivery_alerts.key_of(subscription)):
            return deliver(ledger, subscription, clock, is_over)
        return 0

    with ThreadPoolExecutor(AT_ONCE) as threads:
        unread = sum(threads.map(put, subscriptions))
        filled = [each for each in subscriptions if delivery_alerts.key_of(each) not in problems]
        webhooks = [each for each in filled if isinstance(each.target, Webhook)]
        waiting = deque(SystemRandom().sample(webhooks, len(webhooks)))  # No webhook is always the last one.
        share = partial(_in_shares, waiting, post, out_of_time)
        delivered = sum(each.result() for each in [threads.submit(share) for _ in range(AT_ONCE)])
    requests = [each for one in filled for each in _requests(context.instance, ledger, one, now, problems)]
    for subject, problem in delivery_alerts.keep(ledger, subscriptions, problems, now).items():
        context.log.warning(problem, extra={PROBLEM: subject})
    done = f"{delivered} changes delivered to webhooks." if delivered else "No change is due for a webhook."
    # `run --until-idle` goes on as long as the cursor moves.
    cursor = str(int(context.cursor or 0) + delivered + unread)
    return dg.SensorResult(run_requests=requests, skip_reason=None if requests else done, cursor=cursor)


def _in_shares(
    waiting: deque[Subscription],
    post: Callable[[Subscription, Callable[[], bool]], int],
    out_of_time: Callable[[], bool],
) -> int:
    """Post to the webhooks that wait, each for `SHARE_SECONDS` before it waits again. Return the number of changes.

    Several threads share `waiting`, so a webhook with a long backlog does not stop the others.
    """
    count = 0
    while not out_of_time():
        try:
            subscription = waiting.popleft()
        except IndexError:
            break
        until = monotonic() + SHARE_SECONDS
        accepted = post(subscription, partial(_is_after, until))
        count += accepted
        if accepted and _is_after(until):
            waiting.append(subscription)
    return count


def _is_after(time: float) -> bool:
    return monotonic() >= time


def _clock(instance: dg.DagsterInstance) -> Callable[[], datetime]:
    """Return a clock that begins with the time that Dagster uses now."""
    with dg.partition_loading_context(dynamic_partitions_store=instance) as loading:
        began, started = loading.effective_dt, monotonic()
    return lambda: began + timedelta(seconds=monotonic() - started)


def _requests(
    instance: dg.DagsterInstance,
    ledger: Ledger,
    subscription: Subscription,
    now: datetime,
    problems: dict[str, str],
) -> list[dg.RunRequest]:
    """Return the run request of a subscription whose view or statement is due, unless it has a run in progress.

    If its last runs failed, add this to `problems`, and request the next one only after a pause.
    """
    if isinstance(subscription.target, Webhook):
        return []
    name = subscription.name
    with ledger.read() as connection:
        is_due = outbox.is_due(connection, name, now, one_lane=subscription.target.one_lane)
    if not is_due or has_unfinished(instance, JOB, TAG, name):
        return []
    if failed := _last_failures(instance, name):
        count = f"{len(failed)} runs" if len(failed) > 1 else "run"
        problems[delivery_alerts.key_of(subscription)] = (
            f"the last {count} of the job {JOB} for the subscription {name} failed: see the log of run "
            f"{failed[0].dagster_run.run_id}. It is tried again."
        )
        ended = failed[0].end_time or failed[0].update_timestamp.timestamp()
        if now.timestamp() < ended + outbox.pause_after(len(failed)).total_seconds():
            return []
    config = dg.RunConfig(ops={OP: Deliver(subscription=name)})
    return [dg.RunRequest(job_name=JOB, run_config=config, tags={TAG: name})]


def _last_failures(instance: dg.DagsterInstance, name: str) -> list[dg.RunRecord]:
    """Return the runs for a subscription that failed since the last success, newest first, up to `_MOST_FAILURES`."""
    runs = instance.get_run_records(dg.RunsFilter(job_name=JOB, tags={TAG: name}), limit=_MOST_FAILURES)
    return [*takewhile(lambda each: each.dagster_run.status in _FAILED, runs)]
