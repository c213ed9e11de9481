"""MkDocs hooks of the documentation site: folders in the navigation, links to the repository, titles of code."""

import json
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from repository_links import in_repository, with_links
from search_passages import as_anchors, with_passages

ROOT = Path(__file__).parent.parent
_INDEXES = ("/index.md", "/README.md")
_CODE_TITLE = re.compile(r"^(```\w+) (?:title|exit)=(\S+)$", re.MULTILINE)
_LOADED = re.compile(r"<(?:script|img|iframe|link(?= [^>]*stylesheet))[^>]+(?:src|href)=[\"']?(?:https?:)?//[^\"'> ]+")
_SEARCH_BOOSTS = {
    "questions/": 1.5,
    "how-to/index": 0.2,
    "how-to/": 1.3,
    "index": 0.3,
    "comparison/": 0.9,
    "decisions/": 0.1,
    "licences": 0.1,
    "claims": 0.1,
    "performance-history": 0.2,
    "architecture": 0.5,
    "testing": 0.2,
    "reference/python": 0.7,
    "reference/testing": 0.5,
    "reference/ledger": 0.4,
    "reference/tags": 0.5,
    "reference/schemas": 0.7,
}
"""Weights of pages in the search, by the beginnings of their paths."""
_WORDS = tomllib.loads(Path(__file__).with_name("search_words.toml").read_text("utf-8"))
_SEARCH_WORDS: dict[str, str] = _WORDS["guides"] | {f"how-to/{name}": words for name, words in _WORDS["how-to"].items()}
REPOSITORY: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each `folder/*.md` in the navigation by the pages of the folder, and link the repository.

    It is a link of the footer: with MkDocs's `repo_url` each page would ask GitHub for its stars.
    """
    if gone := [page for page in _SEARCH_WORDS if not Path(config.docs_dir, f"{page}.md").is_file()]:
        raise PluginError(f"search_words.toml has words for {gone[0]}: expected a page docs/{gone[0]}.md.")
    config.nav = [*_entries(config.nav or [], Path(config.docs_dir))]
    config.extra["social"] = [{"icon": "fontawesome/brands/github", "link": REPOSITORY}]
    return config


def _entries(nav: list[Any], docs: Path) -> Iterator[Any]:
    for entry in nav:
        if not isinstance(entry, dict):
            yield entry
            continue
        ((title, below),) = entry.items()
        if isinstance(below, list):
            yield {title: [*_entries(below, docs)]}
        elif "*" not in below:
            yield entry
        elif pages := _pages(docs, below):
            yield {title: pages}


def _pages(docs: Path, pattern: str) -> list[str]:
    """Return the pages of a folder, its index first."""
    pages = [path.relative_to(docs).as_posix() for path in docs.glob(pattern)]
    return sorted(pages, key=lambda page: (not page.endswith(_INDEXES), page))


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Let links to folders and to files outside of docs/ lead to a page of the site or to the repository."""
    _weigh(page)
    here = posixpath.dirname(f"docs/{page.file.src_uri}")

    def target(link: str) -> str:
        path, hash_sign, anchor = link.partition("#")
        place = posixpath.normpath(posixpath.join(here, path))
        is_folder = (ROOT / place).is_dir()
        for name in [place + index for index in _INDEXES] if is_folder else [place]:
            if name.startswith("docs/") and files.get_file_from_path(name.removeprefix("docs/")):
                return posixpath.relpath(name, here) + hash_sign + anchor
        if place.startswith("docs/") and not is_folder:
            return link  # MkDocs reports it
        return in_repository(place + "/" * is_folder, REPOSITORY) + hash_sign + anchor

    return with_links(_CODE_TITLE.sub(_with_title, markdown), target)


def _weigh(page: Page) -> None:
    """Give a page its weight in the search, and further words that find it."""
    path = page.file.src_uri.removesuffix(".md")
    boosts = [boost for start, boost in _SEARCH_BOOSTS.items() if path.startswith(start)]
    page.meta |= {"search": {"boost": [*boosts, 1.0][0]}, "tags": _SEARCH_WORDS.get(path, "").split()}


def _with_title(fence: re.Match[str]) -> str:
    """Show the title of a block of code if it is the name of a file. Only tests use other titles, and exit codes."""
    return f'{fence[1]} title="{fence[2]}"' if "." in fence[2] else fence[1]


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """Cut long sections into passages for the search. A recipe is one passage: its first sentence is the answer."""
    html = html.replace('<span class="filename">', '<span class="filename" data-search-exclude>')
    return html if page.file.src_uri.startswith(("how-to/", "questions/")) else with_passages(html)


def on_post_build(config: MkDocsConfig) -> None:
    """Replace Material's search by one that ranks passages, and knows synonyms of the words that readers type."""
    site = Path(config.site_dir)
    index = json.loads(site.joinpath("search/search_index.json").read_text("utf-8"))
    sections = {document["location"].replace(".html", "") for document in index["docs"]}
    if gone := [name for name in _WORDS["sections"] if name not in sections]:
        raise PluginError(f"search_words.toml has words for {gone[0]}: expected a heading of the site.")
    (worker,) = site.glob("assets/javascripts/workers/search.*.min.js")
    script = Path(__file__).with_name("search_worker.js").read_text("utf-8")
    for name in ("synonyms", "sections"):
        script = script.replace(f"{name.upper()} = {{}}", f"{name.upper()} = {json.dumps(_WORDS[name])}")
    worker.write_text(script, "utf-8")


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Raise PluginError if a page loads something from another server: the site is read without a network, too."""
    if loaded := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another server: {loaded[0]}. Expected a file of the site.")
    return as_anchors(output)
