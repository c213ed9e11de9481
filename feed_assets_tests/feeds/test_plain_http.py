"""Plain HTTP to S3: only where the endpoint itself is plain, so that no redirect of an HTTPS one leads to it."""

import pytest

from feed_assets.feeds.stores import PATIENCE, s3_store
from feed_assets_tests.support.each_case import each_case


@each_case(
    ("endpoint", "variable", "allowed"),
    [
        ("https://s3.example", "", "false"),
        ("http://s3.example:9000", "", "true"),
        ("https://s3.example", "http://s3.example:9000", "false"),
        (None, "http://s3.example:9000", "true"),
        (None, "https://s3.example", "false"),
        (None, "", "false"),
    ],
)
def test_plain_http_is_allowed_only_to_a_plain_endpoint(endpoint, variable, allowed):
    def credentials():
        return {"access_key_id": "a", "secret_access_key": "b", "expires_at": None}

    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"):
            patch.delenv(name, raising=False)
        if variable:
            patch.setenv("AWS_ENDPOINT_URL", variable)
        store = s3_store("s3://bucket", endpoint, credentials, PATIENCE)
        assert store.client_options["allow_http"] == allowed
