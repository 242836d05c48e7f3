"""The kernels that simulated models launch, and the names that copies and collectives carry.

Names are those of cuBLAS, PyTorch, FlashAttention, NCCL and hipBLASLt as they stand in captures: `op` is the framework operator
that launches the kernel, `name` the kernel on NVIDIA devices, `amd` the one on AMD devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, std::array<char*, {n}ul> >"
    "(int, at::native::{functor}, std::array<char*, {n}ul>)"
)
_CIJK = "Cijk_{layout}_BBS_BH_Bias_HA_S_SAV_UserArgs_{tile}_MI16x16x1_SN_LDSB1_AFC1_AG0_AFEM1_AFEM1_ASEM1_CLR1"


@dataclass(frozen=True)
class Kernel:
    """A kernel and the operator that launches it.

    Attributes:
        op: the framework operator.
        name: kernel name on NVIDIA devices.
        amd: kernel name on AMD devices, empty if the same.
        call: runtime call that launches it on NVIDIA devices.
        grid, block: launch configuration.
        registers: registers per thread.
        shared: shared memory in bytes.
    """

    op: str
    name: str
    amd: str = ""
    call: str = "cudaLaunchKernel"
    grid: tuple[int, int, int] = (1056, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    registers: int = 40
    shared: int = 0

    @property
    def short(self) -> str:
        """The bare function name: no return type, no namespace, no template and function arguments."""
        head = re.split("[<(]", self.name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
        return head.split("::")[-1].split()[-1]


def _elementwise(op: str, functor: str, operands: int) -> Kernel:
    return Kernel(op, _ELEMENTWISE.format(functor=functor, n=operands), grid=(4096, 1, 1), block=(128, 1, 1), registers=26)


def _gemm(op: str, shape: str, layout: str, tile: str) -> Kernel:
    name = f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{shape}_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
    return Kernel(op, name, _CIJK.format(layout=layout, tile=tile), "cudaLaunchKernelExC", (132, 1, 1), (384, 1, 1), 168, 213_248)


NORM = Kernel(
    "aten::native_layer_norm",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)",
)
GEMM = _gemm("aten::mm", "tn_n", "Alik_Bljk", "MT256x128x64")
GEMM_WIDE = Kernel(
    "aten::addmm",
    "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_TNT",
    _CIJK.format(layout="Alik_Bljk", tile="MT192x128x64"),
    "cuLaunchKernelEx",
    (132, 1, 1),
    (384, 1, 1),
    168,
    229_376,
)
ATTENTION = Kernel(
    "aten::_flash_attention_forward",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t, "
    "Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, false, true, false, false, false, true, false, false>"
    "(pytorch_flash::Flash_fwd_params)",
    "attn_fwd.kd",
    grid=(32, 8, 32),
    block=(128, 1, 1),
    registers=255,
    shared=81_920,
)
ADD = _elementwise("aten::add", "CUDAFunctor_add<c10::BFloat16>", 3)
MUL = _elementwise(
    "aten::mul", "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >", 3
)
SILU = _elementwise("aten::silu", "(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)", 2)
FILL = _elementwise("aten::fill_", "FillFunctor<float>", 1)
EMBEDDING = Kernel(
    "aten::embedding",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>"
    "(at::cuda::detail::TensorInfo<c10::BFloat16, unsigned int>, at::cuda::detail::TensorInfo<c10::BFloat16 const, unsigned int>, "
    "at::cuda::detail::TensorInfo<long const, unsigned int>, int, int, unsigned int, unsigned int, long)",
)
LOSS = Kernel(
    "aten::_log_softmax",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, float, "
    "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, c10::BFloat16 const*, int)",
)
GEMM_DGRAD = _gemm("aten::mm", "nn_n", "Ailk_Bljk", "MT256x128x64")
GEMM_WGRAD = _gemm("aten::mm", "nt_n", "Ailk_Bjlk", "MT192x256x64")
ATTENTION_BACKWARD = Kernel(
    "aten::_flash_attention_backward",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, false, "
    "cutlass::bfloat16_t> >(pytorch_flash::Flash_bwd_params)",
    "bwd_kernel_dk_dv.kd",
    grid=(8, 4, 32),
    block=(256, 1, 1),
    registers=255,
    shared=147_456,
)
NORM_BACKWARD = Kernel(
    "aten::native_layer_norm_backward",
    "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>"
    "(c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, c10::BFloat16 const*, c10::BFloat16*, int)",
)
REDUCE = Kernel(
    "aten::sum",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4> >"
    "(at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()"
    "(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4>)",
)
_ANONYMOUS = "at::native::(anonymous namespace)::"
_ADAM = f"{_ANONYMOUS}FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>"
_ADAM_ARGUMENTS = "float const*, double, double, double, double, double, bool, float*, float*, (at::native::ADAM_MODE)1"
ADAM = Kernel(
    "aten::_fused_adamw_",
    f"void {_ANONYMOUS}multi_tensor_apply_kernel<{_ANONYMOUS}FusedOptimizerTensorListMetadata<4>, {_ADAM}, {_ADAM_ARGUMENTS}>"
    f"({_ANONYMOUS}FusedOptimizerTensorListMetadata<4>, {_ADAM}, {_ADAM_ARGUMENTS})",
)
SCALE = _elementwise("aten::_foreach_mul_", "AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >", 2)
COPY_CAST = _elementwise("aten::copy_", "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", 2)
TRITON = Kernel("triton_poi_fused_add_mul_silu_0", "triton_poi_fused_add_mul_silu_0", call="cuLaunchKernel", block=(128, 1, 1))
TRITON_NORM = Kernel("triton_red_fused_native_layer_norm_1", "triton_red_fused_native_layer_norm_1", call="cuLaunchKernel")
_TENSOR = "at::cuda::detail::TensorInfo"
ROUTER = Kernel(
    "aten::topk",
    f"void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>({_TENSOR}<float const, unsigned int>, unsigned int, unsigned int, "
    f"bool, unsigned int, unsigned int, {_TENSOR}<float, unsigned int>, unsigned int, {_TENSOR}<long, unsigned int>, unsigned int, float*)",
)

MIXES: dict[str, tuple[Kernel, ...]] = {
    "forward": (NORM, GEMM_WIDE, ATTENTION, GEMM, ADD, GEMM, SILU, GEMM_WIDE),
    "backward": (GEMM_DGRAD, GEMM_WGRAD, ATTENTION_BACKWARD, GEMM_DGRAD, GEMM_WGRAD, NORM_BACKWARD, MUL, REDUCE),
    "large forward": (GEMM_WIDE, ATTENTION, GEMM, GEMM),
    "large backward": (
        *(GEMM_DGRAD, GEMM_WGRAD, ATTENTION_BACKWARD, GEMM_DGRAD, GEMM_WGRAD, GEMM_DGRAD),
        *(GEMM_WGRAD, NORM_BACKWARD, ATTENTION_BACKWARD, GEMM_DGRAD, GEMM_WGRAD, GEMM_DGRAD, GEMM_WGRAD),
    ),
    "optimizer": (ADAM,),
    "clip": (REDUCE, SCALE),
    "embedding": (EMBEDDING, COPY_CAST, ADD),
    "loss": (LOSS, REDUCE),
    "elementwise": (ADD, MUL, COPY_CAST, SILU, NORM),
    "compiled": (TRITON_NORM, GEMM, TRITON, GEMM_WIDE),
    "expert": (GEMM, SILU, GEMM_WIDE),
    "router": (GEMM, ROUTER),
}
"""Kernels of a kind of work, launched in turn."""

COLLECTIVE_KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_{dtype}_RING_LL",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_{dtype}_RING_LL",
    "all_to_all": "ncclDevKernel_SendRecv",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL",
    "reduce": "ncclDevKernel_Reduce_Sum_{dtype}_RING_LL",
    "scatter": "ncclDevKernel_SendRecv",
    "gather": "ncclDevKernel_SendRecv",
    "send": "ncclDevKernel_SendRecv",
    "recv": "ncclDevKernel_SendRecv",
}
"""Recorded collective name → the NCCL kernel that carries it."""

NCCL_ARGUMENTS = "(ncclDevKernelArgsStorage<4096ul>)"
RCCL_KERNEL = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"

COLLECTIVE_OPS = {
    "allreduce": ("c10d::allreduce_", "nccl:all_reduce", "ncclAllReduce"),
    "_allgather_base": ("c10d::_allgather_base_", "nccl:_all_gather_base", "ncclAllGather"),
    "_reduce_scatter_base": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "ncclReduceScatter"),
    "all_to_all": ("c10d::alltoall_base_", "nccl:all_to_all", "ncclSend"),
    "broadcast": ("c10d::broadcast_", "nccl:broadcast", "ncclBroadcast"),
    "reduce": ("c10d::reduce_", "nccl:reduce", "ncclReduce"),
    "scatter": ("c10d::scatter_", "nccl:scatter", "ncclSend"),
    "gather": ("c10d::gather_", "nccl:gather", "ncclSend"),
    "send": ("c10d::send", "nccl:send", "ncclSend"),
    "recv": ("c10d::recv_", "nccl:recv", "ncclRecv"),
}
"""Recorded collective name → operator, annotation and NCCL function around its launch."""

AMD_BLOCKING_COPY = "hipMemcpyWithStream"
"""What PyTorch calls on AMD to copy from or to pageable memory."""

AMD_CALLS = {
    "cudaLaunchKernel": "hipLaunchKernel",
    "cudaLaunchKernelExC": "hipExtModuleLaunchKernel",
    "cuLaunchKernelEx": "hipExtModuleLaunchKernel",
    "cuLaunchKernel": "hipModuleLaunchKernel",
    "cudaMemcpy": "hipMemcpyWithStream",
    "cudaEventRecord": "hipEventRecord",
    "cudaGraphLaunch": "hipGraphLaunch",
    "cuModuleLoadData": "hipModuleLoadData",
}
"""Runtime calls whose AMD name is not just `hip` for `cuda`."""


def amd_call(name: str) -> str:
    """The HIP name of a CUDA runtime or driver call."""
    return AMD_CALLS.get(name) or "hip" + name.removeprefix("cuda").removeprefix("cu")
