import pytest
from step_logs import S, Writer

from traceread.errors import InputError, TraceNotFound
from traceread.steplog import find_logs, read_log


def test_a_segment_as_it_was_written(tmp_path):
    Writer(tmp_path, gpus=8).start(described={"price_per_gpu_hour": 2.5}).interval(10, 100, 5 * S, loss=2.0, batch_ids=[1, "b"])
    [path] = find_logs([tmp_path])
    [segment] = read_log(path)
    assert (segment.gpus, segment.size) == (8, path.stat().st_size)
    assert segment.described.run.price_per_gpu_hour == 2.5
    [interval] = segment.intervals
    assert (interval.step, interval.tokens, interval.wall_ns, interval.loss, interval.batch_ids) == (10, 100, 5 * S, 2.0, [1, "b"])
    assert interval.grad_norm is None
    assert segment.notices == ()


def test_a_cut_last_line_is_not_there(tmp_path):
    log = Writer(tmp_path).start().interval(1, 1, S).interval(1, 1, S)
    whole = log.path.read_bytes()
    for cut in range(whole.rindex(b"{") + 1, len(whole)):
        log.path.write_bytes(whole[:cut])
        [segment] = read_log(log.path)
        assert len(segment.intervals) == 1
        assert segment.notices == ()


def test_damaged_lines_are_left_out_and_counted(tmp_path):
    log = Writer(tmp_path).start().interval(1, 1, S)
    with log.path.open("ab") as file:
        file.write(b'{"t":1,"kind":"int\n\n\xff\xfe\n' + b"[" * 5000 + b"\n" + b"x" * (3 << 20) + b'\n{"t": -1, "kind": "end"}\n')
    log.interval(1, 1, S, dropped=3)
    [segment] = read_log(log.path)
    assert len(segment.intervals) == 2
    damaged, dropped = segment.notices
    assert (damaged.slug, damaged.message.split()[0]) == ("damaged-log", "5")
    assert (dropped.slug, dropped.message.split()[0]) == ("dropped-lines", "3")


def test_logs_put_one_after_the_other(tmp_path):
    log = Writer(tmp_path).start().interval(1, 1, S)
    Writer(tmp_path / "b", run="other").start().interval(1, 1, S)
    with log.path.open("ab") as file:
        file.write((tmp_path / "b" / "steps.segment0.jsonl").read_bytes())
    assert [s.start.run for s in read_log(log.path)] == ["run", "other"]


def test_what_is_no_step_log(tmp_path):
    with pytest.raises(TraceNotFound, match="no step log"):
        find_logs([tmp_path])
    with pytest.raises(TraceNotFound, match="does not exist"):
        find_logs([tmp_path / "none"])
    (tmp_path / "steps.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(InputError, match="is no step log"):
        read_log(tmp_path / "steps.jsonl")
    (tmp_path / "steps.jsonl").write_text("")
    assert read_log(tmp_path / "steps.jsonl") == []
