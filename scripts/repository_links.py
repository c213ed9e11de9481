"""Relative links of Markdown pages that leave their folder become addresses in the repository."""

import posixpath
import re
from collections.abc import Callable

_CODE_OR_LINK = re.compile(r"(^```.*?^```|`[^`\n]*`)|\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)


def with_links(markdown: str, change: Callable[[str], str]) -> str:
    """Return a page with the target of each relative link changed. Code is left as it is."""

    def changed(match: re.Match[str]) -> str:
        code, link = match.groups()
        if code is not None or re.match(r"[a-z]+:|#", link):
            return match[0]
        return f"]({change(link)})"

    return _CODE_OR_LINK.sub(changed, markdown)


def in_repository(path: str, repository: str, *, branch: str = "main") -> str:
    """Return the address of a file, or of a folder if the path ends with a slash, relative to the root."""
    kind = "tree" if path.endswith("/") else "blob"
    return f"{repository.rstrip('/')}/{kind}/{branch}/{path.rstrip('/')}"


def absolute(markdown: str, repository: str) -> str:
    """Return a page of the root folder as other sites can show it: each relative link leads to the repository."""

    def address(link: str) -> str:
        found = in_repository(posixpath.normpath(link) + "/" * link.endswith("/"), repository)
        return found.replace("/blob/", "/raw/", 1) if re.search(r"\.(png|svg)$", link) else found

    return with_links(markdown, address)
