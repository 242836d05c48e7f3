from html.parser import HTMLParser

import pytest
import reporter_profiles as profiles

from traceread.model import Profile
from traceread.reporters import render_document
from traceread.reporters.answer import report_document
from traceread.reporters.notebook import ROWS

EVERYTHING = profiles.everything()
FRAGMENT = {"style", "div", "p", "span", "table", "thead", "tbody", "tfoot", "tr", "th", "td", "ol", "ul", "li", "br"}
TAGS = FRAGMENT | {"html", "head", "meta", "title", "body"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page_of(report):
    return render_document(report_document(report), "html")


@pytest.mark.parametrize("name", EVERYTHING)
def test_page_is_sound_and_loads_nothing(name):
    page = Reader(page_of(EVERYTHING[name]()))
    assert set(page.tags) <= TAGS
    assert {key for key, _ in page.attributes} <= {"class", "style", "title", "lang", "charset", "name", "content", "scope"}


def test_page_says_what_the_text_says():
    report = profiles.four_ranks()
    page = Reader(page_of(report)).text
    for words in ("4 of 32 ranks, 1 host", "The largest loss is 7.20 ms (17.1 %)", "recorded: DataLoader __next__ 69.4 %", "[odd-times]"):
        assert words in page


def test_names_stay_text():
    page = page_of(profiles.hostile())
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "alert(1)" in Reader(page).text
    assert "{{7*7}}" in Reader(page).text


@pytest.mark.parametrize("name", EVERYTHING)
def test_notebook_reprs_are_bounded_fragments(name):
    report = EVERYTHING[name]()
    for html in (report._repr_html_(), report.partition._repr_html_()):
        fragment = Reader(html)
        assert set(fragment.tags) <= FRAGMENT
        assert len(html) < 40_000
        assert fragment.tags[0] == "div"
        assert dict(fragment.attributes)["class"]


def test_style_of_a_fragment_reaches_nothing_else():
    html = profiles.one_rank()._repr_html_()
    style = html[html.index("<style>") + 7 : html.index("</style>")]
    selectors = [s.strip() for rule in style.split("}") for s in rule.split("{")[0].split(",") if s.strip()]
    assert len(selectors) > 10
    assert all(s.startswith(".traceread") for s in selectors)
    assert "currentColor" in style


def test_partition_of_many_windows_says_how_many_are_left_out():
    text = Reader(profiles.many_ranks().partition._repr_html_()).text
    assert f"and {64 * 3 - ROWS} more windows: .to_frame()" in text


def test_profile_and_trace():
    traces = tuple(profiles.build_rank(r) for r in range(12))
    profile = Profile("kineto", "run/", traces)
    assert repr(profile) == "<Profile 12 ranks, NVIDIA H100 80GB HBM3, kineto>"
    assert "and 2 more ranks" in Reader(profile._repr_html_()).text
    assert "stream_waits" in Reader(traces[0]._repr_html_()).text
    assert Reader(Profile("kineto", "", ())._repr_html_()).text.startswith("· Profile 0 ranks")


class Damaged:
    def __getattr__(self, name):
        raise RuntimeError("damaged <b>")

    def __repr__(self):
        return "<Damaged thing>"


class Worse(Damaged):
    def __repr__(self):
        raise ValueError


def test_a_damaged_result_shows_its_text():
    from traceread.reporters import notebook

    for show in (notebook.report_html, notebook.partition_html, notebook.profile_html, notebook.trace_html):
        assert show(Damaged()) == "<pre>&lt;Damaged thing&gt;</pre>"
        assert show(Worse()) == "<pre>&lt;Worse&gt;</pre>"
