import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceread.categories import host
from traceread.categories.host import Blocker, CallRole, HostNames
from traceread.errors import ConfigError
from traceread.model import RangeKind

ENTRIES = [
    (meaning, section, entry) for meaning, sections in host._shipped().items() for section, entries in sections.items() for entry in entries
]


@pytest.mark.parametrize(("meaning", "section", "entry"), ENTRIES, ids=[f"{m}-{s}-{i}" for i, (m, s, _) in enumerate(ENTRIES)])
def test_every_pattern_finds_its_examples_and_leaves_the_others_alone(meaning, section, entry):
    find = host._compiled(entry["pattern"], section)
    unless = host._compiled(entry["unless"], section) if "unless" in entry else None
    for name in entry["example"]:
        assert find.search(name), name
        assert unless is None or not unless.search(name), name
        assert host._find((meaning,), section, name) == meaning
    for name in entry.get("not", []):
        assert host._find((meaning,), section, name) is None, name


@pytest.mark.parametrize(("meaning", "section", "entry"), ENTRIES, ids=[f"{m}-{s}-{i}" for i, (m, s, _) in enumerate(ENTRIES)])
@given(data=st.data())
def test_every_name_that_a_pattern_finds_holds_one_of_its_words(meaning, section, entry, data):
    found = st.from_regex(host._compiled(entry["pattern"], section), alphabet=st.characters(codec="ascii"))
    name = data.draw(found)
    assert any(word in name.casefold() for word in entry["words"])
    assert all(word == word.casefold() for word in entry["words"])


def test_a_priority_decides_between_two_meanings():
    names = ["checkpoint data_wait"]
    found = HostNames().range_blockers(names, np.array([0], np.int32), np.array([RangeKind.ANNOTATION], np.uint8))
    assert found.tolist() == [Blocker.CHECKPOINT]


def test_the_same_text_means_different_things_in_different_rows():
    names = ["torch/utils/data/dataloader.py(1): __next__", "cudaStreamSynchronize", "poll"]
    kinds = np.array([RangeKind.PYTHON, RangeKind.OS, RangeKind.OS], np.uint8)
    assert HostNames().range_blockers(names, np.arange(3, dtype=np.int32), kinds).tolist() == [
        Blocker.DATA_WAIT,
        Blocker.NONE,
        Blocker.NONE,
    ]
    assert HostNames().call_blockers(names, np.arange(3, dtype=np.int32)).tolist() == [Blocker.NONE, Blocker.HOST_SYNC, Blocker.NONE]


def test_roles_of_calls():
    names = ["cudaLaunchKernel", "cudaGraphLaunch", "cudaLaunchHostFunc", "cudaMemcpyAsync"]
    roles = HostNames().call_roles(names, np.array([3, 2, 1, 0], np.int32)).tolist()
    assert roles == [CallRole.OTHER, CallRole.HOST_FUNCTION, CallRole.GRAPH_LAUNCH, CallRole.KERNEL_LAUNCH]


def test_users_names_win():
    names = ["my_fetch", "get_batch", "fetch(1)"]
    host_names = HostNames({"my_fetch": "data_wait", "get_batch": "ignore", "fetch(1)": "checkpoint"})
    kinds = np.full(3, RangeKind.ANNOTATION, np.uint8)
    found = host_names.range_blockers(names, np.arange(3, dtype=np.int32), kinds)
    assert found.tolist() == [Blocker.DATA_WAIT, Blocker.NONE, Blocker.CHECKPOINT]


def test_an_unknown_meaning_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigError) as error:
        HostNames({"x": "slow"})
    assert "data_wait" in error.value.hint
