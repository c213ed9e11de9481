"""Authorization of requests to the web UI, one by one. In a browser: `integration/test_web_ui.py`."""

import asyncio
from typing import Any

from feed_assets.cli.front import PROOF, CheckedRequest, Front, FrontAnswer, judge
from feed_assets_tests.support.each_case import each_case

PORT, TOKEN = 3000, "the-token"
HERE = "127.0.0.1:3000"
COOKIE = {"host": HERE, "cookie": f"other=1; feed_assets_3000={TOKEN}"}
JSON = {"content-type": "application/json"}
VISIT = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def ask(method: str = "GET", path: str = "/", headers: dict[str, str] = COOKIE, **query: str) -> FrontAnswer | None:
    return judge(CheckedRequest(method, path, tuple(query.items()), headers), PORT, TOKEN)


def status(*args: Any, **query: str) -> int:
    answer = ask(*args, **query)
    return answer.status if answer else 200


@each_case(
    ("query", "cookie"),
    [((("token", "old"),), ""), ((), f"feed_assets_{PORT}=old")],
)
def test_a_wrong_token_is_refused_with_the_cookie_to_remove(query, cookie):
    answer = judge(CheckedRequest("GET", "/runs", query, {"host": f"127.0.0.1:{PORT}", "cookie": cookie}), PORT, TOKEN)
    assert answer.status == 403
    assert "not the token of the web UI that runs here" in answer.text
    assert f"the cookie feed_assets_{PORT}" in answer.text


def test_a_page_of_its_own_passes():
    """Include a proxy which sets `Host` and `Origin`: browsers send the outer ones."""
    headers = {**COOKIE, **JSON, "host": HERE, "origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}
    assert ask("POST", "/graphql", headers) is None
    assert status("POST", "/graphql", {**headers, "origin": "https://ui.example"}) == 403


@each_case("host", ["localhost:3000", "[::1]:3000"])
def test_a_name_under_which_another_user_may_listen_is_refused_with_the_one_to_use(host):
    answer = ask("GET", "/", {**COOKIE, "host": host}, token=TOKEN)
    assert answer
    assert (answer.status, answer.asks) == (403, False)
    assert "expected 127.0.0.1:3000, also through a tunnel. Open that address." in answer.text


def test_a_program_passes_which_sends_neither_origin_nor_site():
    assert ask("POST", "/graphql", COOKIE | JSON) is None


@each_case(
    "host",
    [
        "",
        "evil.example:3000",
        "127.0.0.1",
        "127.0.0.1:3001",
        "127.0.0.1.evil.example:3000",
        "127.0.0.2:3000",
        f"{HERE}, x",
    ],
)
def test_a_foreign_host_name_is_refused_even_with_the_token(host):
    assert status("GET", "/", {**COOKIE, "host": host}, token=TOKEN) == 403
    assert status("GET", PROOF, {"host": host}, challenge="1") == 403


def test_on_the_port_of_http_there_is_none_in_the_name():
    cookie = {"cookie": f"feed_assets_80={TOKEN}"}
    assert judge(CheckedRequest("GET", "/", (), {**cookie, "host": "127.0.0.1"}), 80, TOKEN) is None


@each_case(
    "origin",
    ["null", "http://evil.example", "https://127.0.0.1:3000", "http://127.0.0.1:9000", "http://localhost:3000"],
)
@each_case(("method", "path"), [("POST", "/graphql"), ("POST", "/report_asset_check/a"), ("GET", "/graphql")])
def test_a_page_of_another_origin_is_refused(origin, method, path):
    """Include a WebSocket handshake, which browsers allow to any page."""
    assert status(method, path, {**COOKIE, **JSON, "origin": origin}) == 403


@each_case("site", ["cross-site", "same-site"])
@each_case("mode", [{}, {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}])
def test_a_request_that_another_site_s_page_loads_is_refused(site, mode):
    """`same-site` is another port of this machine."""
    assert status("GET", "/assets", {**COOKIE, **mode, "sec-fetch-site": site}) == 403


def test_a_link_of_another_page_may_be_followed_but_not_by_a_form_nor_into_a_frame():
    visit = {**COOKIE, **VISIT, "sec-fetch-site": "cross-site"}
    assert ask("GET", "/assets", visit) is None
    assert status("POST", "/graphql", visit | JSON) == 403
    assert (status("GET", "/notebook", visit), status("GET", "/dagit/notebook/", visit)) == (403, 403)
    assert status("GET", "/assets", {**visit, "sec-fetch-dest": "iframe"}) == 403


@each_case("path", ["/graphql", "/graphql/"])
@each_case("method", ["GET", "HEAD", "PUT"])
def test_graphql_accepts_only_post(method, path):
    assert status(method, path, COOKIE, query="mutation{wipeAssets{__typename}}") == 403


def test_the_graphql_page_for_people_is_shown():
    assert ask("GET", "/graphql", {**COOKIE, "accept": "text/html,*/*"}) is None


def test_a_websocket_of_its_own_passes_and_a_get_that_only_names_one_does_not():
    """Refuse a request without `Connection: Upgrade`: the server would answer it as a GET, which Dagster executes."""
    headers = {**COOKIE, "upgrade": "websocket", "origin": f"http://{HERE}"}
    assert served({**scope_of("websocket", headers), "path": "/graphql"})[1] == ["websocket"]
    sent, seen = served({**scope_of("http", headers, b"query=mutation{wipeAssets}"), "path": "/graphql"})
    assert (sent[0]["status"], seen) == (403, [])


@each_case("kind", ["", "application/x-www-form-urlencoded", "text/plain; application/json", "text/plain"])
def test_graphql_refuses_content_types_that_a_form_can_post(kind):
    assert status("POST", "/graphql", {**COOKIE, "content-type": kind}) == 403
    assert ask("POST", "/graphql", {**COOKIE, "content-type": "application/json; charset=utf-8"}) is None


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address():
    answer = ask("GET", "/assets/a b", {"host": HERE}, view="x&y", token=TOKEN)
    assert answer == FrontAnswer(
        303,
        headers=(
            ("location", "/assets/a%20b?view=x%26y"),
            ("set-cookie", f"feed_assets_3000={TOKEN}; Path=/; HttpOnly; SameSite=Lax"),
        ),
    )


@each_case("path", ["//evil.example", "/\\evil.example"])
def test_the_token_redirect_stays_on_this_server(path):
    answer = ask("GET", path, {"host": HERE}, token=TOKEN)
    place = dict(answer.headers)["location"]
    assert place.startswith("/")
    assert place[1:2] not in {"/", "\\"}


@each_case("path", ["/graphql\n", "/notebook\n", "/a\r\nset-cookie: x=y", PROOF + "\0"])
def test_an_address_with_control_characters_is_refused_before_anything_else(path):
    """Dagster's router ignores a line end behind a path, and calls its function although `judge` has other rules."""
    visit = {**COOKIE, **VISIT, "sec-fetch-site": "cross-site"}
    for headers, query in ((COOKIE, {}), (COOKIE | JSON, {}), (visit, {}), ({"host": HERE}, {"token": TOKEN})):
        answer = ask("GET", path, headers, **query)
        assert (answer.status, answer.asks, answer.headers) == (400, False, ())
        assert "has control characters: expected none" in answer.text
    assert served({**scope_of("websocket", COOKIE), "path": path})[1] == []
    assert ask("GET", "/assets/caf\u00e9\u00a0b", COOKIE) is None


@each_case("token", ["", "the-toke", "the-token2", "tökén"])
def test_without_the_token_a_page_says_where_to_find_it(token):
    wrong = {"host": HERE, "cookie": f"feed_assets_3000={token}; feed_assets_3001={TOKEN}"}
    for answer in (
        ask("GET", "/", wrong),
        ask("GET", "/", {"host": HERE}, token=token),
        ask("GET", "/", {"host": HERE}),
    ):
        assert answer
        assert (answer.status, answer.asks) == (403, True)
        assert "Open the address that `feed-assets ui` printed" in answer.text


def test_the_token_in_an_address_is_for_visits_alone():
    assert status("POST", "/graphql", {"host": HERE, **JSON}, token=TOKEN) == 403


def served(scope: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the messages that a front sends for a request, and the requests that reached its application."""
    sent: list[dict[str, Any]] = []
    seen: list[str] = []

    async def app(scope, _receive, send):
        seen.append(scope["type"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    asyncio.run(Front(app, PORT, TOKEN)(scope, None, send))
    return sent, seen


def scope_of(kind: str, headers: dict[str, str], query: bytes = b"") -> dict[str, Any]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    method = {"method": "GET"} if kind == "http" else {}
    return {"type": kind, "path": "/", "query_string": query, "headers": raw, **method}


def test_allowed_requests_reach_dagster_and_its_pages_forbid_framing():
    sent, seen = served(scope_of("http", COOKIE))
    assert seen == ["http"]
    assert (b"x-frame-options", b"SAMEORIGIN") in sent[0]["headers"]
    assert served({"type": "lifespan"}) == ([], ["lifespan"])
    assert served(scope_of("websocket", COOKIE))[1] == ["websocket"]


def test_refused_requests_never_reach_dagster():
    assert served(scope_of("websocket", {"host": HERE})) == ([{"type": "websocket.close", "code": 1008}], [])
    sent, seen = served(scope_of("http", {"host": HERE, "accept": "text/html"}))
    assert (sent[0]["status"], seen) == (403, [])
    assert b'<input name="token"' in sent[1]["body"]


def test_a_refusal_page_does_not_repeat_request_headers():
    sent, _ = served(scope_of("http", {"host": "<script>", "accept": "text/html"}))
    assert b"<script>" not in sent[1]["body"]
    assert b"<input" not in sent[1]["body"]


def test_a_repeated_header_is_refused():
    scope = scope_of("http", COOKIE)
    scope["headers"].append((b"host", b"evil.example"))
    assert served(scope)[0][0]["status"] == 403


def test_a_graphql_page_for_people_is_recognized_by_its_accept_header():
    """Use a GET whose first `Accept` is another one: Dagster would execute it."""
    scope = scope_of("http", {**COOKIE, "accept": "*/*"}, b"query=mutation{a}") | {"path": "/graphql"}
    scope["headers"].append((b"accept", b"text/html"))
    sent, seen = served(scope)
    assert (sent[0]["status"], seen) == (403, [])


def test_pages_of_the_front_forbid_framing_caching_and_foreign_referrers():
    sent, _ = served(scope_of("http", {"host": HERE}))
    assert "frame-ancestors 'none'" in dict(sent[0]["headers"])[b"content-security-policy"].decode()
    headers = dict(served(scope_of("http", {"host": HERE}, b"token=the-token"))[0][0]["headers"])
    assert (headers[b"referrer-policy"], headers[b"cache-control"]) == (b"same-origin", b"no-store")
