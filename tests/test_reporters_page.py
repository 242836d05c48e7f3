"""The report page without a browser: complete, self-contained, escaped, small. What it does in one: test_reporters_page_browser.py."""

import gzip
import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
import reporter_profiles as profiles
from test_cli_verbs import write_trace

import traceread
from traceread.findings import Evidence, Finding
from traceread.measurements.classes import StepClass
from traceread.reporters.methods import DEFINITIONS
from traceread.reporters.page import render_page
from traceread.reporters.sections import TIMELINES, WINDOWS, Fixes, Grid, Plot, make_sections
from traceread.rules.fix_list import FixList

EVERYTHING = profiles.everything()
MB = 1_000_000
SAMPLES = Path(__file__).parents[1] / "sample_traces"
VOID = ("meta", "br", "input")


class Reader(HTMLParser):
    """Elements in order with their attributes, and the text of those that show some; checks that tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.open, self.scripts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.scripts.append((self.elements[-1][1], data))
        elif self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def attributes(self, name):
        return [attributes[name] for _, attributes in self.elements if attributes.get(name) is not None]


def unpacked(page, id_):
    [data] = [text for attributes, text in page.scripts if attributes.get("id") == id_]
    return gzip.decompress(b64decode(data)).decode()


def policy(page):
    [found] = [a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    return found


@pytest.fixture(scope="module")
def four_ranks():
    return Reader(render_page(profiles.four_ranks()))


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_profile_makes_a_sound_page(name):
    html = render_page(EVERYTHING[name]())
    page = Reader(html)
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    for link in page.attributes("href"):
        assert link.startswith("https://") or link[1:] in ids
    for reference in page.attributes("aria-labelledby"):
        assert reference in ids
    assert page.attributes("src") == []
    assert len(html.encode()) < 3 * MB
    figures = json.loads(unpacked(page, "data"))
    assert set(figures["figures"]) | {"timeline"} >= {a["id"] for _, a in page.elements if a.get("class") == "plot"}
    assert all("template" not in f["layout"] for f in (*figures["figures"].values(), *figures["timelines"].values()))


def test_the_page_says_what_the_report_says(four_ranks):
    for words in (
        "4 of 32 ranks, 1 host",
        "The largest loss is 7.20 ms (17.1 %)",
        "recorded: DataLoader __next__ 69.4 %",
        "[odd-times]",
        "ProfilerStep#13",
        "vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >",
        "How everything is computed",
    ):
        assert words in four_ranks.text


def test_sections_can_be_jumped_to(four_ranks):
    ids = [a["id"] for tag, a in four_ranks.elements if tag == "section"]
    assert ids == ["fixes", "step", "timeline-section", "ranks", "communication", "kernels", "gaps", "steps", "recorded", "methods"]
    links = [a["href"] for tag, a in four_ranks.elements if tag == "a"]
    assert [f"#{i}" for i in ids] == [link for link in links if link[1:] in ids]


def test_only_the_page_s_own_scripts_may_run(four_ranks):
    scripts = [text for attributes, text in four_ranks.scripts if attributes.get("type") != "text/plain"]
    library = unpacked(four_ranks, "library")
    assert "plotly.js" in library[:200]
    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (*scripts, library)]
    assert len(hashes) == 2
    allowed = dict(part.split(" ", 1) for part in policy(four_ranks).split("; "))
    assert allowed["script-src"].split() == hashes
    assert allowed["default-src"] == "'none'"
    assert "connect-src" not in allowed


def test_the_library_can_be_loaded_instead():
    page = Reader(render_page(profiles.one_rank(), plotlyjs="cdn"))
    [script] = [a for tag, a in page.elements if tag == "script" and "src" in a]
    assert re.fullmatch(r"https://cdn\.plot\.ly/plotly-[\d.]+\.min\.js", script["src"])
    inline = Reader(render_page(profiles.one_rank()))
    digest = b64encode(sha256(unpacked(inline, "library").encode()).digest()).decode()
    assert script["integrity"] == f"sha256-{digest}"
    assert f"script-src 'sha256-{digest}'" not in policy(page)
    assert script["src"] in policy(page)


def test_hostile_names_stay_text():
    html = render_page(profiles.hostile())
    page = Reader(html)
    assert {tag for tag, _ in page.elements} & {"b", "img", "iframe", "object"} == set()
    assert sum(tag == "script" for tag, _ in page.elements) == 3
    assert "alert(1)" in page.text
    assert "\x1b" not in html
    for figure in json.loads(unpacked(page, "data"))["figures"].values():
        assert "<script" not in json.dumps(figure)


def test_recorded_text_cannot_close_the_script_element():
    report = profiles.one_rank()
    nasty = replace(report, title="</script><script>alert(1)</script>")
    assert "<script>alert" not in render_page(nasty)


def with_finding(report, *places):
    found = Finding(
        "late </li><b>",
        saving_ns=5_000_000,
        saving_alone_ns=6_000_000,
        step_ns_after=30_000_000,
        saving_kind="replayed",
        rule="data-loading",
        ranks=(3,),
        evidence=places,
        docs=("https://example.com/a", "javascript:alert(1)"),
        loss_ns=((StepClass.DATA_WAIT, 5_000_000),),
        fix="do it",
    )
    report = replace(report)
    report.__dict__["fix_list"] = FixList((found,), step_ns=35_000_000)
    return report


def test_evidence_links_to_its_place_in_the_timeline():
    base = profiles.one_rank()
    timeline = base.ranks[0].timeline
    inside = Evidence(3, timeline.step, timeline.start_ns + 10_000_000, timeline.start_ns + 12_000_000, "python", ("cudaFree",))
    elsewhere = replace(inside, step="other", start_ns=0, end_ns=5)
    page = Reader(render_page(with_finding(base, elsewhere, inside)))
    [link] = [a for tag, a in page.elements if a.get("class") == "evidence"]
    assert (link["href"], link["data-rank"]) == ("#timeline", "3")
    assert (float(link["data-from"]), float(link["data-to"])) == (6.0, 16.0)
    assert "2.00 ms in ProfilerStep#" in page.text
    assert "5 ns in other" in page.text
    assert "https://example.com/a" in page.attributes("href")
    assert "javascript:alert(1)" not in page.attributes("href")


def test_a_job_of_many_ranks_stays_small():
    sections = make_sections(profiles.many_ranks())
    [timeline] = [p for s in sections for p in s.parts if isinstance(p, Plot) and p.choices]
    assert len(timeline.choices) == TIMELINES
    assert "have none here" in timeline.note
    assert str(profiles.many_ranks().summary.critical_rank) == timeline.chosen
    assert len(render_page(profiles.many_ranks()).encode()) < 3 * MB


def test_windows_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr("traceread.reporters.sections.WINDOWS", 20)
    sections = make_sections(profiles.many_ranks())
    [windows] = [p for s in sections for p in s.parts if isinstance(p, Grid) and p.id == "windows"]
    assert len(windows.table.rows) == 20
    assert windows.table.note == f"and {64 * 3 - 20} more windows: traceread steps"
    assert WINDOWS >= 1000


def test_figures_without_anything_to_show_are_a_sentence():
    parts = [p for s in make_sections(profiles.hostile()) for p in s.parts]
    assert "hidden" not in [p.id for p in parts if isinstance(p, Plot)]
    assert "No communication was recorded in the used steps." in [getattr(p, "text", "") for p in parts]


def test_without_findings_the_page_says_so():
    report = replace(profiles.one_rank())
    report.__dict__["fix_list"] = FixList()
    parts = make_sections(report)[0].parts
    assert not any(isinstance(p, Fixes) for p in parts)
    assert parts[0].text.startswith("No rule found a cause")


def test_every_class_is_defined():
    assert [key for key, _, _ in DEFINITIONS] == [c.key for c in StepClass]
    page = Reader(render_page(profiles.one_rank()))
    for _, _, text in DEFINITIONS:
        assert " ".join(text.split()) in page.text


def test_without_gpu_work_the_host_rows_are_shown():
    page = Reader(render_page(profiles.host_only()))
    assert "What the host did" in page.text
    assert not any(a.get("class") == "plot" for _, a in page.elements)


@pytest.mark.parametrize("sample", ["straggler-compute", "launch-bound"])
def test_of_a_whole_capture_nothing_is_said_per_step(sample):
    report = traceread.analyze(str(SAMPLES / sample), step_range="none")
    page = Reader(render_page(report))
    figures = json.loads(unpacked(page, "data"))["figures"]
    drawn = " ".join(json.dumps(figure, ensure_ascii=False) for figure in figures.values())
    assert ("Capture of each rank" if sample == "straggler-compute" else "Capture of rank 0: ") in drawn
    assert "Kernel families: " in drawn
    assert "Communication: " in drawn
    for said in (drawn, page.text.partition("How everything is computed")[0]):
        assert not re.search(r"per step|used step|whole step|of the step|(\d|one) steps?\b", said)


def test_a_whole_capture_without_communication_has_no_used_steps(tmp_path):
    report = traceread.analyze(write_trace(tmp_path / "trace.json"), step_range="none")
    parts = [part for section in make_sections(report) for part in section.parts]
    assert "No communication was recorded." in [getattr(p, "text", "") for p in parts]
