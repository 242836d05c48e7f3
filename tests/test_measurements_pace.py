"""How fast a host launches: the median time from launch to launch."""

from building import MS, US, Build, analyse

from traceread.measurements.pace import launch_pace


def pace_of(build):
    trace = build.trace()
    launches, steps, *_ = analyse(trace)
    return launch_pace(trace, launches, steps)


def launching(*at, thread=1, build=None):
    b = build or Build()
    for instant in at:
        b.kernel(10 * MS + instant, 10 * MS + instant + US, launch=(instant, instant + US), thread=thread)
    return b


def test_the_median_time_on_the_same_thread():
    b = launching(0, 10 * US, 20 * US, 32 * US, 140 * US)
    assert pace_of(b) == 10 * US
    assert pace_of(launching(5 * US, 9 * US, thread=2, build=b)) == 10 * US  # across threads it would be less


def test_a_long_silence_is_no_pace():
    assert pace_of(launching(0, 10 * US, 5 * MS, 5 * MS + 30 * US, 9 * MS)) == 10 * US


def test_too_few_launches_have_no_pace():
    assert pace_of(Build().kernel(10, 20)) == -1
    assert pace_of(launching(0)) == -1
