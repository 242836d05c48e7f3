import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceread.categories import FAMILIES, Patterns, classify, possible_communication
from traceread.errors import ConfigError
from traceread.model import (
    Activities,
    ActivityKind,
    Calls,
    Category,
    CopyKind,
    Device,
    RangeKind,
    Ranges,
    StreamWaits,
    Thread,
    Trace,
)

COMPUTE, COMMUNICATION, COPY = Category.COMPUTE, Category.COMMUNICATION, Category.COPY
CATALOGUE = Path(__file__).parents[2] / "shared" / "dossiers" / "kernel_names.tsv"

# Written after reading every name of the catalogue: its communication kernels are exactly those that contain one of these.
COMMUNICATION_IN_CATALOGUE = ("ncclKernel_", "ncclDevKernel_", "multimem_all_reduce_kernel", "dpsk::ep::internode::")


@pytest.fixture(scope="module")
def patterns() -> Patterns:
    return Patterns.load()


@pytest.fixture(scope="module")
def catalogue() -> list[tuple[str, int]]:
    """Name and total µs of the kernels of many real traces."""
    if not CATALOGUE.exists():
        pytest.skip(f"no catalogue of real kernel names at {CATALOGUE}")
    lines = CATALOGUE.read_text("utf-8").splitlines()[1:]
    assert len(lines) == 1243
    rows = [line.split("\t") for line in lines]
    return [(row[0], int(row[3])) for row in rows if row[1].lower() == "kernel"]


def of(name: str, patterns: Patterns) -> tuple[Category, str, int]:
    category, family, fused = patterns.classify_names([name])
    return Category(int(category[0])), FAMILIES[int(family[0])], int(fused[0])


# ---------------------------------------------------------------- the data


def test_families_are_the_codes_of_the_model() -> None:
    assert FAMILIES[0] == "other"
    assert len(set(FAMILIES)) == len(FAMILIES) == 17
    assert FAMILIES.index("communication") == 15
    assert FAMILIES.index("copy") == 16


def test_every_shipped_rule_decides_its_own_example(patterns: Patterns) -> None:
    decided_by = patterns.first_match([rule.example for rule in patterns.rules])
    stolen = [
        f"{rule.example} is decided by {patterns.rules[by].pattern if by >= 0 else 'no rule'}, not by {rule.pattern}"
        for position, (rule, by) in enumerate(zip(patterns.rules, decided_by.tolist(), strict=True))
        if by != position
    ]
    assert not stolen, "\n".join(stolen)


PATTERNS = [
    "[aA]bc", "[aA]bc?d", "[aA]bc|d", "b[cd]", "[a]?bc", "[aA]bcd*", "[aA]bc{0}d", "[aA](?:bc|d)", "[aA]b_?c(?<!x[aA]bc)",
    "abc", "a_b", "a::b", "^ab",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=st.text("abcdAx_:", max_size=12))
def test_words_are_looked_for_first_and_change_nothing(pattern: str, text: str) -> None:
    patterns = Patterns.load([{"pattern": pattern, "family": "gemm"}])
    assert bool(patterns.rules[0].finds(text)) == (re.search(pattern, text) is not None)


def test_shipped_patterns_are_found_as_expressions_are(patterns: Patterns) -> None:
    names = [rule.example for rule in patterns.rules]
    for rule in patterns.rules:
        expected = [re.search(rule.pattern, name) is not None for name in names]
        assert [bool(rule.finds(name)) for name in names] == expected, rule.pattern


def test_every_compute_family_of_kernels_has_a_rule(patterns: Patterns) -> None:
    ruled = {FAMILIES[rule.family] for rule in patterns.rules}
    assert ruled == set(FAMILIES) - {"other", "graph", "copy"}


def test_only_communication_is_fused(patterns: Patterns) -> None:
    fused = [rule for rule in patterns.rules if rule.fused]
    assert fused
    assert all(rule.category is COMMUNICATION for rule in fused)


def test_communication_is_right_on_every_real_name(patterns: Patterns, catalogue: list[tuple[str, int]]) -> None:
    names = [name for name, _ in catalogue]
    expected = {name for name in names if any(part in name for part in COMMUNICATION_IN_CATALOGUE)}
    category, _, _ = patterns.classify_names(names)
    found = {name for name, c in zip(names, category.tolist(), strict=True) if c == COMMUNICATION}
    assert len(expected) == 13
    assert found == expected


def test_families_cover_the_compute_time_of_real_kernels(patterns: Patterns, catalogue: list[tuple[str, int]]) -> None:
    category, family, _ = patterns.classify_names([name for name, _ in catalogue])
    time_us = np.array([us for _, us in catalogue])
    compute = category == COMPUTE
    assert time_us[compute & (family != 0)].sum() >= 0.95 * time_us[compute].sum()


def test_no_real_name_is_suspected_of_communication_wrongly(catalogue: list[tuple[str, int]]) -> None:
    names = [name for name, _ in catalogue]
    assert not possible_communication(names).any()


# ---------------------------------------------------------------- names that mislead


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("triton_poi_fused_all_reduce_0", "triton"),
        ("triton_red_fused_add_native_layer_norm_wait_tensor_12", "triton"),
        ("triton_tem_fused_mm_3", "gemm"),
        ("triton_tem_fused_flex_attention_backward_9", "attention"),
        ("void (anonymous namespace)::groupnorm_kernel_dispatch_up<__half, 1024u>(unsigned int)", "normalisation"),
        ("void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*>::Policy>(long*)", "reduction"),
        ("_combined_routing_compute", "embedding"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", "reduction"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float> > >(int)", "reduction"),
        ("void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<float>(int)", "embedding"),
        ("void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)", "embedding"),
        ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", "embedding"),
        ("void implicit_convolve_sgemm<float, float, 128>(int)", "convolution"),
        ("void explicit_convolve_sgemm<float, int, 128>(int)", "convolution"),
        ("ampere_scudnn_128x64_relu_small_nn_v1", "convolution"),
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemm", "convolution"),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)", "normalisation"),
        ("void paged_attention_ll4mi_reduce_kernel<float, float, 128>(float*)", "attention"),
        ("void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*)", "convolution"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)", "gemm"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)", "embedding"),
        ("void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_float_to_hfp8_gpu(at::Tensor const&)>(int)", "elementwise"),
        (
            "void at::native::elementwise_kernel_manual_unroll<128, 4, at::native::GroupNormKernelImplInternal<float> >(int)",
            "normalisation",
        ),
        ("void vllm::rotary_embedding_kernel<float, true>(long const*)", "elementwise"),
        ("void vllm::reshape_and_cache_flash_kernel<float, float>(float const*)", "embedding"),
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)", "sort"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float> >(int)",
            "optimizer",
        ),
        ("void transform_broadcast_kernel<float>(float*)", "other"),
        ("void small_all_in_one_kernel<float>(float*)", "other"),
        ("void SmallReduceKernel<float>(float*)", "other"),
        ("hipMemcpyAsync", "other"),
        ("void c10d::checkForNaN<float>(float*, unsigned long)", "other"),
        ("unknown", "other"),
        ("Kernel", "other"),
        ("", "other"),
    ],
)
def test_false_friends_are_compute(name: str, family: str, patterns: Patterns) -> None:
    assert of(name, patterns) == (COMPUTE, family, 0)


@pytest.mark.parametrize(
    ("name", "fused"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 0),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclWorkElem)", 0),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 0),
        ("ncclDevKernel_SendRecv", 0),
        ("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)", 0),
        ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_f32(int)", 0),
        ("_Z20ncclDevKernel_Bcast_4ncclPv", 0),
        ("rcclGenericKernel(ncclDevComm*)", 0),
        ("void dpsk::ep::internode::cached_notify<false>(int, int)", 0),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(float*)", 0),
        ("_ZN7deep_ep12internode_ll8dispatchILb1ELi3EEEvPv", 0),
        ("_ZN7deep_ep9intranode22cached_notify_dispatchILi8EEEvPKi", 0),
        ("void uccl::internode_ll::dispatch_opt1<1, false>(void*)", 0),
        ("void hybrid_ep::dispatch_kernel<8>(int)", 0),
        ("EpDispatchIntraNodeKernel_bf16", 0),
        ("void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>(float*)", 0),
        ("void c10d::one_shot_all_reduce_kernel<float>(float**)", 0),
        ("void two_shot_all_reduce_kernel_inplace<float>(float**)", 0),
        ("void vllm::cross_device_reduce_2stage<__half, 8>(vllm::RankData*)", 0),
        ("void aiter::reduce_scatter_cross_device_store<float, 8>(int)", 0),
        ("_ZN11quickreduce27allreduce_prototype_twoshotINS_3fooEEEvPKv", 0),
        ("void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<8>(int)", 0),
        ("userbuffers_fp16_sum_inplace_gpu_rw_ag(int)", 0),
        ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_twoshot_sync<8>(int)", 1),
        ("void flashinfer::trtllm_moe_allreduce_fusion::moefinalize_allreduce_fusion_kernel_oneshot_lamport<8>(int)", 1),
        ("void aiter::allreduce_fusion_kernel_1stage<float, 8>(int)", 1),
        ("sm100_mxfp4_mxfp4_mega_moe_impl", 1),
    ],
)
def test_communication_by_name(name: str, fused: int, patterns: Patterns) -> None:
    assert of(name, patterns) == (COMMUNICATION, "communication", fused)


def test_unknown_names_that_read_like_communication_are_reported() -> None:
    suspected = {
        "my_all_reduce_kernel": True,
        "void ring_allgather_step<float>(float*)": True,
        "push_all_to_all_v2": True,
        "_a2a_push_rows": True,
        "tp_comm_step": True,
        "peer_reduce_scatter": True,
        "block_reduce_rows": False,
        "warpReduce_sum": False,
        "reduce_by_key_pass2": False,
        "commit_tokens": False,
        "common_prefix": False,
        "ncclDevKernel_Generic(int)": False,  # known, no suspicion
        "triton_poi_fused_all_reduce_0": False,
        "saxpy(double*)": False,
    }
    assert possible_communication(list(suspected)).tolist() == list(suspected.values())
    assert possible_communication([]).tolist() == []


def test_a_rule_of_the_user_ends_the_suspicion() -> None:
    mine = Patterns.load([{"pattern": "^my_all_reduce", "category": "communication"}])
    assert possible_communication(["my_all_reduce_kernel"], mine).tolist() == [False]


# ---------------------------------------------------------------- rules of the user


def test_rules_of_the_user_come_first() -> None:
    mine = Patterns.load(
        [
            {"pattern": "^my_allreduce", "category": "communication", "fused": True, "example": "my_allreduce_norm"},
            {"pattern": "special_gemm", "family": "attention"},
            {"pattern": "^stage_out", "category": "copy"},
            {"pattern": "^plain"},
        ]
    )
    assert of("my_allreduce_norm", mine) == (COMMUNICATION, "communication", 1)
    assert of("special_gemm_kernel", mine) == (COMPUTE, "attention", 0)
    assert of("stage_out_kernel", mine) == (COPY, "copy", 0)
    assert of("plain_gemm", mine) == (COMPUTE, "other", 0)
    assert of("volta_sgemm_64x64_nt", mine) == (COMPUTE, "gemm", 0)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"pattern": "(unclosed"}, "'(unclosed'"),
        ({"pattern": "a" * 3 + "{99999999999}"}, "no regular expression"),
        ({"family": "gemm"}, "pattern"),
        ({"pattern": 7}, "pattern"),
        ("^text_only", "pattern"),
        ({"pattern": "x", "family": "gem"}, "'gem' is none of other, gemm"),
        ({"pattern": "x", "category": "comm"}, "'comm' is none of compute"),
        ({"pattern": "x", "category": ["compute"]}, "none of compute"),
        ({"pattern": "x", "category": "communication", "family": "gemm"}, "does not go with"),
        ({"pattern": "x", "family": "communication"}, "does not go with"),
        ({"pattern": "x", "fused": True}, "only communication"),
        ({"pattern": "x", "category": "communication", "fused": "yes"}, "true or false"),
        ({"pattern": "x", "colour": "red"}, "colour"),
        ({"pattern": "x", "example": "abc"}, "'abc'"),
    ],
)
def test_errors_of_the_user_name_the_entry(entry: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Patterns.load([{"pattern": "fine"}, entry])
    assert "traceread.toml: entry 2 of [[kernels]]" in raised.value.message
    assert says in raised.value.message
    assert raised.value.hint


# ---------------------------------------------------------------- cost


def test_each_distinct_name_is_looked_at_once(patterns: Patterns) -> None:
    few = [f"void at::native::vectorized_elementwise_kernel<4, Functor{i}>(int)" for i in range(50)]
    many = few * 20_000
    start = time.perf_counter()
    _, family, _ = patterns.classify_names(many)
    assert time.perf_counter() - start < 3  # a million names; one by one they would take a minute
    assert (family == FAMILIES.index("elementwise")).all()
    assert len(family) == len(many)


def test_many_distinct_names_are_classified_quickly(patterns: Patterns) -> None:
    names = [f"{rule.example}_{i}" for i in range(120) for rule in patterns.rules]
    start = time.perf_counter()
    patterns.classify_names(names)
    assert time.perf_counter() - start < 5e-4 * len(names)  # some 30 µs each; the rest is room for a busy machine


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "triton_tem_",
        "tensorop_",
        "rocprim::",
        "barrier",
        "cutlass_",
        "userbuffers_",
        "flash",
        "_",
        "0",
        "(anonymous namespace)::",
        "all_reduc",
    ],
)
def test_a_hostile_name_costs_no_more_than_a_long_one(piece: str, patterns: Patterns) -> None:
    name = piece * (1_000_000 // len(piece))

    def once() -> float:
        start = time.perf_counter()
        patterns.classify_names([name])
        possible_communication([name], patterns)
        return time.perf_counter() - start

    assert min(once() for _ in range(5)) < 0.05


# ---------------------------------------------------------------- traces


def trace_of(
    names: Sequence[str],
    activities: Sequence[Mapping[str, int]],
    calls: Sequence[tuple[int, int, int, int]] = (),
    ranges: Sequence[tuple[int, int, int, str, RangeKind]] = (),
) -> Trace:
    """A trace of these activities (columns that are not given are 0), calls (start, end, thread, correlation) and ranges."""
    table = [*names, "cudaMemcpyAsync", *dict.fromkeys(name for _, _, _, name, _ in ranges)]
    columns = list(Activities.empty().columns())
    unclassified = {"category": Category.UNCLASSIFIED, "bytes": -1, "pageable": -1}
    rows = [
        [{**unclassified, "start_ns": 1000 * i, "end_ns": 1000 * i + 500, **activity}.get(column, 0) for column, _ in columns]
        for i, activity in enumerate(activities)
    ]
    return Trace(
        rank=0,
        rank_source="order",
        source="kineto",
        files=(),
        device=Device(0),
        host=None,
        pid=None,
        world_size=None,
        names=table,
        threads=(Thread(1, 1), Thread(1, 2)),
        activities=Activities.from_rows(rows),
        calls=Calls.from_rows([(start, end, thread, len(names), correlation) for start, end, thread, correlation in calls]),
        ranges=Ranges.from_rows([(start, end, thread, table.index(name), int(kind), 0) for start, end, thread, name, kind in ranges]),
        stream_waits=StreamWaits.empty(),
    )


def memcpy(kind: CopyKind, **columns: int) -> dict[str, int]:
    return {"kind": ActivityKind.MEMCPY, "copy_kind": kind, **columns}


def classes(trace: Trace) -> list[tuple[Category, str, int]]:
    rows = classify(trace).activities
    return [
        (Category(c), FAMILIES[f], u) for c, f, u in zip(rows.category.tolist(), rows.family.tolist(), rows.fused.tolist(), strict=True)
    ]


def test_kernels_are_known_by_name_and_everything_else_by_kind() -> None:
    names = ["volta_sgemm_64x64_nt", "ncclDevKernel_SendRecv", "void allreduce_fusion_kernel_x<8>(int)", "Memcpy", "?"]
    trace = trace_of(
        names,
        [
            {"kind": ActivityKind.KERNEL, "name": 0},
            {"kind": ActivityKind.KERNEL, "name": 1},
            {"kind": ActivityKind.KERNEL, "name": 2},
            {"kind": ActivityKind.KERNEL, "name": 4},
            {"kind": ActivityKind.KERNEL, "name": 0},
            {"kind": ActivityKind.KERNEL, "name": -1},
            {"kind": ActivityKind.MEMSET, "name": 1},  # not by its name
            {"kind": ActivityKind.GRAPH, "name": 1},
            memcpy(CopyKind.DEVICE_TO_DEVICE, name=1),
            memcpy(CopyKind.PEER, name=3),
            memcpy(CopyKind.HOST_TO_DEVICE, name=3),
            memcpy(CopyKind.DEVICE_TO_HOST, name=3),
            memcpy(CopyKind.HOST_TO_HOST, name=3),
            memcpy(CopyKind.UNKNOWN, name=3),
        ],
    )
    assert classes(trace) == [
        (COMPUTE, "gemm", 0),
        (COMMUNICATION, "communication", 0),
        (COMMUNICATION, "communication", 1),
        (COMPUTE, "other", 0),
        (COMPUTE, "gemm", 0),
        (COMPUTE, "other", 0),
        (COMPUTE, "memory", 0),
        (COMPUTE, "graph", 0),
        (COMPUTE, "memory", 0),
        (COMMUNICATION, "communication", 0),
        (COPY, "copy", 0),
        (COPY, "copy", 0),
        (COPY, "copy", 0),
        (COPY, "copy", 0),
    ]


def test_a_name_that_was_not_recorded_is_no_name() -> None:
    last = (0, 1, 0, "ncclDevKernel_SendRecv", RangeKind.OP)  # the last of the trace's names, and a kernel's
    trace = trace_of([], [{"kind": ActivityKind.KERNEL, "name": 1}, {"kind": ActivityKind.KERNEL, "name": -1}], ranges=[last])
    assert classes(trace) == [(COMMUNICATION, "communication", 0), (COMPUTE, "other", 0)]


def test_classify_leaves_the_trace_it_was_given_alone() -> None:
    trace = trace_of(["volta_sgemm_64x64_nt"], [{"kind": ActivityKind.KERNEL, "name": 0}])
    classified = classify(trace)
    assert trace.activities.category.tolist() == [Category.UNCLASSIFIED]
    for name, values in trace.activities.columns():
        if name not in ("category", "family", "fused"):
            assert np.array_equal(values, getattr(classified.activities, name))
    assert classify(classified).activities.family.tolist() == classified.activities.family.tolist()


def test_a_trace_without_activities_stays_empty() -> None:
    assert len(classify(trace_of([], [])).activities) == 0


def test_the_patterns_given_are_the_ones_used() -> None:
    trace = trace_of(["plain"], [{"kind": ActivityKind.KERNEL, "name": 0}])
    mine = classify(trace, Patterns.load([{"pattern": "^plain$", "category": "communication"}])).activities
    assert mine.category.tolist() == [COMMUNICATION]


@pytest.mark.parametrize(
    "name",
    [
        "nccl:all_reduce",
        "nccl:all_to_all, op_id = 993824",
        "gloo:broadcast",
        "c10d::_allgather_base_",
        "c10d::allreduce_, seq = 3, op_id = 77",
        "_c10d_functional::all_gather_into_tensor",
        "symm_mem::fused_all_gather_matmul",
        "record_param_comms",
        "ncclAllReduce",
        "ncclGroupEnd",
        "AllGather",
    ],
)
@pytest.mark.parametrize("kind", [RangeKind.OP, RangeKind.ANNOTATION])
@pytest.mark.parametrize("direction", list(CopyKind))
def test_copies_launched_in_a_collective_are_communication(name: str, kind: RangeKind, direction: CopyKind) -> None:
    trace = trace_of([], [memcpy(direction, correlation=7)], [(150, 160, 0, 7)], [(100, 200, 0, name, kind)])
    assert classes(trace) == [(COMMUNICATION, "communication", 0)]


def test_a_collective_range_without_length_holds_no_launch() -> None:
    trace = trace_of([], [memcpy(CopyKind.HOST_TO_DEVICE, correlation=7)], [(150, 160, 0, 7)], [(100, 100, 0, "nccl:x", RangeKind.OP)])
    assert classes(trace) == [(COPY, "copy", 0)]


@pytest.mark.parametrize(
    "name", ["ncclCommInitRank", "FSDP::all_gather_copy_in", "AllGatherLayer", "aten::copy_", "my nccl:all_reduce", "recommend", "step 3"]
)
def test_other_ranges_are_no_collectives(name: str) -> None:
    trace = trace_of([], [memcpy(CopyKind.HOST_TO_DEVICE, correlation=7)], [(150, 160, 0, 7)], [(100, 200, 0, name, RangeKind.ANNOTATION)])
    assert classes(trace) == [(COPY, "copy", 0)]


@pytest.mark.parametrize("kind", [RangeKind.PYTHON, RangeKind.OS, RangeKind.PROFILER, RangeKind.LOADING])
def test_frames_and_os_calls_are_no_collectives(kind: RangeKind) -> None:
    elsewhere = (300, 400, 0, "nccl:all_reduce", RangeKind.OP)  # the same name as a collective's
    ranges = [(100, 200, 0, "nccl:all_reduce", kind), elsewhere]
    trace = trace_of([], [memcpy(CopyKind.HOST_TO_DEVICE, correlation=7)], [(150, 160, 0, 7)], ranges)
    assert classes(trace) == [(COPY, "copy", 0)]


@pytest.mark.parametrize(
    ("start", "thread", "correlation", "inside"),
    [
        (99, 0, 7, False),
        (100, 0, 7, True),  # half-open: the range's first instant is inside,
        (199, 0, 7, True),
        (200, 0, 7, False),  # its end is not
        (150, 1, 7, False),  # open on another thread
        (150, 0, 8, False),  # the launch of something else
        (150, 0, 0, False),  # ids that are not positive never join
        (150, 0, -1, False),
    ],
)
def test_where_the_launch_begins_decides(start: int, thread: int, correlation: int, inside: bool) -> None:
    asked = 7 if correlation > 0 else correlation
    trace = trace_of(
        [],
        [memcpy(CopyKind.HOST_TO_DEVICE, correlation=asked)],
        [(start, start + 1000, thread, correlation)],
        [(100, 200, 0, "nccl:all_reduce", RangeKind.ANNOTATION), (100, 200, 1, "aten::copy_", RangeKind.OP)],
    )
    assert classes(trace) == [(COMMUNICATION, "communication", 0) if inside else (COPY, "copy", 0)]


def test_nested_and_empty_ranges_and_several_calls_with_one_id() -> None:
    trace = trace_of(
        ["volta_sgemm_64x64_nt"],
        [
            memcpy(CopyKind.DEVICE_TO_DEVICE, correlation=1),  # after the inner range ends, the outer one is still open
            memcpy(CopyKind.DEVICE_TO_DEVICE, correlation=2),  # the earliest of two calls with this id begins outside
            memcpy(CopyKind.DEVICE_TO_DEVICE, correlation=3),  # at a range of no length
            memcpy(CopyKind.DEVICE_TO_DEVICE, correlation=1),  # one launch, several activities
            {"kind": ActivityKind.KERNEL, "name": 0, "correlation": 1},  # kernels go by their names
            {"kind": ActivityKind.MEMSET, "correlation": 1},
        ],
        [(90, 400, 0, 2), (180, 190, 0, 1), (185, 190, 0, 2), (500, 510, 0, 3)],
        [
            (100, 200, 0, "c10d::allreduce_", RangeKind.OP),
            (110, 120, 0, "record_param_comms", RangeKind.OP),
            (500, 500, 0, "nccl:all_reduce", RangeKind.ANNOTATION),
        ],
    )
    assert [family for _, family, _ in classes(trace)] == ["communication", "memory", "memory", "communication", "gemm", "memory"]


def test_many_threads_and_copies_agree_with_the_plain_definition() -> None:
    random = np.random.default_rng(5)
    ranges = [
        (int(s), int(s + d), int(t), name, RangeKind.OP)
        for s, d, t, name in zip(
            np.sort(random.integers(0, 10_000, 60)),
            random.integers(0, 600, 60),
            random.integers(0, 2, 60),
            random.choice(["nccl:all_reduce", "aten::mm"], 60).tolist(),
            strict=True,
        )
    ]
    calls = [
        (int(s), int(s) + 3, int(t), i + 1)
        for i, (s, t) in enumerate(zip(np.sort(random.integers(0, 10_000, 400)), random.integers(0, 2, 400), strict=True))
    ]
    trace = trace_of([], [memcpy(CopyKind.DEVICE_TO_HOST, correlation=int(c)) for c in random.permutation(500)], calls, ranges)
    by_id = {correlation: (start, thread) for start, _, thread, correlation in calls}

    def inside(correlation: int) -> bool:
        start, thread = by_id.get(correlation, (-1, -1))
        return any(name.startswith("nccl:") and t == thread and s <= start < e for s, e, t, name, _ in ranges)

    expected = [COMMUNICATION if inside(c) else COPY for c in trace.activities.correlation.tolist()]
    assert 20 < expected.count(COMMUNICATION) < 380
    assert classify(trace).activities.category.tolist() == expected
