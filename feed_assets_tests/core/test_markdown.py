"""Foreign texts in Markdown; `test_web_ui.py` checks them in a browser."""

from feed_assets.core.charts import Bar, bars
from feed_assets.core.markdown import as_text, table, without_links
from feed_assets_tests.support.each_case import each_case

TEXTS = {
    "<img src=x onerror=alert(1)>": (r"\<img src=x onerror=alert(1)\>", r"\<img src=x onerror=alert(1)>"),
    "![x](http://evil.example)": (r"\!\[x\](http://evil.example)", r"!\[x](http://evil.example)"),
    r"\[x](http://evil.example)": (r"\\\[x\](http://evil.example)", r"\\\[x](http://evil.example)"),
    "a | b": (r"a \| b", "a | b"),
    "`code`": (r"\`code\`", "`code`"),
    "a\\|b": (r"a\\\|b", r"a\\|b"),
    "&lt;b&gt;": (r"\&lt;b\&gt;", "&lt;b&gt;"),
    "one\r\n\n# two": ("one # two", "one\r\n\n# two"),
    "plain_text: Zürich, 1.5%": ("plain_text: Zürich, 1.5%", "plain_text: Zürich, 1.5%"),
}
"""Each text as text in Markdown, and as a text without links."""


@each_case("text", TEXTS)
def test_syntax_of_markdown_in_a_text_is_escaped(text):
    assert (as_text(text), without_links(text)) == TEXTS[text]


def test_table_has_a_head_and_a_line_for_each_row():
    assert table(["a", "b"], [["1", "2"]], "---:") == "| a | b |\n| ---: | ---: |\n| 1 | 2 |"


def test_title_of_a_chart_ends_no_image():
    assert bars("x](http://evil.example)[", [Bar("a", 1, "1")]).startswith(r"![x\](http://evil.example)\[](data:image")
