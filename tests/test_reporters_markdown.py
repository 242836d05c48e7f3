import re

import pytest
import reporter_profiles as profiles

from traceread.reporters import render
from traceread.reporters.document import Bar, Column, Document, Listing, Name, Paragraph, Table
from traceread.reporters.markdown import render_markdown

EVERYTHING = profiles.everything()
BAR = re.compile(r"(?<!\\)\|")


def test_report_is_the_golden_one(gold):
    gold("report-four-ranks.md", render(profiles.four_ranks(), "markdown"))


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_row_has_the_cells_of_its_table(name):
    cells = None
    for line in render(EVERYTHING[name](), "markdown").splitlines():
        if not line.startswith("|"):
            cells = None
            continue
        count = len(BAR.findall(line))
        assert count == (cells or count), line
        cells = count


def test_names_cannot_become_html_links_or_cells():
    text = render(profiles.hostile(), "markdown")
    assert "<" not in text
    assert "\x1b" not in text
    assert "\\[x\\](javascript:y)" in text
    assert "\\`\\$x\\$\\`\\|" in text


def test_blocks():
    table = Table((Column("a|b", right=True), Column("n")), (("1", Name("void k<int>(int)")), ("2", Bar(1, 2, "x"))), title="t", note="n*")
    listing = Listing("list", (("1. one", "why: two"),), numbered=True)
    assert render_markdown(Document(("h", "#1"), (Paragraph("- not a list"), table, listing))) == (
        "# h · #1\n\n"
        "\\- not a list\n\n"
        "## t\n\n| a\\|b | n |\n|---:|---|\n| 1 | k&lt;int&gt; |\n| 2 | ██████████ |\n\nn\\*\n\n"
        "## list\n\n1. 1\\. one\\\n   why: two\n"
    )
