"""The search of the documentation site, as its worker runs in a headless Chromium."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from feed_assets_tests.integration.web_site import QUIET, program

SCRIPTS = Path(__file__).parents[2] / "scripts"
PAGES = {
    "operations.html": ("Operations", "How to run it."),
    "operations.html#what-grows": ("What grows", "Every update stays. " + "Nothing is removed. " * 20),
    "operations.html#what-grows-passage-1": ("What grows", "It costs two requests for each update."),
    "how-to/keep.html": ("Keep 90 days", "Old updates of a feed take space.<pre>Retention(keep=3)</pre>"),
    "questions/data.html": ("Data", ""),
    "questions/data.html#one": ("Are damaged files read", "No: a file &lt;part-1&gt; that is damaged is refused."),
    "questions/data.html#two": ("Is a file read twice", "No. Each file is read once."),
    "reference.html": ("Reference", "Names such as feed_assets, feed_names and feed_paths on a disk."),
}
QUERIES = {
    "damaged file": ["questions/data.html#one", "questions/data.html#two"],
    "corrupted files": ["questions/data.html#one", "questions/data.html#two"],
    "disk": ["operations.html#what-grows", "reference.html"],
    "feeds take spa": ["how-to/keep.html", "reference.html"],
    "how does it": ["operations.html"],
    "zebra": [],
}
"""Hits of each query, best first: by stems, synonyms, words of a section, the beginning of the last word."""
ASK = """async ([script, docs, queries]) => {
    const worker = new Worker(URL.createObjectURL(new Blob([script])));
    const ask = message => new Promise(resolve => {
        worker.onmessage = event => resolve(event.data.data);
        worker.postMessage(message);
    });
    await ask({type: 0, data: {docs}});
    const hits = {};
    for (const query of queries) hits[query] = (await ask({type: 2, data: query})).items.map(item => item[0]);
    return hits;
}"""


def test_search_finds_the_passage_by_words_that_readers_type() -> None:
    tables = {"SYNONYMS": {"corrupted": "damaged"}, "SECTIONS": {"operations#what-grows": "disk full"}}
    script = (SCRIPTS / "search_worker.js").read_text(encoding="utf-8")
    for name, table in tables.items():
        script = script.replace(f"{name} = {{}}", f"{name} = {json.dumps(table)}")
    docs = [{"location": location, "title": title, "text": text} for location, (title, text) in PAGES.items()]
    with sync_playwright() as playwright:
        path = program(playwright)
        if path is None:
            pytest.skip("no Chromium for the test of the search: scripts/get_chromium.sh installs one")
        with playwright.chromium.launch(executable_path=path, args=QUIET) as browser:
            hits = browser.new_page().evaluate(ASK, [script, docs, [*QUERIES]])
    assert {query: [hit["location"] for hit in items] for query, items in hits.items()} == QUERIES
    (damaged, _), (keep, _) = hits["damaged file"], hits["feeds take spa"]
    assert damaged["text"] == ("<p>No: a <mark>file</mark> &lt;part-1&gt; that is <mark>damaged</mark> is refused.</p>")
    assert "Retention" not in keep["text"]


def test_long_sections_are_cut_into_passages_with_their_own_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    passages = import_module("search_passages")
    long, row = "<p>" + "word " * 50 + "</p>", "<tr><td>" + "word " * 20 + "</td></tr>"
    html = f'<h2 id="a">A</h2>{long}<p>second</p><table>{row}{row}</table><p>after the table</p><p>still here</p>'
    marks = passages.with_passages(html)
    assert marks.count('<h6 id="a-passage-') == 3
    beginnings = [part[:12] for part in passages.as_anchors(marks).split('id="a-passage-')[1:]]
    assert beginnings == ['1">second</p', '2"><td>word ', '3">after the']
    assert passages.as_anchors(passages.with_passages("<h2 id='a'>A</h2><p>short</p>")).count("passage") == 0
