"""Write events in a Kafka topic are read by the loop, and ours are published to one, over a real broker."""

import json

import pytest

from feed_assets import EventSource, EventTopic
from feed_assets.core.errors import InvalidDefinition, SourceUnavailable
from feed_assets_tests.orchestration.event_team import Team, consumed_markers, report_world, slice_ranges
from feed_assets_tests.support.foreign_tables import Topics, read_all, row


class TopicTeam(Team):
    """A team whose events are messages."""

    def __init__(self, theirs):
        self.theirs = theirs
        self.source = EventSource("team", (EventTopic(theirs.topic),))

    def publish(self, *reported):
        self.theirs.add(
            [
                row(marker, "integer", table_name=table, correlation_id=correlation, partition_key=None)
                for table, correlation, marker in reported
            ]
        )


@pytest.fixture
def theirs(broker, setting):
    setting(kafka=json.dumps({"bootstrap.servers": broker.servers}))
    return Topics(broker.servers, "integer")


def test_an_update_whose_events_are_messages_is_consumed_once_it_is_complete(theirs):
    seen = []
    team = TopicTeam(theirs)
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1))
    assert world_.run_until_idle() == []
    team.publish(("b", "X", 7))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    assert [slice_ranges(run_spec) for run_spec in seen] == [{"team/a": (None, 1), "team/b": (None, 7)}]
    assert consumed_markers() == {"team/a": 1, "team/b": 7}
    assert world_.run_until_idle() == []


def test_each_of_our_events_is_published_once_to_a_topic(theirs, tmp_path, setting):
    setting(events_to=f"kafka:{theirs.topic}")
    team, seen = Team(tmp_path), []
    world_ = report_world(team, seen)
    for number in (1, 2):
        team.publish(("a", f"X{number}", number), ("b", f"X{number}", number))
        assert [run.succeeded for run in world_.run_until_idle()] == [True]
    found, rejected, _ = read_all(theirs.source())
    assert rejected == []
    assert [each.table_name for each in found] == ["gamma/report/v1.0"] * 2


def test_a_topic_source_without_broker_settings_names_the_setting(theirs, setting):
    setting(kafka="{}")
    with pytest.raises(SourceUnavailable, match="FEED_ASSETS_KAFKA names no broker"):
        report_world(TopicTeam(theirs), []).ask(name="events_team")


def test_an_invalid_topic_name_is_refused():
    with pytest.raises(InvalidDefinition, match="topic 'no topic !!': expected 1 to 249 letters"):
        EventTopic("no topic !!")
