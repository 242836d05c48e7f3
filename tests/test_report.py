"""One rank's report, worked out by one thread or two."""

import weakref
from dataclasses import replace

import pytest

import traceread
from traceread import report
from traceread.analysis_options import AnalysisOptions
from traceread.errors import MissingData
from traceread.reporters.json import report_dict, to_json
from traceread.simulate import Capture, scenarios, simulate, write_run


@pytest.fixture
def two_threads(monkeypatch):
    """However many rows there are."""
    monkeypatch.setattr(report, "_ROWS_FOR_TWO", (0, 1 << 62))


@pytest.fixture(scope="module", params=["data-stall", "fsdp-tail"])
def profile(request, tmp_path_factory):
    """A simulated job of which one rank is read."""
    job = scenarios()[request.param]
    folder = tmp_path_factory.mktemp("job")
    write_run(simulate(job, ranks=2), folder, Capture(), counterfactuals=False)
    return traceread.load(folder, ranks=[0])


@pytest.mark.usefixtures("two_threads")
def test_two_threads_say_what_one_says(profile):
    one, two = (report.analyze_profile(profile, AnalysisOptions(), threads) for threads in (1, 2))
    assert to_json(report_dict(two)) == to_json(report_dict(one))
    assert two.findings


@pytest.mark.usefixtures("two_threads")
def test_what_the_second_thread_meets_is_raised(profile, monkeypatch):
    def fails(*_):
        raise MissingData("no", "none")

    for name in ("launch_pace", "measure_work", "longest_gaps"):
        with monkeypatch.context() as context:
            context.setattr(report, name, fails)
            with pytest.raises(MissingData):
                report.analyze_profile(profile, AnalysisOptions(), 2)


@pytest.mark.parametrize(("rows", "threads", "expected"), [(10, 2, True), (20, 2, True), (9, 2, False), (21, 2, False), (15, 1, False)])
def test_few_rows_and_very_many_are_left_to_one_thread(rows, threads, expected, monkeypatch):
    monkeypatch.setattr(report, "_ROWS_FOR_TWO", (10, 20))
    with report._helper(rows, threads) as helper:
        assert (helper is not None) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_the_recorded_tables_go_once_the_analysis_has_its_own(profile, threads, monkeypatch):
    trace = replace(profile.traces[0], calls=profile.traces[0].calls.take(slice(None)))
    kept, recorded = [], weakref.ref(trace)
    real = report.name_idle

    def name_idle(*args):
        kept.append(recorded() is not None)
        return real(*args)

    monkeypatch.setattr(report, "name_idle", name_idle)
    monkeypatch.setattr(report, "without_impossible", lambda trace: (trace, ()))
    traces = [trace]
    del trace
    report.analyze_trace(traces.pop(), AnalysisOptions(), threads)
    assert kept == [False]
