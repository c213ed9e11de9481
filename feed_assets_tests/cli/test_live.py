"""`/status` of the web UI: a separate process makes the page, with the options of the query; no Dagster server."""

import asyncio
import re
from base64 import b64encode
from hashlib import sha256

import pytest

from feed_assets.cli.live import StatusPage
from feed_assets_tests.support import status_project
from feed_assets_tests.support.status_project import DAY


@pytest.fixture(scope="module")
def home(tmp_path_factory, empty_ledger):
    with status_project.filled_home(tmp_path_factory.mktemp("live"), empty_ledger) as folder:
        yield folder


async def other(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b"of another"})


def ask(
    *queries: str, path: str = "/status", method: str = "GET", rounds: int = 2, kept_seconds: float = 100
) -> list[tuple[int, dict[str, str], str]]:
    """Return status, headers and text of the answers; each round starts after all answers of the previous one."""
    page = StatusPage(other, status_project.__name__, kept_seconds)

    async def one(query):
        told = []

        async def send(message):
            told.append(message)

        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
        await page(scope, None, send)
        headers = {name.decode(): value.decode() for name, value in told[0]["headers"]}
        return told[0]["status"], headers, told[1]["body"].decode()

    async def every():
        told = []
        for _ in range(rounds):
            told += [await one(query) for query in queries]
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(tasks)
        return told

    return asyncio.run(every())


def test_the_first_visit_says_that_the_status_page_is_being_made_and_reloads(home):
    asked = f"day={DAY}&days=1&dataset=web/foo"
    at_once, same, (_, headers, text), again = ask(asked, f"{asked}&other=1")
    assert (at_once[0], "is being made" in at_once[2], at_once[1]["refresh"]) == (200, True, "2")
    assert "prefers-color-scheme: dark" in at_once[2], "it has the style of the page"
    assert 'href="/"' in at_once[2], "meanwhile one may go to Dagster's pages"
    assert same[2] == at_once[2]
    assert "is being made" not in text
    assert headers["refresh"] == "60"
    assert again[2] == text, "the same question is one"


def test_the_page_of_all_datasets_is_made_as_the_server_starts(home):
    async def start_and_visit():
        page = StatusPage(other, status_project.__name__)
        await page({"type": "lifespan"}, None, lambda _: asyncio.sleep(0))
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks)
        sent = []

        async def send(message):
            sent.append(message)

        await page({"type": "http", "method": "GET", "path": "/status", "query_string": b"", "headers": []}, None, send)
        return sent[1]["body"].decode()

    assert "Newest periods of each dataset" in asyncio.run(start_and_visit())


def test_an_old_page_is_shown_at_once_while_a_new_one_is_made(home):
    _, (status, headers, old), (_, _, new) = ask(f"day={DAY}&days=1&dataset=web/foo", rounds=3, kept_seconds=0)
    assert (status, headers["refresh"], "Tue 2026-01-20" in old) == (200, "2", True)
    assert new != old, "it says as of when it is"


def test_the_page_is_as_of_now_and_leads_to_the_assets_and_to_other_days(home):
    _, (status, headers, text) = ask(f"day={DAY}&days=1&dataset=web/foo")
    assert status == 200
    assert "Tue 2026-01-20" in text
    assert '<a href="/assets/web/foo?view=partitions">in Dagster</a>' in text
    assert "web/feature" not in text
    assert '<a href="?day=2026-01-19&amp;days=1&amp;dataset=web%2Ffoo">earlier</a>' in text
    assert headers["content-security-policy"].startswith("default-src 'none'")
    (script,) = re.findall(r"<script>(.*)</script>", text, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in headers["content-security-policy"], "no other script runs"


def test_a_status_query_accepts_known_options_only_and_reports_errors_as_text(home, tmp_path):
    stolen = tmp_path / "stolen.html"
    _, (status, headers, text) = ask(f"html={stolen}&json=&day=--html={stolen}&dataset=%00&day=<script>")
    assert (status, stolen.exists()) == (400, False)
    assert "expected a day, such as 2026-01-01" in text
    assert "&lt;script&gt;" in text
    assert text.count("<script>") == 1, "that of the page"
    assert "refresh" not in headers


def test_other_requests_are_answered_by_dagsters_web_server(home):
    assert [ask("", path=path)[0][0] for path in ("/", "/status/", "/graphql")] == [204, 204, 204]
    assert ask("", method="POST")[0][0] == 204
