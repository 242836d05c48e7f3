"""How often steps that do not differ are called different, and steps that do are found."""

import numpy as np
import pytest

from traceread.comparison.noise import Verdict, _critical, _estimate, compare_means, compare_medians, count_stalls

MS = 1_000_000


def jittered(rng, trials, steps, phi=0.0, spread=0.01):
    """Rows of relative step times around 1 with a spread of 1 %, neighbours correlated by `phi`."""
    noise = rng.standard_normal((trials, steps))
    for i in range(1, steps):
        noise[:, i] = phi * noise[:, i - 1] + np.sqrt(1 - phi**2) * noise[:, i]
    return 1 + spread * noise


def called_different(before, after, typical=False):
    """How many rows are called different; what compare_means and compare_medians do, for many pairs at once."""
    found = _estimate(before, after, typical)
    n, m = before.shape[1], after.shape[1]
    return int((np.abs(found.difference) > _critical(min(n, m), max(n, m), typical) * found.error).sum())


@pytest.mark.parametrize("typical", [False, True], ids=["mean", "median"])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("steps", [(3, 3), (5, 5), (10, 10), (5, 20), (30, 30), (100, 100)], ids=str)
def test_equal_sides_are_called_different_in_at_most_5_percent(steps, phi, typical):
    rng = np.random.default_rng(7)
    trials = 4000
    found = called_different(jittered(rng, trials, steps[0], phi), jittered(rng, trials, steps[1], phi), typical)
    assert found <= 0.06 * trials


@pytest.mark.parametrize("typical", [False, True], ids=["mean", "median"])
@pytest.mark.parametrize("steps", [5, 10, 20, 40])
def test_sides_that_drift_slowly_are_called_different_in_at_most_8_percent(steps, typical):
    """16 of 200, neighbours correlated by 0.8."""
    rng = np.random.default_rng(8)
    found = called_different(jittered(rng, 10_000, steps, 0.8), jittered(rng, 10_000, steps, 0.8), typical)
    assert found <= 0.08 * 10_000


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.8])
def test_of_200_equal_pairs_at_most_16_are_called_different(phi):
    rng = np.random.default_rng(1)
    before, after = (jittered(rng, 200, 10, phi) for _ in range(2))
    called = sum(
        compare_means(
            np.rint(b * 100 * MS).astype(np.int64).tolist(), np.rint(a * 100 * MS).astype(np.int64).tolist()
        ).verdict.is_difference
        for b, a in zip(before, after, strict=True)
    )
    assert called <= 16


def test_skewed_steps_are_no_differences():
    rng = np.random.default_rng(2)
    before, after = (1 + 0.01 * rng.exponential(size=(4000, 12)) for _ in range(2))
    assert called_different(before, after) <= 0.06 * 4000


def test_three_percent_over_ten_steps_at_one_percent_jitter_is_found_in_95_percent():
    rng = np.random.default_rng(3)
    found = called_different(jittered(rng, 4000, 10), 1.03 * jittered(rng, 4000, 10))
    assert found >= 0.95 * 4000


def test_the_interval_covers_the_difference_in_95_percent():
    rng = np.random.default_rng(4)
    before, after = jittered(rng, 2000, 8, 0.4), 1.01 * jittered(rng, 2000, 8, 0.4)
    missed = called_different(before, after / 1.01)
    assert missed <= 0.06 * 2000


def test_ranks_are_not_more_steps():
    """Five steps on eight ranks that wait for each other are five steps: were they forty, noise would pass for a difference."""
    rng = np.random.default_rng(5)
    before, after = jittered(rng, 2000, 5), jittered(rng, 2000, 5)
    assert called_different(before, after) <= 0.06 * 2000
    assert called_different(np.tile(before, 8), np.tile(after, 8)) > 0.06 * 2000


def test_a_side_and_itself():
    found = compare_means([100, 102, 101], [100, 102, 101])
    assert (found.difference_ns, found.verdict, found.steps_needed) == (0, Verdict.NONE, None)


def test_the_other_way_round():
    before, after = [100 * MS, 101 * MS, 99 * MS, 100 * MS], [90 * MS, 91 * MS, 92 * MS, 90 * MS, 89 * MS]
    there, back = compare_means(before, after), compare_means(after, before)
    assert there.verdict is Verdict.FASTER
    assert back.verdict is Verdict.SLOWER
    assert there.difference_ns == -back.difference_ns
    assert there.error_ns == back.error_ns
    assert there.interval_ns == (-back.interval_ns[1], -back.interval_ns[0])


def test_the_same_for_the_same_steps():
    before, after = [100, 105, 95, 102], [99, 107, 93, 108]
    assert compare_means(before, after) == compare_means(before, after)
    assert compare_medians(before, after) == compare_medians(before, after)


def test_shifting_all_times_changes_no_interval():
    before, after = [100, 105, 95, 102], [99, 107, 93, 108]
    near, far = compare_means(before, after), compare_means([ns + 10**15 for ns in before], [ns + 10**15 for ns in after])
    assert (near.difference_ns, near.error_ns, near.verdict) == (far.difference_ns, far.error_ns, far.verdict)


@pytest.mark.parametrize(("before", "after"), [([], [1, 2]), ([5], [5, 6]), ([5, 6, 7], [9])])
def test_one_step_says_nothing_about_scatter(before, after):
    found = compare_means(before, after)
    assert (found.verdict, found.error_ns, found.visible_ns, found.steps_needed) == (Verdict.TOO_FEW, None, None, None)


def test_two_steps_show_what_is_large():
    assert compare_means([3_600_000_100, 3_600_000_000], [2_900_000_050, 2_900_000_000]).verdict is Verdict.FASTER


def test_steps_needed_show_the_difference_four_times_out_of_five():
    rng = np.random.default_rng(6)
    few = [round(100 * MS * x) for x in jittered(rng, 1, 8)[0]]
    found = compare_means(few, [ns + MS // 2 for ns in few])
    needed = found.steps_needed
    assert found.verdict is Verdict.NONE
    assert 20 < needed < 300
    shown = called_different(
        jittered(rng, 2000, needed, spread=found.scatter_ns / 1e8), 1.005 * jittered(rng, 2000, needed, spread=found.scatter_ns / 1e8)
    )
    assert 0.7 * 2000 < shown < 0.9 * 2000


def test_what_these_steps_do_not_show_needs_more_of_them():
    steps = [100 * MS, 101 * MS, 99 * MS, 100 * MS, 100 * MS, 101 * MS]
    found = compare_means(steps, steps)
    assert found.steps_to_show(found.visible_ns - 1) == 7
    assert found.steps_to_show(2 * found.visible_ns) < 7


@pytest.mark.parametrize("steps", [4, 5, 7])
def test_few_steps_show_ten_times_their_scatter(steps):
    """Chance makes few steps look correlated; that must not hide what is obvious."""
    rng = np.random.default_rng(9)
    assert called_different(jittered(rng, 2000, steps), 1.10 * jittered(rng, 2000, steps)) >= 0.98 * 2000


def test_what_these_steps_would_show():
    rng = np.random.default_rng(8)
    before, after = ([round(100 * MS * x) for x in jittered(rng, 1, 40)[0]] for _ in range(2))
    visible = compare_means(before, after).visible_ns
    assert compare_means(before, [ns + 2 * visible for ns in after]).verdict is Verdict.SLOWER
    assert compare_means(before, after).steps_to_show(visible) == pytest.approx(40, rel=0.5)
    assert compare_means(before, after).steps_to_show(1) is None


def test_a_stall_hides_a_change_from_the_mean_but_not_from_the_median():
    before = [100 * MS, 101 * MS, 99 * MS, 100 * MS, 102 * MS, 100 * MS, 99 * MS, 101 * MS]
    after = [110 * MS, 111 * MS, 109 * MS, 110 * MS, 400 * MS, 110 * MS, 109 * MS, 111 * MS]
    assert compare_means(before, after).verdict is Verdict.NONE
    assert compare_medians(before, after).verdict is Verdict.SLOWER
    assert count_stalls(before) == 0
    assert count_stalls(after) == 1


@pytest.mark.parametrize(
    ("steps", "stalls"),
    [([], 0), ([5, 100], 0), ([10, 10, 10, 12], 1), ([10, 10, 10, 11], 0), ([100, 109, 91, 105, 130], 0), ([7] * 9, 0)],
)
def test_stalls_stand_out_by_a_tenth_and_by_five_spreads(steps, stalls):
    assert count_stalls(steps) == stalls
