import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceread.names import clean, kernel_title, missing_list, number_list, path_title, row_title, shorten, step_list


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("a\r\nb\tc", "a b c"),
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\u202eb", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\udc80b", "a\N{REPLACEMENT CHARACTER}b"),
        ("ядро ☃", "ядро ☃"),
    ],
)
def test_clean(recorded, shown):
    assert clean(recorded) == shown


@given(st.text())
def test_clean_text_is_printable_and_stays_so(text):
    cleaned = clean(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in cleaned)
    assert clean(cleaned) == cleaned
    cleaned.encode("utf-8")


@given(st.text(), st.integers(0, 50))
def test_shortened_text_fits_and_keeps_both_ends(text, width):
    short = shorten(text, width)
    assert len(short) <= width
    if len(text) <= width:
        assert short == text
    elif width > 8:
        assert short.startswith(text[:4])
        assert short.endswith(text[-2:])


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("void foo<int>(int, char*)", "foo<int>"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllGather_RING_LL"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("void at::native::(anonymous namespace)::softmax<(int)4, (bool)1>(float)", "softmax<4, 1>"),
        ("void <unnamed>::norm<float>(T1)", "norm<float>"),
        ("Cijk_Alik_Bljk.kd", "Cijk_Alik_Bljk"),
        ("foo(int) [clone .kd]", "foo"),
        ("gemm((lambda)(1))", "gemm"),
        ("unbalanced)", "unbalanced)"),
        ("(only)", "(only)"),
        ("", ""),
    ],
)
def test_kernel_title(recorded, shown):
    assert kernel_title(recorded) == shown


def test_row_title():
    assert row_title("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__") == "DataLoader __next__"
    assert row_title("train_step") == "train_step"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("run/", "run/"),
        ("/a/long/way/down/to/trace.json", "…/down/to/trace.json"),
        ("x" * 30, "xxxxxxxxxxxxx…xxxxxx"),
        ("a" * 15 + "/" + "b" * 30, "bbbbbbbbbbbbb…bbbbbb"),
    ],
)
def test_path_title(path, shown):
    assert path_title(path, 20) == shown


@given(st.text(), st.integers(4, 60))
def test_path_title_fits(path, width):
    assert len(path_title(path, width)) <= width


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["ProfilerStep#12"], "ProfilerStep#12"),
        (["ProfilerStep#12", "ProfilerStep#13"], "ProfilerStep#12, 13"),
        ([f"ProfilerStep#{i}" for i in range(12, 17)], "ProfilerStep#12–16"),
        (["train_step", "train_step"], "train_step × 2"),
        (["train_step"], "train_step"),
        (["epoch 1 step 2 of 9"], "epoch 1 step 2 of 9"),
        (["step 3", "step 7"], "step 3, 7"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        ([], ""),
    ],
)
def test_step_list(labels, text):
    assert step_list(labels) == text


def test_number_list_is_bounded():
    assert number_list([0, 1, 2, 3, 7]) == "0–3, 7"
    assert number_list([2 * i for i in range(10)]) == "0, 2, 4, 6, 8, 10 and 4 more"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, float)",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >",
        ),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::F<int>, at::detail::Array<char *, 3>, 4, "
            "Offsets<2, unsigned int>>(int)",
            "unrolled_elementwise_kernel<F<int>, 4, Offsets<2, unsigned int>>",
        ),
        ("k<array<float, 3> >", "k<array<float, 3> >"),
    ],
)
def test_kernel_titles_leave_out_arrays_of_pointers(name, title):
    assert kernel_title(name) == title


@pytest.mark.parametrize(
    ("present", "count", "missing"),
    [
        ([0, 1, 2, 3], 4, ""),
        ([0, 3], 4, "1, 2"),
        ([7, 3], 32, "0–2, 4–6, 8–31"),
        ([], 0, ""),
        ([5, -1, 9], 4, "0–3"),
        ([1, 1], 2, "0"),
        (range(0, 40, 2), 40, "1, 3, 5, 7, 9, 11 and 14 more"),
        ([1], 1 << 60, f"0, 2–{(1 << 60) - 1}"),
    ],
)
def test_missing_list_takes_no_more_than_what_is_there(present, count, missing):
    assert missing_list(present, count) == missing
