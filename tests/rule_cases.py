"""For every rule a loop in which it is right, and one that looks like it in which it has nothing to say."""

from scripting import (
    ADAM,
    ADD,
    ALL_GATHER,
    ALL_REDUCE,
    BACKWARD,
    BROADCAST,
    CAST,
    GEMM,
    LOADER,
    MS,
    NORM,
    SEND_RECV,
    SGEMM,
    SOFTMAX,
    US,
    ActivityKind,
    CopyKind,
    Operation,
    RangeKind,
    Script,
)

RIGHT, SILENT = {}, {}


def right(rule):
    def keep(body):
        RIGHT[rule] = body
        return body

    return keep


def silent(rule):
    def keep(body):
        SILENT[rule] = body
        return body

    return keep


def loop(body, count=4, **more):
    return Script(**more).steps(count, body)


def busy(s, kernels=20, each=500 * US):
    """Kernels long enough for the host to get ahead."""
    for _ in range(kernels):
        s.launch(each)


def backward(s, kernels=20, each=500 * US, then=None):
    with s.on(2):
        for _ in range(kernels):
            with s.inside(BACKWARD, RangeKind.OP):
                s.launch(each)
        if then:
            then(s)


# Communication


@right("exposed-communication")
def _():
    return loop(lambda s, n: (busy(s), s.collective(3 * MS)))


@silent("exposed-communication")
def _():
    def body(s, n):
        busy(s, 10)
        s.collective(3 * MS, wait=False)
        busy(s, 10)

    return loop(body)


@right("gradient-sync-every-microbatch")
def _():
    def body(s, n):
        for _ in range(3):
            busy(s, 4)
            backward(s, 4, then=lambda s: s.collective(2 * MS))
        s.launch(300 * US, ADAM)

    return loop(body)


@silent("gradient-sync-every-microbatch")
def _():
    def body(s, n):
        for last in (False, False, True):
            busy(s, 4)
            backward(s, 4, then=(lambda s: s.collective(2 * MS)) if last else None)
        s.launch(300 * US, ADAM)

    return loop(body)


@right("small-collectives")
def _():
    return loop(lambda s, n: (busy(s, 4), [s.collective(60 * US) for _ in range(60)]))


@silent("small-collectives")
def _():
    return loop(lambda s, n: (busy(s, 4), [s.collective(60 * US) for _ in range(5)], s.collective(3 * MS)))


def _fsdp(s, gathers_again):
    for _ in range(6):
        s.collective(800 * US, ALL_GATHER)
        s.launch(1 * MS)
    with s.on(2):
        for _ in range(6):
            if gathers_again:
                s.collective(800 * US, ALL_GATHER)
            with s.inside(BACKWARD, RangeKind.OP):
                s.launch(2 * MS)


@right("fsdp-reshard")
def _():
    return loop(lambda s, n: _fsdp(s, True))


@silent("fsdp-reshard")
def _():
    return loop(lambda s, n: _fsdp(s, False))


@right("pipeline-bubble")
def _():
    def body(s, n):
        for _ in range(4):
            s.collective(900 * US, SEND_RECV, operation=Operation.RECV)
            busy(s, 4)
            s.collective(100 * US, SEND_RECV, operation=Operation.SEND, wait=False)

    return loop(body)


@silent("pipeline-bubble")
def _():
    def body(s, n):
        for _ in range(4):
            s.collective(900 * US, SEND_RECV, operation=Operation.ALL_TO_ALL)
            busy(s, 4)

    return loop(body)


def _ddp(s, buffers):
    with s.inside("DistributedDataParallel.forward"):
        if buffers:
            s.collective(800 * US, BROADCAST)
        busy(s, 8)
    if not buffers:
        s.collective(800 * US, BROADCAST)


@right("broadcast-buffers")
def _():
    return loop(lambda s, n: _ddp(s, True))


@silent("broadcast-buffers")
def _():
    return loop(lambda s, n: _ddp(s, False))


@right("data-parallel")
def _():
    def body(s, n):
        with s.inside("DataParallel.forward"), s.inside("Broadcast", RangeKind.OP):
            s.copy(900 * US, CopyKind.PEER)
        busy(s, 4)

    return loop(body)


@silent("data-parallel")
def _():
    return loop(lambda s, n: _ddp(s, True))


# Input


@right("data-loading")
def _():
    def body(s, n):
        with s.inside(LOADER.format("_MultiProcessing")):
            s.host(15 * MS)
        s.copy(50 * US)
        busy(s)

    return loop(body)


@silent("data-loading")
def _():  # a slow fetch that the GPU does not notice
    def body(s, n):
        busy(s)
        with s.inside(LOADER.format("_MultiProcessing")):
            s.host(5 * MS)
        s.copy(50 * US, stream=9)

    return loop(body)


@right("loader-restart")
def _():
    def body(s, n):
        if n == 5:
            with s.inside("torch/utils/data/dataloader.py(500): _get_iterator", RangeKind.PYTHON):
                s.host(40 * MS)
        busy(s)

    return loop(body)


@silent("loader-restart")
def _():
    def body(s, n):
        with s.inside("torch/utils/data/dataloader.py(700): __next__", RangeKind.PYTHON):
            s.host(15 * MS)
        busy(s)

    return loop(body)


@right("pageable-copy")
def _():
    return loop(lambda s, n: (s.copy(2 * MS, size=32 << 20, pageable=1, blocks=True), busy(s)))


@silent("pageable-copy")
def _():
    return loop(lambda s, n: (s.copy(2 * MS, size=32 << 20, pageable=0), busy(s)))


@right("exposed-copy")
def _():
    return loop(lambda s, n: (s.copy(2 * MS, size=32 << 20), busy(s)))


@silent("exposed-copy")
def _():
    return loop(lambda s, n: (busy(s), s.copy(2 * MS, stream=9), busy(s)))


# Synchronisation


def logs(s):
    """Host work without launches, in operations."""
    for _ in range(10):
        s.b.op(s.now, s.now + 300 * US, "aten::to", thread=s.thread)
        s.now += 310 * US


@right("item-sync")
def _():
    return loop(lambda s, n: (busy(s), s.item(), logs(s), busy(s)))


@silent("item-sync")
def _():  # a value of long ago: the GPU stays busy
    def body(s, n):
        busy(s, 2)
        waited = s.tail[7]
        busy(s, 30)
        begin = s.now
        end = max(begin, waited + 5 * US)
        s.b.op(begin, end + 2 * US, "aten::item", thread=1).call(begin, end, "cudaEventSynchronize")
        s.now = end + 5 * US
        busy(s, 30)

    return loop(body)


@right("tensor-to-host")
def _():
    def body(s, n):
        busy(s)
        begin = s.now
        s.host(2 * US).copy(20 * US, CopyKind.DEVICE_TO_HOST, op=None, pageable=1)
        s.sync()
        s.b.op(begin, s.now, "aten::to", thread=1)
        s.host(5 * US)
        logs(s)
        busy(s)

    return loop(body)


@silent("tensor-to-host")
def _():  # the same op copies to the GPU
    def body(s, n):
        busy(s)
        begin = s.now
        s.host(2 * US).copy(20 * US, op=None, pageable=1)
        s.sync()
        s.b.op(begin, s.now, "aten::to", thread=1)
        s.host(5 * US)
        logs(s)

    return loop(body)


@right("data-dependent-shapes")
def _():
    return loop(lambda s, n: (busy(s), s.sync(op="aten::nonzero"), logs(s), busy(s)))


@silent("data-dependent-shapes")
def _():
    return loop(lambda s, n: (busy(s), s.sync(op="aten::cumsum"), logs(s), busy(s)))


@right("explicit-synchronize")
def _():
    return loop(lambda s, n: (busy(s), s.sync("cudaDeviceSynchronize", stream=None), logs(s), busy(s)))


@silent("explicit-synchronize")
def _():
    return loop(lambda s, n: (busy(s), s.item(), logs(s), busy(s)))


def _in_code(name, kind):
    def body(s, n):
        busy(s)
        with s.inside(name, kind):
            s.item()
        logs(s)
        busy(s)

    return loop(body)


@right("gradient-scaler")
def _():
    return _in_code("torch/amp/grad_scaler.py(330): _maybe_opt_step", RangeKind.PYTHON)


@silent("gradient-scaler")
def _():
    return _in_code("train.py(30): upscale", RangeKind.PYTHON)


@right("gradient-clipping")
def _():
    return _in_code("clip_grad_norm", RangeKind.ANNOTATION)


@silent("gradient-clipping")
def _():
    return _in_code("train.py(41): log_norms_of_weights", RangeKind.PYTHON)


def _experts(s, named):
    for _ in range(4):
        busy(s, 4)
        with s.inside("moe_layer" if named else "layer"):
            s.item()
            s.host(300 * US)
            s.collective(200 * US, SEND_RECV, operation=Operation.ALL_TO_ALL)


@right("router-sync")
def _():
    return loop(lambda s, n: _experts(s, True))


@silent("router-sync")
def _():
    return loop(lambda s, n: _experts(s, False))


@right("host-barrier")
def _():
    def body(s, n):
        busy(s)
        with s.inside("c10d::barrier", RangeKind.OP):
            s.host(25 * MS)

    return loop(body)


@silent("host-barrier")
def _():
    def body(s, n):
        with s.inside("nccl:barrier"):
            s.collective(50 * US)
        busy(s)

    return loop(body)


@right("launch-blocking")
def _():
    return loop(lambda s, n: [s.launch(50 * US, blocks=True, between=20 * US) for _ in range(60)])


@silent("launch-blocking")
def _():
    return loop(lambda s, n: [s.launch(50 * US, between=80 * US) for _ in range(60)])


@right("host-sync")
def _():
    return loop(lambda s, n: (busy(s), s.sync(op="aten::cumsum"), logs(s), busy(s)))


@silent("host-sync")
def _():  # it waits for another stream whose work is long over
    def body(s, n):
        s.launch(20 * US, stream=9)
        busy(s)
        s.sync(stream=9)
        busy(s)

    return loop(body)


# The host


@right("launch-bound")
def _():
    return loop(lambda s, n: [s.launch(8 * US, between=30 * US) for _ in range(100)])


@silent("launch-bound")
def _():
    return loop(lambda s, n: [s.launch(80 * US, between=30 * US) for _ in range(100)])


def _optimizer(s, kernels, name):
    busy(s, 4)
    with s.inside("Optimizer.step#AdamW.step"):
        for _ in range(kernels):
            s.launch(5 * US, name, op="aten::add_", between=15 * US)


@right("unfused-optimizer")
def _():
    return loop(lambda s, n: _optimizer(s, 300, ADD))


@silent("unfused-optimizer")
def _():
    return loop(lambda s, n: _optimizer(s, 300, ADAM))


def _zeroing(s, name):
    with s.inside(name):
        for _ in range(40):
            s.launch(20 * US, ADD, op="aten::zero_", kind=ActivityKind.MEMSET, call="cudaMemsetAsync")
    busy(s, 4)


@right("zero-grad")
def _():
    return loop(lambda s, n: _zeroing(s, "Optimizer.zero_grad#AdamW.zero_grad"))


@silent("zero-grad")
def _():
    return loop(lambda s, n: _zeroing(s, "fill buffers"))


@right("gc-pause")
def _():
    def body(s, n):
        busy(s, 4)
        if n % 2:
            with s.inside("gc.collect"):
                s.host(30 * MS)
        busy(s, 4)

    return loop(body, 5)


@silent("gc-pause")
def _():  # collected while the GPU has enough to do
    def body(s, n):
        busy(s, 20)
        with s.inside("gc.collect"):
            s.host(4 * MS)
        busy(s, 4)

    return loop(body, 5)


def _compiles(s, n, when):
    if n in when:
        with s.inside("_compile.compile_inner (dynamo_timed)"):
            s.host(30 * MS)
    busy(s)


@right("recompilation")
def _():
    return loop(lambda s, n: _compiles(s, n, (4, 6)), 5)


@silent("recompilation")
def _():
    return loop(lambda s, n: _compiles(s, n, (3,)), 5)  # the first step, which is left out


def _loads(s, n, fresh):
    busy(s, 4)
    s.launch(200 * US, f"kernel_{n if fresh else 0}_gemm", call_ns=9 * MS if fresh or n == 3 else None)
    busy(s, 4)


@right("code-loading")
def _():
    return loop(lambda s, n: _loads(s, n, True), 5)


@silent("code-loading")
def _():
    return loop(lambda s, n: _loads(s, n, False), 5)


@right("slow-launches")
def _():
    def body(s, n):
        busy(s, 4)
        s.launch(200 * US, call_ns=6 * MS)
        busy(s, 4)

    return loop(body, 5)


@silent("slow-launches")
def _():  # long calls behind which the queue is full
    def body(s, n):
        for _ in range(40):
            s.launch(500 * US)
            s.now = max(s.now, s.tail[7] - 20 * MS)

    return loop(body, 5)


@right("allocator-churn")
def _():
    def body(s, n):
        busy(s)
        s.sync("cudaFree", stream=None, op="aten::empty")
        s.call(3 * MS, "cudaMalloc", "aten::empty")
        busy(s)

    return loop(body)


@silent("allocator-churn")
def _():  # allocated while the GPU has enough to do
    return loop(lambda s, n: (busy(s), s.call(2 * MS, "cudaMalloc", "aten::empty"), busy(s)))


def _saves(s, n, asynchronous):
    busy(s)
    if n % 2:
        with s.inside("save_checkpoint"):
            if asynchronous:
                s.copy(5 * MS, CopyKind.DEVICE_TO_HOST, stream=9).host(50 * US)
            else:
                s.copy(5 * MS, CopyKind.DEVICE_TO_HOST, blocks=True, pageable=1).host(20 * MS)
    busy(s)


@right("checkpoint-stall")
def _():
    return loop(lambda s, n: _saves(s, n, False), 5)


@silent("checkpoint-stall")
def _():
    return loop(lambda s, n: _saves(s, n, True), 5)


@right("profiler-overhead")
def _():
    def body(s, n):
        busy(s, 4)
        s.b.range(s.now, s.now + 20 * MS, "Buffer Flush", RangeKind.PROFILER, thread=9)
        s.host(20 * MS)
        busy(s, 4)

    return loop(body)


@silent("profiler-overhead")
def _():  # flushed while the GPU has enough to do
    def body(s, n):
        busy(s)
        s.b.range(s.now, s.now + 2 * MS, "Buffer Flush", RangeKind.PROFILER, thread=9)
        s.host(2 * MS)
        busy(s)

    return loop(body)


# Kernels


@right("unfused-elementwise")
def _():
    return loop(lambda s, n: [(s.launch(300 * US), [s.launch(200 * US, ADD, op="aten::add") for _ in range(4)]) for _ in range(5)])


@silent("unfused-elementwise")
def _():
    return loop(lambda s, n: [(s.launch(300 * US), s.launch(200 * US, ADD), s.launch(100 * US, NORM)) for _ in range(10)])


def _attends(s, softmax):
    for _ in range(6):
        s.launch(200 * US, op="aten::bmm").launch(300 * US, softmax, op="aten::softmax").launch(200 * US, op="aten::bmm")


@right("unfused-attention")
def _():
    return loop(lambda s, n: _attends(s, SOFTMAX))


@silent("unfused-attention")
def _():
    return loop(lambda s, n: (_attends(s, GEMM), s.launch(400 * US, "flash_fwd_kernel"), s.launch(300 * US, SOFTMAX)))


@right("fp32-matmul")
def _():
    return loop(lambda s, n: busy(s, 10) or [s.launch(500 * US, SGEMM) for _ in range(10)])


@silent("fp32-matmul")
def _():
    return loop(lambda s, n: [s.launch(500 * US, "ampere_tf32_s1688gemm_128x128_nn") for _ in range(10)])


def _converts(s, name):
    for _ in range(6):
        s.launch(200 * US, name).launch(500 * US, "sm80_xmma_fprop_implicit_gemm_f16f16_nhwc")


@right("layout-conversion")
def _():
    return loop(lambda s, n: _converts(s, "void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(int)"))


@silent("layout-conversion")
def _():
    return loop(lambda s, n: _converts(s, "sm80_xmma_wgrad_implicit_gemm_f16f16_nhwc"))


@right("precision-casts")
def _():
    return loop(lambda s, n: [(s.launch(500 * US), s.launch(100 * US, CAST, op="aten::copy_")) for _ in range(10)])


@silent("precision-casts")
def _():
    return loop(lambda s, n: [(s.launch(500 * US), s.launch(100 * US, ADD, op="aten::add")) for _ in range(10)])


def _checkpointed(s, again):
    busy(s, 8)
    with s.on(2):
        for _ in range(4):
            with s.inside("CheckpointFunctionBackward", RangeKind.OP):
                for _ in range(2 if again else 0):
                    s.launch(500 * US)
                with s.inside(BACKWARD, RangeKind.OP):
                    s.launch(500 * US).launch(500 * US)


@right("recomputation")
def _():
    return loop(lambda s, n: _checkpointed(s, True))


@silent("recomputation")
def _():
    return loop(lambda s, n: _checkpointed(s, False))


def _contends(s, beside):
    for _ in range(8):
        s.launch(400 * US, "gemm_alone")
    s.collective(8 * 500 * US, after=(7,), wait=False)
    for _ in range(8):
        s.launch(beside, "gemm_alone")


@right("contention")
def _():
    return loop(lambda s, n: _contends(s, 470 * US))


@silent("contention")
def _():
    return loop(lambda s, n: _contends(s, 405 * US))


@right("small-kernels")
def _():
    def body(s, n):
        for _ in range(100):
            s.launch(10 * US, between=0)
        s.tail[7] = max(s.tail[7], s.now + 300 * US)

    return loop(body, call=1 * US)


@silent("small-kernels")
def _():
    return loop(lambda s, n: [s.launch(100 * US) for _ in range(100)])


# The capture


def _graph(s, hole):
    """Twelve nodes of 100 µs, with a hole in the middle."""
    begin = s.now
    at = max(begin + 10 * US, s.tail.get(7, 0) + 1 * US)
    number = s.b.next_id
    s.b.next_id += 1
    s.b.call(begin, begin + 8 * US, "cudaGraphLaunch", thread=1, correlation=number)
    for i in range(12):
        s.b.activity(at, at + 100 * US, correlation=number, name=GEMM)
        at += 101 * US + (hole if i == 5 else 0)
    s.tail[7] = at
    s.now = begin + 20 * US


@right("graph-nodes-not-recorded")
def _():
    return loop(lambda s, n: (_graph(s, 600 * US), _graph(s, 600 * US)))


@silent("graph-nodes-not-recorded")
def _():
    return loop(lambda s, n: (_graph(s, 0), _graph(s, 0)))


def _loses(s, n, every):
    """A launch and 500 µs of host work, twenty times; of every so many launches the kernel is not recorded."""
    for i in range(20):
        if i % every == every - 1:
            s.call(4 * US, "cudaLaunchKernel").b.calls[-1] = (*s.b.calls[-1][:-1], 1_000_000 + 100 * n + i)
            s.host(300 * US)
        else:
            s.launch(300 * US)
        s.b.op(s.now, s.now + 200 * US, "aten::to", thread=s.thread)
        s.host(210 * US)


@right("kernels-not-recorded")
def _():
    return loop(lambda s, n: _loses(s, n, 2))


@silent("kernels-not-recorded")
def _():
    return loop(lambda s, n: _loses(s, n, 20))


@right("unexplained-idle")
def _():
    return loop(lambda s, n: (busy(s, 4), s.host(10 * MS), busy(s, 4)))


@silent("unexplained-idle")
def _():
    return loop(lambda s, n: (busy(s, 4), logs(s), busy(s, 4)))


def _joins(s, waits):
    busy(s, 4)
    if waits:
        s.b.waits.append((s.now, 7, 0, -1))
    s.now += 2 * US
    s.tail[7] += 600 * US if waits else 0
    busy(s, 4)
    s.host(1 * US)


@right("stream-dependency")
def _():
    return loop(lambda s, n: _joins(s, True))


@silent("stream-dependency")
def _():
    return loop(lambda s, n: _joins(s, False))


__all__ = ["ALL_REDUCE", "RIGHT", "SILENT", "busy", "logs", "loop"]
