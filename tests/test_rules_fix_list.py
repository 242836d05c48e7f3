import pytest
from rule_cases import busy, logs, loop
from scripting import ALL_REDUCE, GEMM, MS, US, Build, Script

from traceread.measurements.classes import StepClass
from traceread.model import Category, Profile
from traceread.report import AnalysisOptions, analyze_profile


def troubled(s, n):
    with s.inside("load_batch"):
        s.host(12 * MS)
    busy(s, 8)
    s.item()
    logs(s)
    busy(s, 8)
    s.collective(2 * MS)
    s.launch(100 * US)


def test_the_list_adds_up():
    report = loop(troubled, 5).report()
    assert [f.rule for f in report.findings] == ["data-loading", "item-sync", "exposed-communication"]
    after = report.fix_list.step_ns
    for finding in report.findings:
        after -= finding.saving_ns
        assert finding.step_ns_after == after
        assert finding.saving_kind == "replayed"
        assert finding.saving_alone_ns is not None
    assert after == pytest.approx(16 * 501 * US + 101 * US, rel=0.02)


def test_communication_and_copies_have_a_second_figure():
    by_rule = {f.rule: f for f in loop(troubled, 5).report().findings}
    assert by_rule["exposed-communication"].saving_overlap_ns == 0  # the next kernel needs it
    assert by_rule["item-sync"].saving_overlap_ns is None


def test_a_saving_is_worth_a_line_from_a_hundredth_on():
    def body(s, n):
        busy(s, 20)
        s.collective(80 * US)
        busy(s, 1)

    assert loop(body, 5).report().findings == ()


def launches_slowly_after_a_sync(long_kernels):
    """After .item() the GPU waits 30 µs for each of 100 launches, unless the host has got ahead behind long kernels."""

    def body(s, n):
        for _ in range(100):
            s.launch(20 * US, between=43 * US)
        busy(s, long_kernels)
        s.item()

    return loop(body, 5).report()


def test_a_cheaper_fix_of_the_same_time_is_shown_with_what_it_saves_by_itself():
    first, second = launches_slowly_after_a_sync(4).findings
    assert (first.rule, second.rule) == ("launch-bound", "item-sync")
    assert first.saving_ns == first.saving_alone_ns > second.saving_alone_ns > 1 * MS
    assert second.saving_ns == 0
    assert second.step_ns_after == first.step_ns_after


def test_the_cheaper_of_two_that_save_the_same_is_enough():
    [only] = launches_slowly_after_a_sync(20).findings
    assert only.rule == "item-sync"


def test_the_smaller_effort_comes_first_among_equal_savings():
    def body(s, n):
        for _ in range(3):
            s.copy(2 * MS, size=32 << 20, pageable=1, blocks=True)
        busy(s, 6)

    assert [f.rule for f in loop(body, 5).report().findings] == ["pageable-copy", "exposed-copy"]


def gpu_only():
    """Kernels and collectives without any launch record."""
    b = Build()
    at = 0
    for _ in range(20):
        b.activity(at, at + 1 * MS, name=GEMM)
        b.activity(at + 1 * MS, at + 2 * MS, name=ALL_REDUCE, category=Category.COMMUNICATION, stream=20)
        at += 2 * MS
    return b


def test_without_a_replay_the_size_of_the_loss_is_shown():
    report = analyze_profile(Profile("kineto", "x", (gpu_only().trace(),)), AnalysisOptions())
    [finding] = [f for f in report.findings if f.rule == "exposed-communication"]
    assert finding.saving_kind == "size of the loss"
    assert finding.saving_ns is None
    assert finding.step_ns_after is None
    assert dict(finding.loss_ns)[StepClass.EXPOSED_COMMUNICATION] == 20 * MS
    assert "launches" in report.fix_list.quality.reason


def test_a_replay_that_is_off_predicts_nothing():
    def body(s, n):
        for _ in range(5):
            s.launch(200 * US)
            s.tail[7] += 60 * US
        s.collective(1 * MS)

    report = loop(body, 5).report()
    assert report.fix_list.quality.error > 0.05
    assert "off by" in report.fix_list.quality.reason
    assert {f.saving_kind for f in report.findings} <= {"size of the loss", ""}
    assert report.findings


def ranks(*bodies):
    traces = [Script().steps(5, body).trace(rank, host=f"node{rank}") for rank, body in enumerate(bodies)]
    return analyze_profile(Profile("kineto", "x", tuple(traces)), AnalysisOptions())


def test_a_finding_names_all_ranks_that_have_it():
    report = ranks(troubled, troubled)
    assert all(f.ranks == (0, 1) for f in report.findings)
    report = ranks(lambda s, n: busy(s, 10), troubled)
    assert report.summary.critical_rank == 1
    assert all(f.ranks == (1,) for f in report.findings)


def test_what_was_found_on_faster_ranks_only_is_left_out():
    report = ranks(lambda s, n: busy(s, 60), troubled)
    assert report.summary.critical_rank == 0
    assert report.findings == ()


# The step that leads in


def host_is_slower(s, n):
    """The host needs 20 ms for a step; the GPU has nothing but an all-reduce to do at the end, behind the next step's fetch."""
    with s.inside("load_batch"):
        s.host(20 * MS)
    busy(s, 8)
    s.collective(4 * MS)
    s.launch(100 * US)


def test_what_ends_earlier_in_every_step_saves_nothing_where_the_host_is_slower():
    report = loop(host_is_slower, 5).report()
    assert [f.rule for f in report.findings] == ["data-loading", "exposed-communication"]
    assert report.findings[1].saving_alone_ns == 0
    assert report.findings[1].saving_ns > 2 * MS
    assert "once what stands above is done" in report.findings[1].why
    assert "once what stands above is done" not in report.findings[0].why


def test_calls_and_host_time_are_those_of_the_used_steps():
    def body(s, n):
        busy(s, 8)
        s.item()
        logs(s)

    report = loop(body, 5).report()
    [finding] = [f for f in report.findings if f.rule == "item-sync"]
    used = len(report.rank(0).used_rows())
    assert used < 5
    assert f"{used} such calls over {used} steps" in finding.why


def test_a_cause_that_another_hides_is_listed_with_what_it_saves_then():
    """Collections of 8 ms would hold the GPU up if the loader did not do so for longer already."""

    def body(s, n):
        with s.inside("gc.collect"):
            s.host(8 * MS)
        with s.inside("load_batch"):
            s.host(20 * MS)
        busy(s, 8)

    report = loop(body, 5).report()
    assert [f.rule for f in report.findings] == ["data-loading", "gc-pause"]
    assert report.fix_list.step_ns - sum(f.saving_ns for f in report.findings) == pytest.approx(8 * 501 * US, rel=0.02)


def test_the_host_gets_ahead_without_a_sync():
    first = launches_slowly_after_a_sync(20).findings[0]
    assert first.saving_alone_ns > first.total_loss_ns
    assert "the host also gets ahead" in first.why
