"""Passwords, however they stand in a text: none of them is shown, and what is no secret stays as it is."""

import pytest

from feed_assets.core.secrets import cause, has_secret, shown

WITH_SECRETS = {
    "postgresql://me:SECRET@h/db": "postgresql://me:***@h/db",
    "postgresql://me@host:SECRET@h/db": "postgresql://me:***@h/db",
    "postgresql://me:SE CRET@h/db": "postgresql://me:***@h/db",
    "postgresql://me:S/E?C#R@ET@h/db": "postgresql://me:***@h/db",
    "postgresql://h/db?sslpassword=SECRET&x=1": "postgresql://h/db?sslpassword=***&x=1",
    "postgresql://h/db?user=me&passwd=SECRET": "postgresql://h/db?user=me&passwd=***",
    "postgresql://h/db?password=SECRET#events": "postgresql://h/db?password=***#events",
    "mssql+pyodbc:///?odbc_connect=Driver%3DX%3BPWD%3DSECRET": "mssql+pyodbc:///?odbc_connect=***",
    "Driver={X};Server=h;PWD={SE;CRET};Uid=me": "Driver={X};Server=h;PWD=***;Uid=me",
    "sc://h:15002/;token=SECRET": "sc://h:15002/;token=***",
    "https://h/p?X-Amz-Signature=SECRET&b=2": "https://h/p?X-Amz-Signature=***&b=2",
    "{'spark.hadoop.fs.s3a.secret.key': 'SECRET', 'a': 'b'}": "{'spark.hadoop.fs.s3a.secret.key': ***, 'a': 'b'}",
    "host=h password='SE CRET' user=me": "host=h password=*** user=me",
    "SqlTable(url='postgresql://u:SECRET@h/d', table='x')": "SqlTable(url='postgresql://u:***@h/d', table='x')",
}


@pytest.mark.parametrize("text", WITH_SECRETS)
def test_a_secret_is_not_shown(text):
    assert shown(text) == WITH_SECRETS[text]
    assert has_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me@h/db",
        "file:///a@b/c:d",
        "s3://bucket/x@y",
        "sqlite:////tmp/a@b.db",
        "passes=3 partition_key=a author=me",
        "Partition(feed='a', key='2019')",
    ],
)
def test_what_is_no_secret_stays(text):
    assert shown(text) == text
    assert not has_secret(text)


SPEAKS = {
    ("postgresql://u:pw@ss@h/d", 'could not translate host name "ss@h"'): 'could not translate host name "***@h"',
    ("postgresql://u:x:SECRET@h/d", "no integer: 'SECRET'"): "no integer: '***'",
    ("postgresql://h/d?password=S%20ECRET", 'missing "=" after "S ECRET"'): 'missing "=" after "***"',
}


@pytest.mark.parametrize(("url", "said"), SPEAKS)
def test_what_a_driver_says_again_of_a_url_is_not_shown(url, said):
    assert shown(said, url) == SPEAKS[url, said]
    assert cause(ValueError(said), url) is None


def test_a_cause_without_a_secret_is_kept():
    error = ValueError("no answer")
    assert cause(error, "postgresql://u:SECRET@h/d") is error
