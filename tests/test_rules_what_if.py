import json

import pytest
from rule_cases import busy, loop
from scripting import MS
from test_rules_fix_list import gpu_only, troubled

from traceread.errors import MissingData, SelectionError
from traceread.measurements.classes import StepClass
from traceread.model import Profile
from traceread.report import AnalysisOptions, analyze_profile
from traceread.reporters import render_document
from traceread.reporters.what_if import what_if_document
from traceread.rules.what_if import parse_question


@pytest.mark.parametrize(
    ("question", "keep"),
    [
        ("data_wait=0", {StepClass.DATA_WAIT: 0}),
        ("data_wait=0,exposed_communication=50%", {StepClass.DATA_WAIT: 0, StepClass.EXPOSED_COMMUNICATION: 500}),
        (" launch-bound = 12.5% ", {StepClass.LAUNCH_BOUND: 125}),
        ("Host sync=1", {StepClass.HOST_SYNC: 1000}),
        ("compute=100%", {StepClass.COMPUTE: 1000}),
    ],
)
def test_questions(question, keep):
    assert parse_question(question) == keep


NONSENSE = ["", "data_wait", "data_wait=", "data_wait=half", "data_wait=3", "data_wait=120%", "sleep=0", "a=0;b=0", "=0"]


@pytest.mark.parametrize("question", NONSENSE)
def test_questions_that_make_no_sense(question):
    with pytest.raises(SelectionError) as error:
        parse_question(question)
    assert error.value.hint


def test_the_answer_is_a_replay():
    report = loop(troubled, 5).report()
    nothing = report.what_if("data_wait=100%")
    assert (nothing.saving_ns, nothing.error) == (0, 0.0)
    whole, half = report.what_if("data_wait=0"), report.what_if("data_wait=50%")
    assert whole.saving_ns == next(f for f in report.findings if f.rule == "data-loading").saving_alone_ns
    assert 0 < half.saving_ns < whole.saving_ns
    assert report.what_if("data_wait=0,exposed_communication=0").saving_ns == pytest.approx(whole.saving_ns + 2 * MS, rel=0.01)
    assert loop(lambda s, n: busy(s, 20)).report().what_if("compute=50%").saving_ns == pytest.approx(20 * 250_000, rel=0.05)


def test_classes_that_no_fix_takes_away():
    report = loop(lambda s, n: busy(s, 4)).report()
    with pytest.raises(SelectionError, match="cannot take away queued"):
        report.what_if("queued=0")
    assert report.what_if("checkpoint=0").saving_ns == 0  # there is none


def test_what_cannot_be_replayed_cannot_be_asked():
    for profile in (Profile("kineto", "x", (gpu_only().trace(),)), Profile("kineto", "x", ())):
        with pytest.raises(MissingData):
            analyze_profile(profile, AnalysisOptions()).what_if("data_wait=0")


def test_in_words():
    report = loop(troubled, 5).report()
    answer = report.what_if("data_wait=0,exposed_communication=50%")
    said = render_document(what_if_document(report, answer), "text")
    assert "With no data wait and exposed communication at 50.0 % a step takes" in " ".join(said.split())
    assert said.rstrip().endswith("the unchanged steps are met exactly.")
    assert json.loads(json.dumps(answer.to_dict()))["keep"] == {"data_wait": 0.0, "exposed_communication": 0.5}
