"""`/status` of the web UI: made by a process of its own, with the options that a query may have; no Dagster server."""

import asyncio

import pytest

from feed_assets.cli.live import StatusPage
from feed_assets_tests.cli import status_world
from feed_assets_tests.cli.status_world import DAY


@pytest.fixture(scope="module")
def home(tmp_path_factory, empty_ledger):
    with status_world.filled(tmp_path_factory.mktemp("live"), empty_ledger) as folder:
        yield folder


async def other(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b"of another"})


def ask(*queries: str, path: str = "/status", method: str = "GET") -> list[tuple[int, dict[str, str], str]]:
    """Status, headers and text of the answers, all asked for at once."""
    page = StatusPage(other, status_world.__name__)

    async def one(query):
        told = []

        async def send(message):
            told.append(message)

        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
        await page(scope, None, send)
        headers = {name.decode(): value.decode() for name, value in told[0]["headers"]}
        return told[0]["status"], headers, told[1]["body"].decode()

    async def every():
        return await asyncio.gather(*map(one, queries))

    return asyncio.run(every())


def test_the_page_is_as_of_now_and_leads_to_the_assets_and_to_other_days(home):
    (status, headers, text), again = ask(f"day={DAY}&days=1&dataset=web/foo", f"day={DAY}&days=1&dataset=web/foo")
    assert status == 200
    assert "Tue 2026-01-20" in text
    assert '<a href="/assets/web/foo?view=partitions">web/foo</a>' in text
    assert "web/feature" not in text
    assert '<a href="?day=2026-01-19&amp;days=1&amp;dataset=web%2Ffoo">earlier</a>' in text
    assert again[2] == text, "the second one waits for the first, and gets the same"
    assert headers["refresh"] == "60"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "script" not in headers["content-security-policy"]


def test_a_query_brings_no_other_options_and_what_is_wrong_with_it_is_said_as_text(home, tmp_path):
    stolen = tmp_path / "stolen.html"
    ((status, headers, text),) = ask(f"html={stolen}&json=&day=--html={stolen}&dataset=%00&day=<script>")
    assert (status, stolen.exists()) == (400, False)
    assert "expected a day, such as 2026-01-01" in text
    assert "&lt;script&gt;" in text
    assert "<script>" not in text
    assert "refresh" not in headers


def test_everything_else_is_answered_by_the_web_server(home):
    assert [ask("", path=path)[0][0] for path in ("/", "/status/", "/graphql")] == [204, 204, 204]
    assert ask("", method="POST")[0][0] == 204
