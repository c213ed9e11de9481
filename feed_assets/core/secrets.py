"""Removal of secrets from messages, metadata and names that people see (ADR 32)."""

import re
from typing import Any
from urllib.parse import unquote

from feed_assets.core.message_words import LONGEST_REASON, text_of

_USER = re.compile(r"://((?!/)[^:@]*(?=:(?!\s))|[^:/@\s?#]*)[:@]")
"""The user in a URL, and the character after the user. Some drivers allow a blank, `/`, `?` or `#` in a user.

A colon with a blank after it is punctuation of the sentence, not part of a URL.
"""

_TOKEN = re.compile(r"\b((?:https?|wss?|sc)://)[^/:@\s?#]+@|\b(bearer\s+)[\w.~+/-]{8,}=*", re.IGNORECASE)
"""A user without a password in a URL of a scheme that normally has no user, or the token of a header."""

_PARAMETER = re.compile(
    r"""((?<![\w.-])(?:
            (?:[\w.-]*?(?:pass(?:word|wd|phrase|code)?|pwd?|secret|token|credentials?|sig(?:nature)?|sas|authorization)
            |[\w.-]*(?:api|access|account|private|secret|shared)[._-]?key|odbc_connect)(?:\.[\w.-]{,99})?["']?\s*[=:]\s*
            |(?:spark|fs)\.[\w.-]*(?:key|password|secret|token)(?:\.[\w.-]{,99})?[ \t]+))
        (\{(?:[^}]|\}\})*\}?|"(?:[^"\\]|\\.|"")*"?|'(?:[^'\\]|\\.|'')*'?
        |(?:(?:basic|bearer|digest|negotiate|token)\s+)?
         (?:\\.|[^&\s])*?(?=\#[A-Za-z_][\w.]*(?:["')\s]|$)|[&\s]|$))""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""A parameter whose name shows that it is secret, in a URL, an ODBC string, a configuration or a header.

The `#table` of a sink's URL is not hidden. The look-behind keeps the search linear for a long text without blanks.
"""

_SHORTEST, _SHORT = 4, 8
"""Lengths of parts of a password. Parts below the first length are hidden only before an `@`.

Other parts below the second length are hidden only as whole words.
"""


def masked(text: str, url: str = "") -> str:
    """Return a text without the passwords and tokens in it, and without the passwords and tokens of `url`.

    A short part of the password of `url` is hidden only as a whole word. If it were hidden inside other words, too, a
    reader could guess it from the rest of these words.
    """
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = re.sub(_where(secret), "***", text)
    text = _TOKEN.sub(lambda match: f"{match[1]}***@" if match[1] else f"{match[2]}***", text)
    for password in reversed(_passwords(text)):
        text = f"{text[: password.start]}:***{text[password.stop :]}"
    return _PARAMETER.sub(r"\1***", text)


def _passwords(text: str) -> list[slice]:
    """Return the positions of the passwords in URLs, with the colon before them. Each ends at the last `@` of its line.

    A password may contain any character, even `@`. It is better to hide a host, too, than to show half of a password.
    """
    slices, begin = list[slice](), 0
    for line in text.splitlines(keepends=True):
        user, end = _USER.search(line), line.rfind("@")
        if user and user.end() <= end:
            slices.append(slice(begin + user.end(1), begin + end))
        begin += len(line)
    return slices


def _where(secret: str) -> str:
    """Return a pattern that finds a secret in a text."""
    if len(secret) >= _SHORT:
        return re.escape(secret)
    return rf"(?<![^\W_]){re.escape(secret)}" + ("(?=@)" if len(secret) < _SHORTEST else r"(?![^\W_])")


def has_secret(text: str) -> bool:
    """Return whether a text contains a password or token."""
    return masked(text) != text


def cause(error: Exception, url: str) -> Exception | None:
    """Return `error`, for `raise … from`. Return None if its text has a secret of `url`, because logs print causes.

    Return None for a very long text, too: another team's database view may raise an error of megabytes.
    """
    text = str(error)
    return error if len(text) <= LONGEST_REASON and masked(text, url) == text else None


def _secrets(url: str) -> set[str]:
    """Return the secrets of a URL, and their parts that a driver could mistake for a host or a port."""
    passwords = [url[password][1:] for password in _passwords(url)]
    parts = [part for each in passwords for part in re.split(r"[@:/?#&=]", each)]
    values = [found[2].strip("{}\"'") for found in _PARAMETER.finditer(url)]
    return {form for each in (*passwords, *parts, *values) if each for form in (each, unquote(each))}


def without_secrets(error: BaseException) -> BaseException:
    """Return an error without secrets in its texts, causes and contexts.

    The result is the error itself, or a copy whose class has the same name. Raise the result outside of `except`.
    Otherwise Python attaches the original error as its context.
    """
    error_by_id: dict[int, BaseException] = {}
    _follow(error, error_by_id)
    clean_by_id = {key: _like(each) if _says(each) else each for key, each in error_by_id.items()}
    for key, each in error_by_id.items():
        cause, context, is_hidden = each.__cause__, each.__context__, each.__suppress_context__
        clean_by_id[key].__cause__ = clean_by_id[id(cause)] if cause else None
        clean_by_id[key].__context__ = clean_by_id[id(context)] if context else None
        clean_by_id[key].__suppress_context__ = is_hidden
    return clean_by_id[id(error)]


def _follow(error: BaseException, error_by_id: dict[int, BaseException]) -> None:
    """Collect an error with all its causes and contexts."""
    pending = [error]
    while pending:
        each = pending.pop()
        if id(each) not in error_by_id:
            error_by_id[id(each)] = each
            pending += [led for led in (each.__cause__, each.__context__) if led]


def _says(error: BaseException) -> bool:
    """Return whether the text of an error contains a secret, or cannot be read."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (as in `text_of`)
        return True
    return any(map(has_secret, (text, *_texts(error).values(), *getattr(error, "__notes__", ()))))


def _texts(error: BaseException) -> dict[str, str]:
    return {name: value for name, value in vars(error).items() if isinstance(value, str)}


def _like(error: BaseException) -> BaseException:
    """Return a copy of an error without secrets. The copy has the same traceback, and the same handlers catch it."""
    args = tuple(masked(each) if isinstance(each, str) else each for each in error.args)
    like = _again(type(error), masked(text_of(error)), args)
    vars(like).update(vars(error), **{name: masked(value) for name, value in _texts(error).items()})
    if notes := getattr(error, "__notes__", None):
        vars(like)["__notes__"] = [masked(note) for note in notes]
    return like.with_traceback(error.__traceback__)


def _again(kind: type[BaseException], text: str, args: tuple[object, ...]) -> BaseException:
    """Return an error with this text. Its class is a subclass of `kind`, so that the same handlers catch it.

    The constructor of `kind` is not called, because it may need other arguments. If Python's own constructor refuses
    the arguments, return an error of a class that has only the name of `kind`.
    """

    def says(_: BaseException) -> str:
        return text

    names: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": says}
    native: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    try:
        like: BaseException = native.__new__(type(kind.__name__, (kind,), names), *args)
        native.__init__(like, *args)
    except (TypeError, ValueError):  # The constructor refuses the masked arguments.
        return type(kind.__name__, (Exception,), names)(*args)
    return like
