"""Passwords in texts: none is shown in any form, and other text is unchanged."""

import re
from time import process_time
from traceback import format_exception

from feed_assets.core.secrets import cause, has_secret, masked, without_secrets
from feed_assets_tests.support.each_case import each_case

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
    "postgresql://us er:SECRET@h/d": "postgresql://us er:***@h/d",
    "postgresql://us?er:SECRET@h/d": "postgresql://us?er:***@h/d",
    "postgresql://us#er:SECRET@h/d": "postgresql://us#er:***@h/d",
    "postgresql://us/er:SECRET@h/d": "postgresql://us/er:***@h/d",
    "https://SECRET@h/x": "https://***@h/x",
    "fs.azure.account.key.acc.dfs.core.windows.net=SECRET": "fs.azure.account.key.acc.dfs.core.windows.net=***",
    "Authorization: Bearer SECRET": "Authorization: ***",
    "{'Authorization': 'Basic SECRET=='}": "{'Authorization': ***}",
    "curl says bearer SECRET/SECRET": "curl says bearer ***",
    "pw=SECRET": "pw=***",
    "spark.hadoop.fs.s3a.access.key SECRET": "spark.hadoop.fs.s3a.access.key ***",
    "password='a''SECRET' x=1": "password=*** x=1",
    "PWD={a}}SECRET};x=1": "PWD=***;x=1",
    'password="SE\\"CRET" x=1': "password=*** x=1",
    "password=SE\\ CRET x=1": "password=*** x=1",
    "postgresql://u:SECRET@h/d\nhttps://u:SECRET@h": "postgresql://u:***@h/d\nhttps://u:***@h",
}


@each_case("text", WITH_SECRETS)
def test_a_secret_is_not_shown(text):
    assert masked(text) == WITH_SECRETS[text]
    assert has_secret(text)


@each_case(
    "text",
    [
        "postgresql://me@h/db",
        "file:///a@b/c:d",
        "s3://bucket/x@y",
        "sqlite:////tmp/a@b.db",
        "s3://bucket/x is not there: expected @feed_asset",
        "https://h/@x?y=1",
        "token(s) of a bearer of news",
        "passes=3 partition_key=a author=me",
        "Partition(feed='a', key='2019')",
    ],
)
def test_texts_without_secrets_are_unchanged(text):
    assert masked(text) == text
    assert not has_secret(text)


SPEAKS = {
    ("postgresql://u:pw@ss@h/d", 'could not translate host name "ss@h"'): 'could not translate host name "***@h"',
    ("postgresql://u:x:SECRET@h/d", "no integer: 'SECRET'"): "no integer: '***'",
    ("postgresql://h/d?password=S%20ECRET", 'missing "=" after "S ECRET"'): 'missing "=" after "***"',
    ("postgresql://u:test@h/d", "the latest test"): "the latest ***",
    ("postgresql://u:SE CRET S@h/d", "xSE CRET Sx"): "x***x",
}


@each_case(("url", "said"), SPEAKS)
def test_parts_of_a_url_in_driver_errors_are_masked(url, said):
    assert masked(said, url) == SPEAKS[url, said]
    assert cause(ValueError(said), url) is None


def test_a_cause_without_a_secret_is_kept():
    error = ValueError("no answer")
    assert cause(error, "postgresql://u:SECRET@h/d") is error


@each_case("piece", ["a.b_", "token.", "://a", "://a:@", "pass=\\", "'password':\"", "password ", "fs."])
def test_a_long_text_takes_no_longer_than_its_length(piece):
    began = process_time()
    masked(piece * (300_000 // len(piece)))
    assert process_time() - began < 10


SAYS = "no answer of postgresql://me:SECRET@h/d"


class OwnError(LookupError):
    """An error with more attributes than its text."""

    def __init__(self, server: str, code: int) -> None:
        super().__init__(f"asked {server}")
        self.server, self.code = server, code


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Return an error that was raised from a cause, while another error was handled."""
    try:
        try:
            {}[SAYS]
        except KeyError:
            raise error from cause
    except BaseException as caught:  # noqa: BLE001
        return caught


@each_case(
    "error",
    [
        RuntimeError(SAYS),
        OwnError(SAYS, 7),
        OSError(2, SAYS, "file"),
        SystemExit(SAYS),
        ExceptionGroup(SAYS, [ValueError("x")]),
        UnicodeDecodeError("utf-8", b"x", 0, 1, SAYS),
    ],
)
def test_an_error_keeps_kind_and_traceback_without_secrets(error):
    found = without_secrets(raised(error))
    said = "".join(format_exception(found))
    assert isinstance(found, type(error))
    assert (type(found).__name__, type(found).__module__) == (type(error).__name__, type(error).__module__)
    assert "SECRET" not in said
    assert "no answer of postgresql://me:***@h/d" in str(found)
    assert "raise error from cause" in said
    assert getattr(found, "code", 7) in (7, found.args[0])


def test_an_error_with_a_secret_in_what_led_to_it_is_itself():
    error = raised(ValueError("as it is"), raised(RuntimeError(SAYS)))
    error.add_note("see there")
    assert without_secrets(error) is error
    said = "".join(format_exception(error))
    assert "SECRET" not in said
    assert re.findall(r"\w+Error: .*", said) == [
        "RuntimeError: no answer of postgresql://me:***@h/d",
        "ValueError: as it is",
    ]


def test_a_note_of_an_error_has_no_secret():
    error = ValueError("as it is")
    error.add_note(SAYS)
    found = without_secrets(error)
    assert found.__notes__ == ["no answer of postgresql://me:***@h/d"]
    assert error.__notes__ == [SAYS]


def test_an_error_that_cannot_be_made_again_keeps_its_name():
    error = ExceptionGroup(SAYS, [ValueError("x")])
    error.args = ()
    found = without_secrets(error)
    assert type(found).__name__ == "ExceptionGroup"
    assert str(found) == "no answer of postgresql://me:***@h/d (1 sub-exception)"


class Gone(Exception):
    """Stands for a Spark error whose JVM has ended."""

    def __str__(self):
        raise ConnectionRefusedError


def test_an_error_without_readable_text_is_shown_by_its_name():
    error = raised(ValueError("as it is"), raised(Gone()))
    assert without_secrets(error) is error
    assert str(error.__cause__) == "Gone, whose text was lost with its process"
    assert str(without_secrets(Gone())) == "Gone, whose text was lost with its process"
