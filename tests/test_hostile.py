"""What a file from a stranger can and cannot do; docs/security.md lists the cases. `fuzz/hostile.py` runs the large ones."""

import csv
import io
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import hostile_files as hostile
import pytest

import traceread
from traceread.cli import main
from traceread.errors import ConfigError, LimitExceeded, SelectionError
from traceread.readers import options, sqlite, unpacking
from traceread.readers.options import ReadOptions
from traceread.reporters import render

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# --- sizes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("maker", [hostile.bomb, hostile.zip_bomb])
def test_a_bomb_is_refused_by_its_ratio_and_the_flag_lifts_it(maker, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(unpacking, "UNPACKED_FREELY", 1 << 20)
    path = maker(tmp_path / "trace.json", 4 << 20)
    assert path.stat().st_size < 100_000
    code, _, err = run(capsys, "report", path)
    assert code == 1
    assert "unpacks to more than 64 times its size" in err
    assert "--max-uncompressed SIZE" in err
    assert "unpacks to more than 2097152 bytes" in run(capsys, "report", path, "--max-uncompressed", "2M")[2]
    assert run(capsys, "info", path, "--max-uncompressed", "1G")[0] == 0


def test_an_ordinary_capture_is_far_from_the_ratio(tmp_path):
    path = hostile.packed(tmp_path / "trace.json.gz", hostile.two_steps().text() * 1)
    assert len(hostile.two_steps().text()) < ReadOptions().max_unpacked_ratio * path.stat().st_size / 4
    assert ReadOptions().max_uncompressed_bytes > options.UNPACKED_FREELY


@pytest.mark.parametrize(("maker", "things"), [(hostile.gpus, "GPUs"), (hostile.threads, "host threads")])
def test_more_than_any_capture_holds_is_refused_and_the_flag_lifts_it(maker, things, tmp_path, capsys, monkeypatch):
    path = maker(tmp_path / "trace.json", 12)
    assert run(capsys, "report", path)[0] == 0
    defaults = ReadOptions(max_gpus=10, max_threads=10)
    monkeypatch.setattr(options, "ReadOptions", lambda **more: defaults)
    code, _, err = run(capsys, "report", path)
    assert code == 1
    assert re.search(rf"holds 1[23] {things}, and no more than 10 are read \[limit-exceeded\]", err)
    assert "--trust" in err
    assert run(capsys, "report", path, "--trust")[0] == 0


def test_exports_are_held_to_the_same_numbers(tmp_path):
    x = hostile.NsysExport()
    for device in range(12):
        x.kernel(0, 5, device=device)
    path = x.write(tmp_path / "a.sqlite")
    assert len(traceread.load(path).traces) == 12
    with pytest.raises(LimitExceeded, match="12 GPUs"):
        traceread.load(path, options=ReadOptions(max_gpus=11))


def test_limits_are_part_of_what_a_cache_remembers(tmp_path):
    path = hostile.gpus(tmp_path / "trace.json", 12)
    assert len(traceread.load(path, options=ReadOptions(cache=tmp_path / "cache")).traces) == 12
    with pytest.raises(LimitExceeded):
        traceread.load(path, options=ReadOptions(cache=tmp_path / "cache", max_gpus=11))


@pytest.mark.parametrize("maker", [hostile.streams, hostile.names, hostile.steps, hostile.groups, hostile.overlapping])
def test_time_grows_no_faster_than_the_file(maker, tmp_path):
    def seconds(count):
        path = maker(tmp_path / f"{count}.json", count)
        begun = time.process_time()
        report = traceread.analyze(path)
        render(report, "text")
        assert all(sum(w["classes"].values()) == w["end_ns"] - w["start_ns"] for w in report.partition.to_dict())
        return time.process_time() - begun

    seconds(100)
    small, large = min(seconds(300), seconds(300)), seconds(3000)
    assert large < 25 * small + 0.5  # ten times as much


@pytest.mark.parametrize("compiled", [True, False])
def test_a_name_longer_than_an_event_may_be_costs_its_event_alone(compiled, tmp_path):
    path = hostile.long_name(tmp_path / "trace.json", 3_000_000)
    report = traceread.load(path, options=ReadOptions(compiled=compiled, max_event_bytes=1 << 20))
    [trace] = report.traces
    assert len(trace.activities) == 2
    assert [n.slug for n in trace.notices] == ["damaged-events"]


@pytest.mark.parametrize("compiled", [True, False])
def test_deep_nesting_costs_its_event_alone(compiled, tmp_path):
    path = hostile.deep(tmp_path / "trace.json", 100_000)
    [trace] = traceread.load(path, options=ReadOptions(compiled=compiled)).traces
    assert len(trace.activities) == 2
    assert "damaged-metadata" in {n.slug for n in trace.notices}


@pytest.mark.parametrize("compiled", [True, False])
def test_times_beyond_64_bits(compiled, tmp_path):
    path = hostile.huge_times(tmp_path / "trace.json")
    report = traceread.analyze(path, options=ReadOptions(compiled=compiled))
    for window in report.partition.to_dict():
        assert sum(window["classes"].values()) == window["end_ns"] - window["start_ns"]
    assert "bad-times" in {n.slug for n in report.ranks[0].notices}
    for format in ("text", "markdown", "html", "json", "csv"):
        assert render(report, format)


# --- places ------------------------------------------------------------------------------------------------------------------


def test_links_pipes_and_devices_in_a_directory_are_named_and_left_alone(tmp_path, capsys):
    path = hostile.directory(tmp_path / "run")
    code, out, err = run(capsys, "-v", "report", path)
    assert code == 0
    assert "root:" not in out + err
    reasons = dict(re.findall(r"skipped \S*/(\S+): (.*)", err))
    assert reasons["zero.json"] == reasons["pipe.json"] == "not a regular file"
    assert "password.json" in reasons
    assert {"circle.json", "gone.json"} <= set(reasons)


def test_names_inside_a_zip_are_no_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "in"
    inside.mkdir()
    for number, name in enumerate(("../../../escaped", f"{tmp_path}/absolute", "a\\..\\b", "", "nul\x00nul", "x" * 60_000)):
        before = sorted(tmp_path.rglob("*"))
        path = hostile.zip_of_path(inside / f"{number}.zip", name)
        assert len(traceread.load(path).traces[0].activities) == 6
        assert sorted(tmp_path.rglob("*")) == sorted([*before, path])


@pytest.mark.parametrize("how", ["view", "trigger", "virtual", "generated", "index"])
def test_no_sql_of_an_export_runs(how, tmp_path):
    path = hostile.odd_database(tmp_path / "a.sqlite", how)
    content = path.read_bytes()
    before = sorted(tmp_path.iterdir())
    begun = time.process_time()
    for compiled in (True, False):
        [trace] = traceread.load(path, options=ReadOptions(compiled=compiled)).traces
        assert len(trace.activities) == (0 if how in ("view", "virtual") else 1)
        assert [trace.names[c] for c in trace.ranges.name.tolist()] == ["step 1"]
    assert time.process_time() - begun < 5
    assert path.read_bytes() == content
    assert sorted(tmp_path.iterdir()) == before


def test_an_export_cannot_be_joined_with_another_database(tmp_path):
    path = hostile.NsysExport().kernel(0, 5).write(tmp_path / "a.sqlite")
    with sqlite.opened(path) as db:
        for statement in (f"ATTACH '{tmp_path / 'b.sqlite'}' AS other", "CREATE TABLE x (a)", "DELETE FROM StringIds"):
            with pytest.raises(sqlite3.Error):
                db._connection.execute(statement)
    assert list(tmp_path.iterdir()) == [path]


# --- names -------------------------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Tags with their attributes, and attributes alone."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.attributes = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


@pytest.fixture(params=["kineto", "nsys"])
def nasty(request, tmp_path):
    folder = tmp_path / "nasty"
    folder.mkdir()
    if request.param == "kineto":
        return hostile.nasty_trace(folder / "a<b>\x1b[31m\n::error::x.json")
    return hostile.nasty_export(folder / "a<b>\x1b[31m\n::error::x.sqlite")


@pytest.mark.parametrize("verb", ["report", "info", "steps", "kernels", "ranks"])
def test_names_do_nothing_in_texts(verb, nasty, capsys):
    code, out, err = run(capsys, "-v", verb, nasty)
    assert code == 0
    assert not CONTROL.search(out + err)
    assert not re.search(r"^::", out + err, re.MULTILINE)
    code, out, err = run(capsys, verb, nasty, "-f", "markdown")
    assert not CONTROL.search(out + err)
    assert not re.search(r"<(?:script|img)|(?<!\\)\]\(javascript", out)


def test_names_do_nothing_on_pages_and_in_notebooks(nasty):
    report = traceread.analyze(nasty)
    shown = [render(report, "html"), report._repr_html_(), report.partition._repr_html_(), report.ranks[0].kernels._repr_html_()]
    profile = traceread.load(nasty)
    shown += [profile._repr_html_(), profile.traces[0]._repr_html_() if hasattr(profile.traces[0], "_repr_html_") else ""]
    for number, html in enumerate(shown):
        page = Elements(html)
        assert not {"img", "iframe", "object", "embed"} & set(page.tags)
        assert not any(name.startswith("on") for name in page.attributes)
        assert page.tags.count("script") == (3 if number == 0 else 0)
        assert not CONTROL.search(html.replace("\t", ""))


def test_names_do_nothing_in_data(nasty, tmp_path, capsys):
    code, out, _ = run(capsys, "report", nasty, "--json")
    assert code == 0
    assert json.loads(out)["format"] == 1
    assert out.isascii() or not CONTROL.search(out)
    for verb in ("report", "kernels"):
        rows = csv.reader(io.StringIO(run(capsys, verb, nasty, "-f", "csv")[1]))
        cells = [cell for row in rows for cell in row]
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "@", "\t", "\r") or re.match(r"-[^\d]", cell)]
    assert run(capsys, "export", nasty, "-o", tmp_path / "p.json")[0] == 0
    text = (tmp_path / "p.json").read_bytes()
    assert json.loads(text)["traceEvents"]
    assert not re.search(rb"[\x00-\x09\x0b-\x1f]", text)
    assert run(capsys, "export", nasty, "-o", tmp_path / "t.sqlite")[0] == 0
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as db:
        assert {name for (name,) in db.execute("SELECT name FROM kernels")} > {"=1+1", "'; DROP TABLE kernels; --"}
    assert run(capsys, "export", nasty, "-f", "csv", "-o", tmp_path / "tables")[0] == 0
    for file in (tmp_path / "tables").iterdir():
        cells = [cell for row in csv.reader(io.StringIO(file.read_text("utf-8"))) for cell in row]
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "@")]


def test_names_do_nothing_in_continuous_integration(nasty, tmp_path, capsys):
    junit = tmp_path / "junit.xml"
    code, _, err = run(capsys, "report", nasty, "--fail-on", "launch-bound", "--junit", junit, "--github")
    assert code in (0, 3)
    assert ElementTree.parse(junit).getroot().tag == "testsuites"
    assert len([line for line in err.splitlines() if line.startswith("::")]) == len(ElementTree.parse(junit).findall(".//testcase"))
    assert not CONTROL.search(err)


def test_names_do_nothing_in_prometheus_and_in_the_history(nasty, tmp_path, capsys):
    db = tmp_path / "history.db"
    assert run(capsys, "report", nasty, "--db", db, "--job", 'job\x1b[2J\n\\"}\r x')[0] == 0
    assert run(capsys, "history", db, "--prometheus", tmp_path / "metrics")[0] == 0
    out = (tmp_path / "metrics").read_text("utf-8")
    assert not CONTROL.search(out)
    sample = re.compile(r'[a-z_]+\{(?:[a-z_]+="(?:[^"\\\n]|\\[n"\\])*",?)*\} [-+.\de]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in out.splitlines())
    code, out, err = run(capsys, "history", db)
    assert code == 0
    assert not CONTROL.search(out + err)


def test_secrets_of_an_export_are_in_no_output(tmp_path, capsys, caplog):
    path = hostile.secret_export(tmp_path / "a.sqlite")
    out = tmp_path / "out"
    out.mkdir()
    shown = []
    for verb in ("report", "info", "steps", "kernels", "ranks"):
        for format in ("text", "markdown", "json", "html"):
            shown += run(capsys, "-v", verb, path, "-f", format, "--cache", tmp_path / "out" / "cache")[1:]
    shown += run(capsys, "report", path, "--db", out / "history.db", "-f", "csv")[1:]
    for target in ("a.json", "a.json.gz", "a.db"):
        shown += run(capsys, "export", path, "-o", out / target)[1:]
    shown += run(capsys, "diff", path, path, "-o", out / "diff.html")[1:]
    shown += [repr(traceread.load(path)), repr(traceread.analyze(path)), traceread.analyze(path)._repr_html_(), caplog.text]
    assert not [text for text in shown if hostile.SECRET in text]
    files = [file for file in out.rglob("*") if file.is_file()]
    assert len(files) > 10
    for file in files:
        content = hostile.gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        assert hostile.SECRET.encode() not in content, file


# --- what is the user's own ----------------------------------------------------------------------------------------------------


def test_settings_larger_than_settings_are_refused(tmp_path, capsys):
    path = hostile.two_steps().write(tmp_path / "trace.json")
    (tmp_path / "traceread.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="larger than"):
        traceread.analyze(path)
    assert run(capsys, "report", path, "--config", "/dev/null")[0] == 0


def test_settings_beside_a_trace_can_be_left_out(tmp_path, capsys):
    path = hostile.two_steps().write(tmp_path / "trace.json")
    (tmp_path / "traceread.toml").write_text("[steps]\npattern = '('\n")
    assert run(capsys, "report", path)[0] == 1
    assert run(capsys, "report", path, "--config", "/dev/null")[0] == 0


def test_a_pattern_that_never_ends_ends_with_ctrl_c(tmp_path, capsys):
    path = hostile.trace(tmp_path / "trace.json", [hostile.launched(0, name="a" * 60 + "!"), hostile.launched(1)])
    (tmp_path / "traceread.toml").write_text("[[kernels]]\npattern = '(a+)+$'\ncategory = 'compute'\n")

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        assert run(capsys, "report", path) == (130, "", "")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_plug_in_may_not_end_the_report(monkeypatch):
    from scripting import Script

    from traceread.rules import checking, rule

    def ends(error):
        def check(facts):
            raise error
            yield

        return rule("ends")(check)

    facts = Script().steps(3, lambda s, _: s.launch(10_000)).facts()
    for error in (ValueError("\x1b[2J"), RecursionError(), MemoryError(), SystemExit(3), AssertionError()):
        found = checking.check_rank(facts, [ends(error)])
        assert [n.slug for n in found.notices] == ["rule-failed"]
    with pytest.raises(KeyboardInterrupt):
        checking.check_rank(facts, [ends(KeyboardInterrupt())])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is asked of Linux")
@pytest.mark.parametrize(("head", "body"), [('{"traceEvents":[{"ph":"X","name":"', "a"), ('{"traceEvents":[', "["), ('{"a', "a")])
def test_memory_of_an_endless_value_is_bounded(head, body, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(head + body * (20 << 20))
    script = """
import re, sys, traceread
from traceread.readers.options import ReadOptions
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
import traceread.readers.nsys, traceread.readers.discover
before = peak()
try:
    traceread.load(sys.argv[1], options=ReadOptions(max_event_bytes=1 << 20, threads=1))
except traceread.TracereadError as error:
    print(error.slug, peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, cwd=Path(__file__).parents[1], check=True)
    slug, kibibytes = done.stdout.split()
    assert slug in ("corrupt-trace", "unknown-format")
    assert int(kibibytes) < 25 << 10


def test_selection_errors_are_short(tmp_path):
    path = hostile.steps(tmp_path / "trace.json", 300)
    with pytest.raises(SelectionError) as caught:
        traceread.analyze(path, steps="900:901")
    assert len(str(caught.value)) + len(caught.value.hint) < 1000
