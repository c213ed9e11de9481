"""`feed-assets connector run`, as a process."""

import json
import signal

import pytest

from feed_assets.cli import main
from feed_assets_tests.support.connector_command import LOCATION, connector_process
from feed_assets_tests.support.servers import wait_until


def test_the_connector_runs_until_sigterm(world, home, tmp_path):
    world.create()
    world.produce(15)
    with connector_process(world, home, tmp_path) as process:
        wait_until(lambda: world.is_done() or process.poll() is not None, "all to be signalled", 120, 0.2)
    world.check()
    first, *_, last = (tmp_path / "said").read_text().splitlines()
    assert first == f"feed-assets: connector: has {world.name}/0 from 0"
    assert last == "feed-assets: connector: ended; messages without a signal are read again at the next start"


@pytest.mark.parametrize(
    ("given", "topic", "arguments", "said"),
    [
        ({}, "", [], "no topic is declared here: declare one by kafka_topic, or by a TopicsComponent."),
        ({}, "", ["views"], "no topic is declared here: declare one by kafka_topic, or by a TopicsComponent."),
        ({}, "clicks", ["views"], "no topic 'views' is declared here: expected one of clicks. Correct the name, or"),
        ({}, "clicks", ["click"], "no topic 'click' is declared here (is clicks meant?): expected one of clicks. "),
        ({}, "c-l-i-x", ["ads/clicks"], "no topic 'ads/clicks' is declared here (is c-l-i-x meant?): expected one of"),
        ({}, "clicks", [], "FEED_ASSETS_KAFKA has no bootstrap.servers"),
        ({"KAFKA": {"bootstrap.servers": "h:1"}}, "clicks", [], "FEED_ASSETS_KAFKA_REGISTRY is not set"),
        (
            {"KAFKA": {"bootstrap.servers": "h:1", "sasl.pasword": "x"}, "KAFKA_REGISTRY": "http://h:2"},
            "clicks",
            [],
            'FEED_ASSETS_KAFKA: No such configuration property: "sasl.pasword". Correct it.',
        ),
    ],
)
def test_missing_connector_settings_are_reported_in_one_line(
    given, topic, arguments, said, home, tmp_path, monkeypatch, capsys
):
    module = f"location_{abs(hash(said))}"
    text = LOCATION.format(topic=topic, limits={}) if topic else "import dagster as dg\ndefs = dg.Definitions()"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, value in given.items():
        monkeypatch.setenv(f"FEED_ASSETS_{name}", value if isinstance(value, str) else json.dumps(value))
    monkeypatch.setattr("sys.argv", ["feed-assets", "connector", "run", "-m", module, *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert said in capsys.readouterr().err
