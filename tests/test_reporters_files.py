import os
import stat
import sys
from pathlib import Path

import pytest
import reporter_profiles as profiles

from traceread.errors import OutputError
from traceread.reporters import format_of, render, save_report
from traceread.reporters.files import write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("name", "start"), [("a.txt", "run/"), ("a.md", "# run"), ("a.JSON", "{"), ("a.csv", "rank,"), ("a.html", "<!DOCTYPE")]
)
def test_save_picks_the_format_by_extension(tmp_path, name, start):
    path = tmp_path / name
    assert profiles.one_rank().save(path) == path
    assert path.read_text("utf-8").startswith(start)
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("name", ["report", "report.pdf", ".json"])
def test_unknown_extension(tmp_path, name):
    with pytest.raises(OutputError) as caught:
        save_report(profiles.one_rank(), tmp_path / name)
    assert ".md" in caught.value.hint
    assert names(tmp_path) == []


def test_a_missing_directory_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(OutputError) as caught:
        write_text(tmp_path / "no such" / "report.md", "text")
    assert caught.value.hint == f"mkdir -p '{tmp_path}/no such'"


def test_unknown_format():
    with pytest.raises(OutputError, match="no format 'pdf'"):
        render(profiles.one_rank(), "pdf")


def test_format_of(tmp_path):
    assert format_of(tmp_path / "x.markdown") == "markdown"


def test_a_failure_keeps_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "report.md"
    path.write_text("good")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OutputError, match="No space left on device"):
        write_text(path, "half")
    assert path.read_text() == "good"
    assert names(tmp_path) == ["report.md"]


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "report.md", "half")
    assert names(tmp_path) == []


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("old")
    path.chmod(0o640)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    write_text(tmp_path / "link.md", "new")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(OutputError, match="directory"):
        write_text(tmp_path, "x")


def test_a_missing_directory(tmp_path):
    with pytest.raises(OutputError, match="No such file"):
        write_text(tmp_path / "no" / "a.md", "x")


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev/null")
def test_devices_are_written_to_not_replaced():
    write_text(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()


def test_text_that_utf8_cannot_hold_is_replaced(tmp_path):
    write_text(tmp_path / "a.txt", "a\udc80b")
    assert (tmp_path / "a.txt").read_bytes() == b"a?b"
