"""Communication runs while the GPU computes nothing.

What it means. Collectives that run beside kernels cost (almost) nothing; these run alone, so every nanosecond of them lengthens the
step. With one rank loaded, waiting for slower ranks looks the same as moving bytes: load all ranks to tell them apart.

How it is measured. Time in which a communication kernel or a copy between GPUs runs and no compute kernel does, on any stream. The
saving is the step re-timed with that time gone; beside it stands what the step would take if the transfer kept its length and ran
beside whatever follows until somebody needs it.

In Nsight Systems. ncclDevKernel_ rows (ncclKernel_ in older NCCL) on a stream of their own with nothing above them on the compute
streams.

In a PyTorch trace. Rows of category kernel whose name begins with nccl, launched inside c10d:: or nccl: ranges; compare with the
compute stream.

How to confirm. Look at the last of these kernels of a step in the timeline: the compute stream is empty beside it. Then run one step
with the collective left out (no_sync() under DDP) and compare the step time.

What to try. Gradients: let reductions start during the backward (DDP buckets, overlap_grad_reduce in Megatron), make the last bucket
small, reduce in bf16. FSDP: set_modules_to_backward_prefetch and set_modules_to_forward_prefetch, a smaller last unit,
reshard_after_forward=False where memory allows, HSDP so that all-gathers stay within a node.

When it is fine. The last bucket has nothing to hide under; below a few percent there is little left to gain. Tensor-parallel
collectives are needed at once by the next kernel and can only be split or pipelined.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability, Operation
from traceread.records import record
from traceread.rules import LAST, Facts, rule
from traceread.rules.operations import operations, title_of
from traceread.rules.phases import place_in_step
from traceread.units import percent

_DDP = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_FSDP = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"


@record
class _Advice:
    fix: str
    docs: tuple[str, ...]


_ADVICE = {
    Operation.ALL_REDUCE: _Advice(
        "DDP: smaller buckets so that the last one is short (bucket_cap_mb), gradient_as_bucket_view=True, and a bf16 communication hook "
        "(torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook); Megatron: overlap_grad_reduce",
        (_DDP, "https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html"),
    ),
    Operation.REDUCE_SCATTER: _Advice(
        "FSDP2: FSDPModule.set_modules_to_backward_prefetch(...), and a smaller last unit to shard so that little is left after the "
        "backward; HSDP (a 2-D device mesh given to fully_shard) where the link between nodes is the limit; Megatron: overlap_grad_reduce",
        (_FSDP,),
    ),
    Operation.ALL_GATHER: _Advice(
        "FSDP2: FSDPModule.set_modules_to_forward_prefetch(...) and set_modules_to_backward_prefetch(...); "
        "fully_shard(reshard_after_forward=False) where memory allows; HSDP (a 2-D device mesh); Megatron: overlap_param_gather",
        (_FSDP,),
    ),
    Operation.SEND_RECV: _Advice(
        "pipeline stages wait for each other: more microbatches per step, an interleaved or zero-bubble schedule, equal stages",
        ("https://docs.pytorch.org/docs/stable/distributed.pipelining.html",),
    ),
}


_IN_THE_FORWARD = _Advice(
    "tensor parallelism: sequence parallelism, so that the all-reduce becomes a reduce-scatter and an all-gather, which overlap with the "
    "products around them (asynchronous tensor parallelism: torch.distributed._symmetric_memory.enable_symm_mem_for_group with "
    "torch._inductor.config._micro_pipeline_tp; Transformer Engine and Megatron: tp_comm_overlap); groups within one NVLink domain",
    ("https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html",),
)
"""An all-reduce that no gradient needs."""

_EXPERTS = _Advice(
    "experts: run the shared expert or the next microbatch beside the dispatch, use DeepEP or another kernel that needs no host "
    "synchronisation, keep expert groups within a node",
    ("https://github.com/deepseek-ai/DeepEP",),
)
_TABLES = _Advice(
    "embedding tables: TorchRec's TrainPipelineSparseDist, which exchanges the next batch's inputs beside this one's computation, and "
    "quantised exchange (torchrec.distributed.fbgemm_qcomm_codec)",
    ("https://github.com/meta-pytorch/torchrec",),
)
_HEADS = _Advice(
    "sequence parallelism over attention heads (DeepSpeed-Ulysses): ring attention, which passes keys and values on beside the "
    "computation, or a smaller group within one NVLink domain",
    ("https://docs.pytorch.org/tutorials/unstable/context_parallel.html",),
)
_LOOKS_UP_TABLES = 10
"""All-to-alls are taken to exchange embeddings where looking them up takes a tenth of the compute kernels' time: language models spend
less than a hundredth on it."""
_OF_EXPERTS = r"(?i)expert|(?<![a-z])moe(?![a-z])|grouped_?(?:gemm|mm)|top_?k(?![a-z])|deep_?ep(?![a-z])"

_LIKE = {Operation.SEND: Operation.SEND_RECV, Operation.RECV: Operation.SEND_RECV}


@rule("exposed-communication", needs={Capability.ACTIVITIES}, effort=Effort.CODE, turn=LAST)
def exposed_communication(facts: Facts) -> Iterator[Finding]:
    """One finding per operation."""
    for operation, which in operations(facts):
        loss = facts.work_loss(which)
        exposed = facts.loss_total_ns(loss)
        if not facts.worth(exposed):
            continue
        place = place_in_step(facts, which)
        advice = _advice(facts, operation, place)
        a = facts.trace.activities
        whole = int((a.end_ns - a.start_ns)[loss.activities].sum())
        name = title_of(operation)
        yield Finding(
            title=f"{name} exposed {place}".rstrip(),
            loss=loss,
            why=f"{facts.mean(exposed)} of {name} runs while nothing is computed, {facts.steps_phrase(loss)}: "
            f"{percent(min(exposed, whole), whole)} of the time of the kernels concerned.",
            fix=advice.fix,
            docs=advice.docs,
        )


def _advice(facts: Facts, operation: Operation, place: str) -> _Advice:
    if operation is Operation.ALL_TO_ALL:
        return _of_all_to_all(facts)
    advice = _ADVICE.get(_LIKE.get(operation, operation), _Advice("", ()))
    if operation is not Operation.ALL_REDUCE or place not in ("", "within the forward"):
        return advice
    if place:
        return _IN_THE_FORWARD
    return _Advice(f"{advice.fix}; {_IN_THE_FORWARD.fix}", (*advice.docs, *_IN_THE_FORWARD.docs))


def _of_all_to_all(facts: Facts) -> _Advice:
    """The advice for what is exchanged; for everything it may be where names do not tell."""
    compute = [row for row in facts.kernels.rows if row.category == "compute"]
    tables = sum(row.total_ns for row in compute if row.family == "embedding")
    if tables * _LOOKS_UP_TABLES >= sum(row.total_ns for row in compute) > 0:
        return _TABLES
    if any(re.search(_OF_EXPERTS, name) for name in facts.trace.names):
        return _EXPERTS
    every = (_EXPERTS, _HEADS, _TABLES)
    return _Advice("; ".join(one.fix for one in every), tuple(link for one in every for link in one.docs))
