"""Backfills as the dialog of the web UI requests them."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

NONE: Mapping[str, str] = {}
"""Cookies for Dagster's own web server, which needs none."""

LAUNCH = """
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""


def ask(port: int, query: str, variables: dict[str, Any], cookie: Mapping[str, str] = NONE) -> dict[str, Any]:
    """Return a web server's answer to a GraphQL query."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json", **cookie})
    with urlopen(request, timeout=30) as response:  # noqa: S310
        return json.load(response)["data"]


def launch(port: int, assets: list[str], partitions: list[str], cookie: Mapping[str, str] = NONE) -> str:
    """Launch a backfill of some partitions of some assets. Return its id."""
    selection = [{"path": asset.split("/")} for asset in assets]
    launched = ask(port, LAUNCH, {"params": {"assetSelection": selection, "partitionNames": partitions}}, cookie)
    return launched["launchPartitionBackfill"]["backfillId"]
