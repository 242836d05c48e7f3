"""What results look like in a notebook: one line of text, a bounded and escaped fragment of HTML, never an exception."""

from dataclasses import fields, replace

import pytest
import reporter_profiles as profiles
from test_reporters_html import FRAGMENT, Reader

import traceread
from traceread.findings import Finding
from traceread.measurements.kernels import KernelTable
from traceread.reporters import notebook
from traceread.rules.fix_list import FixList

EVERYTHING = profiles.everything()


def results(report):
    yield report
    yield report.partition
    yield report.fix_list
    yield report.rank_table
    yield from report.findings[:2]
    for r in report.ranks[:2]:
        yield from (r, r.kernels)
        if r.timeline is not None:
            yield r.timeline


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_result_of_every_profile(name):
    for result in results(EVERYTHING[name]()):
        text = repr(result)
        assert text.startswith(f"<{type(result).__name__}")
        assert len(text) < 6000
        html = result._repr_html_()
        assert len(html) < 40_000
        fragment = Reader(html)
        assert fragment.tags[0] == "div", html
        assert set(fragment.tags) <= FRAGMENT
        assert "\x1b" not in html


def test_a_report_reads_like_the_page_in_small():
    text = Reader(profiles.four_ranks()._repr_html_()).text
    for words in ("The largest loss is", "fix first", "the GPU waits for the next batch", "longest idle gaps", "[odd-times]"):
        assert words in text


def test_a_finding_says_where():
    finding = profiles.four_ranks().findings[0]
    text = Reader(finding._repr_html_()).text
    assert finding.title in text
    assert "where" in text
    assert finding.evidence[0].step in text


def test_empty_results():
    assert "No rule found" in FixList()._repr_html_()
    assert "No GPU work" in KernelTable((), 0, 0)._repr_html_()
    assert Reader(Finding("<b>")._repr_html_()).text.endswith("<b> []")


@pytest.mark.parametrize(
    "content",
    [
        '{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]}',
        '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{}},{"ph":"X","cat":"ker',
        '[{"ph":"X","cat":"Kernel","name":"k","pid":0,"tid":7,"ts":0,"dur":-5,"args":{"stream":-1}}',
        '{"traceEvents":[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":1,"dur":0}]}',
        '{"traceEvents":[{"ph":"X","cat":"gpu_memcpy","name":"Memcpy ??","pid":0,"tid":7,"ts":1e300,"dur":1},'
        '{"ph":"X","cat":"gpu_memcpy","name":"","pid":0,"tid":7,"ts":5,"dur":0}]}',
    ],
)
def test_damaged_and_nearly_empty_captures(content, tmp_path):
    (tmp_path / "a.json").write_text(content)
    profile = traceread.load(tmp_path / "a.json")
    report = traceread.analyze(profile)
    for result in (profile, profile.traces[0], *results(report)):
        assert repr(result)
        assert "<div" in result._repr_html_()
    for figure in (report.plot(), report.partition.plot(), report.fix_list.plot(), report.rank_table.plot()):
        assert figure.layout.title.text


class Damaged:
    def __getattr__(self, name):
        raise RuntimeError("damaged <b>")

    def __repr__(self):
        return "<Damaged thing>"


def test_a_damaged_result_shows_its_text():
    shows = (notebook.rank_html, notebook.fix_list_html, notebook.finding_html, notebook.kernels_html, notebook.timeline_html)
    for show in shows:
        assert show(Damaged()) == "<pre>&lt;Damaged thing&gt;</pre>"


def test_results_with_parts_missing_do_not_raise():
    report = profiles.one_rank()
    rank = report.ranks[0]
    for name in [f.name for f in fields(rank)]:
        broken = replace(rank, **{name: None})
        assert replace(report, ranks=(broken,))._repr_html_()
        assert broken._repr_html_()
