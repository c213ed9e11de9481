"""`python -m benchmarks.history`: write the page of the stored ratios, a table and a chart of the newest versions."""

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.gate import CASES, ROOT, Row, read

PAGE = ROOT / "docs" / "performance-history.md"
CHART = ROOT / "docs" / "performance-history.svg"
BEGIN, END = "<!-- generated: ratios -->\n", "<!-- end -->"
NEWEST = 8
"""Number of versions in the table and the chart."""

_COLUMNS, _WIDTH, _HEIGHT, _BARS = 5, 196, 150, 90
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t" \
font-family="system-ui, sans-serif" font-size="11">
<title id="t">{title}</title>
<style>
  .page {{ fill: #ffffff }} .bar {{ fill: #4f43dd }} .text {{ fill: #2b2f42 }} .faint {{ fill: #60657d }}
  @media (prefers-color-scheme: dark) {{
    .page {{ fill: #14161f }} .bar {{ fill: #6a5ff0 }} .text {{ fill: #e4e6f2 }} .faint {{ fill: #a3a9c2 }}
  }}
</style>
<rect class="page" width="{width}" height="{height}" rx="10"/>
"""


def table(rows: Sequence[Row]) -> str:
    """Return the ratios as Markdown: one line for each case, one column for each of the newest versions."""
    newest = rows[-NEWEST:]
    cells = [[f"{row.ratios[case]:.2f}" if case in row.ratios else "" for row in newest] for case in CASES]
    lines = [
        ["case", *(row.version for row in newest)],
        ["---"] * (len(newest) + 1),
        *([f"`{case}`", *ratios] for case, ratios in zip(CASES, cells, strict=True)),
        ["measured", *(f"{row.date}, {row.cpus} CPUs" for row in newest)],
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(text: str, rows: Sequence[Row]) -> str:
    """Return the page with the table of these rows in place of the one that it has."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE.name} has no generated part: expected the lines {BEGIN.strip()} and {END}")
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def chart(rows: Sequence[Row]) -> str:
    """Return an SVG with a panel for each case: one bar for each of the newest versions, from zero."""
    newest = rows[-NEWEST:]
    height = _HEIGHT * -(-len(CASES) // _COLUMNS) + 10
    title = f"Ratios of the ten cases of make bench-gate, versions {', '.join(row.version for row in newest)}"
    panels = "".join(line for number, case in enumerate(CASES) for line in _panel(number, case, newest))
    return _HEAD.format(width=_COLUMNS * _WIDTH + 20, height=height, title=escape(title)) + panels + "</svg>\n"


def _panel(number: int, case: str, rows: Sequence[Row]) -> Iterator[str]:
    left, top = 10 + number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT
    yield f'<text class="text" x="{left + 8}" y="{top + 22}" font-weight="600">{escape(case)}</text>\n'
    highest = max((row.ratios[case] for row in rows if case in row.ratios), default=1)
    step = (_WIDTH - 16) / len(rows)
    for place, row in enumerate(rows):
        if (ratio := row.ratios.get(case)) is None:
            continue
        x, size = left + 8 + place * step, _BARS * ratio / highest
        bottom = top + _HEIGHT - 10
        shape = f'x="{x:.1f}" y="{bottom - size:.1f}" width="{min(step - 4, 40):.1f}" height="{size:.1f}"'
        yield f'<rect class="bar" {shape}><title>{escape(row.version)}: {ratio:.2f}</title></rect>\n'
        yield f'<text class="faint" x="{x:.1f}" y="{bottom - size - 4:.1f}" font-size="9">{ratio:.1f}</text>\n'


def write(rows: Sequence[Row]) -> None:
    """Write page and chart."""
    PAGE.write_text(page(PAGE.read_text("utf-8"), rows), "utf-8")
    CHART.write_text(chart(rows), "utf-8")


if __name__ == "__main__":
    write(read())
