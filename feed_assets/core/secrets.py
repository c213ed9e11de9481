"""Texts without the secrets in them: for messages, metadata and names that people see (ADR 32)."""

import re
from urllib.parse import unquote

_USERINFO = re.compile(r"://([^:/@\s?#]*)[:@](.*)@")
"""Greedy, as a password may have any character in it, also `@`: rather a host is hidden than half of a password."""

_PARAMETER = re.compile(
    r"""((?:[\w.-]*?(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|credentials?|sig(?:nature)?|sas)
        |[\w.-]*(?:api|access|account|private|secret|shared)[._-]?key|odbc_connect)["']?\s*[=:]\s*)
        (\{[^}]*\}?|"[^"]*"?|'[^']*'?|[^&\s]*?(?=\#[A-Za-z_][\w.]*(?:["')\s]|$)|[&\s]|$))""",
    re.IGNORECASE | re.VERBOSE,
)
"""A parameter whose name says that it is secret, of a URL, an ODBC string, a configuration; a sink's `#table` stays."""

_SHORTEST = 4
"""Characters of a part of a password that is looked for by itself: shorter ones are parts of words."""


def shown(text: str, url: str = "") -> str:
    """A text as messages show it: without the passwords and tokens in it, nor those of a URL that it speaks of."""
    for secret in sorted(_secrets(url), key=len, reverse=True):
        pattern = re.escape(secret) + ("" if len(secret) >= _SHORTEST else "(?=@)")
        text = re.sub(pattern, "***", text)
    return _PARAMETER.sub(r"\1***", _USERINFO.sub(r"://\1:***@", text))


def has_secret(text: str) -> bool:
    """Whether a password or token stands in a text."""
    return shown(text) != text


def cause(error: Exception, url: str) -> Exception | None:
    """The cause to raise another error from: none if it says a secret of this URL, as logs print causes, too."""
    return error if shown(str(error), url) == str(error) else None


def _secrets(url: str) -> set[str]:
    """What a URL has of secrets, whole and in the parts that a driver could take for a host or a port."""
    found = [found[2] for found in _USERINFO.finditer(url)]
    parts = [part for each in found for part in re.split(r"[@:/?#&=]", each)]
    values = [found[2].strip("{}\"'") for found in _PARAMETER.finditer(url)]
    return {form for each in (*found, *parts, *values) if each for form in (each, unquote(each))}
