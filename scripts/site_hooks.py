"""MkDocs hooks of the documentation site: the home page, folders in the navigation, links to the repository."""

import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from repository_links import in_repository, with_links

ROOT = Path(__file__).parent.parent
HOME, DECISIONS = "index.md", "decisions/index.md"
_CODE_TITLE = re.compile(r"^(```\w+) title=(\S+)$", re.MULTILINE)
_LOADED = re.compile(r"<(?:script|img|iframe|link(?= [^>]*stylesheet))[^>]+(?:src|href)=[\"']?(?:https?:)?//[^\"'> ]+")
REPOSITORY: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each `folder/*.md` in the navigation by the pages of the folder, and link the repository.

    It is a link of the footer: with MkDocs's `repo_url` each page would ask GitHub for its stars.
    """
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
    """Return the pages of a folder, its index first. The index of the decisions is made here."""
    pages = {path.relative_to(docs).as_posix() for path in docs.glob(pattern)}
    if DECISIONS.startswith(pattern.partition("*")[0]):
        pages.add(DECISIONS)
    return sorted(pages, key=lambda page: (not page.endswith("/index.md"), page))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no file in docs/: the README is the home page, and decisions have a list."""
    readme = with_links((ROOT / "README.md").read_text("utf-8"), lambda link: posixpath.relpath(link, "docs"))
    files.append(File.generated(config, HOME, content=readme))
    decisions = sorted(Path(config.docs_dir, "decisions").glob("[0-9]*.md"))
    files.append(File.generated(config, DECISIONS, content=_list_of(decisions)))
    return files


def _list_of(decisions: list[Path]) -> str:
    titles = [page.read_text("utf-8").partition("\n")[0].removeprefix("# ") for page in decisions]
    links = [f"- [{title}]({page.name})" for title, page in zip(titles, decisions, strict=True)]
    return "\n".join(
        ["# Decisions", "", "Each page is one decision: its context, the choice and the reasons.", "", *links]
    )


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Let links to folders and to files outside of docs/ lead to a page of the site or to the repository."""
    here = posixpath.dirname(f"docs/{page.file.src_uri}")

    def target(link: str) -> str:
        path, hash_sign, anchor = link.partition("#")
        place = posixpath.normpath(posixpath.join(here, path))
        is_folder = (ROOT / place).is_dir()
        name = f"{place}/index.md" if is_folder else "docs/index.md" if place == "README.md" else place
        if files.get_file_from_path(name.removeprefix("docs/")) is not None and name.startswith("docs/"):
            return posixpath.relpath(name, here) + hash_sign + anchor
        outside = is_folder or not name.startswith("docs/")
        return in_repository(place + "/" * is_folder, REPOSITORY) + hash_sign + anchor if outside else link

    return with_links(_CODE_TITLE.sub(_with_title, markdown), target)


def _with_title(fence: re.Match[str]) -> str:
    """Show the title of a block of code if it is the name of a file. Tests use the other titles."""
    return f'{fence[1]} title="{fence[2]}"' if "." in fence[2] else fence[1]


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Raise PluginError if a page loads something from another server: the site is read without a network, too."""
    if loaded := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another server: {loaded[0]}. Expected a file of the site.")
    return output
