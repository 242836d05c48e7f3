"""The vocabulary of jobs: what a training step consists of. Times in ns, sizes in bytes."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from traceread.simulate.job import Phase, Site, emit_all
from traceread.simulate.kernels import MIXES, Kernel
from traceread.simulate.program import US, Code, Collective, Graph, HostCost, Nature, Stream

AUTOGRAD, SIDE, LOADER = 1, 2, 3
"""Threads beside the main one: autograd, a helper (checkpoint writer), the first loader worker."""

LAYER_FRAME = "nn.Module: LlamaDecoderLayer_{}"
LAYER_BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


@dataclass(frozen=True)
class Fetch(Phase):
    """Take the next batch from the data loader.

    Attributes:
        ns: how long it takes; with workers, how long a worker needs for a batch.
        workers: loader workers that prepare batches ahead; 0 loads in the main thread.
        ahead: batches prepared ahead of the consumer.
        annotated: whether PyTorch's range around it is recorded.
        frames: Python frames that begin and end while waiting, recorded with stacks.
    """

    ns: int
    workers: int = 0
    ahead: int = 2
    annotated: bool = True
    frames: int = 1

    def emit(self, code: Code, site: Site) -> None:
        """Fetch inside the loader's range, or without one."""
        kind = "MultiProcessing" if self.workers or self.annotated else "SingleProcess"
        name = f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__" if self.annotated else "fetch"
        # without a range it is silence to whoever reads the capture, and called as silence is called
        nature = Nature.DATA_WAIT if self.annotated else Nature.PLAIN
        with code.range(name, "annotation" if self.annotated else "hidden", nature):
            for i in range(self.frames):
                with (
                    code.range(
                        "torch/utils/data/dataloader.py(1448): _next_data" if self.annotated else f"stream.py({70 + i}): read", "python"
                    ),
                    code.range("poll", "os"),
                ):
                    if not self.workers:
                        code.python(self.ns // self.frames)
            if self.workers:
                self._prepare(code, site, site.step + self.ahead)
                if site.step == 0:
                    for batch in range(self.ahead):
                        self._prepare(code, site, batch)
                code.join("batch")

    def _prepare(self, code: Code, site: Site, batch: int) -> None:
        worker = code.on_thread(LOADER + batch % self.workers)
        worker.seed(f"{site.place}/batch")
        worker.python(self.ns)
        code.hand_over(worker.thread, worker, "batch")

    @property
    def varies(self) -> frozenset[str]:
        """With workers the batch number matters."""
        return frozenset({"step"}) if self.workers else frozenset()


@dataclass(frozen=True)
class CopyIn(Phase):
    """Copy a batch to the device, `ns` on the copy engine, from pinned or pageable memory."""

    size: int
    ns: int
    pinned: bool = True
    copies: int = 1

    def emit(self, code: Code, site: Site) -> None:
        """One or more copies on the compute stream."""
        for _ in range(self.copies):
            if self.pinned:
                code.copy("HtoD", self.size, self.ns, op="aten::_to_copy")
            else:
                code.blocking_copy("HtoD", self.size, self.ns, op="aten::_to_copy")


@dataclass(frozen=True)
class Compute(Phase):
    """Kernels of `each` ns, launched one by one from operators.

    Attributes:
        kernels: how many.
        each: length of each.
        mix: which kernels, see `kernels.MIXES`.
        layer: kernels per layer; each layer is a Python frame in the forward pass, an autograd node in the backward pass.
        host: host cost of a launch, the machine's if None.
        stream: where they run.
    """

    kernels: int
    each: int
    mix: str = "forward"
    layer: int = 8
    host: HostCost | None = None
    stream: Stream = Stream.COMPUTE

    def emit(self, code: Code, site: Site) -> None:
        """Layers of launches."""
        mix = MIXES[self.mix]
        backward = code.thread == AUTOGRAD
        for first in range(0, self.kernels, self.layer):
            name = LAYER_BACKWARD if backward else LAYER_FRAME.format(first // self.layer)
            with code.range(name, "op" if backward else "python"):
                for i in range(first, min(first + self.layer, self.kernels)):
                    code.kernel(mix[i % len(mix)], self.each, self.stream, self.host)


@dataclass(frozen=True)
class Backward(Phase):
    """Phases that the autograd thread runs while the main thread waits in `backward()`."""

    phases: tuple[Phase, ...]

    def emit(self, code: Code, site: Site) -> None:
        """Hand over and wait."""
        autograd = code.on_thread(AUTOGRAD)
        emit_all(self.phases, autograd, site)
        with code.range("torch/_tensor.py(581): backward", "python"):
            code.hand_over(AUTOGRAD, autograd, "backward")
            code.join("backward", AUTOGRAD)


@dataclass(frozen=True)
class Communicate(Phase):
    """A collective of `ns` transfer time.

    Attributes:
        operation: recorded name: allreduce, _allgather_base, _reduce_scatter_base, all_to_all, broadcast, reduce, scatter, gather.
        elements: elements of the whole tensor.
        ns: transfer time once everybody is there.
        after: whether it waits for what the compute stream holds.
        event: name of an event recorded behind it, for `Await`.
        wait: whether the compute stream waits for it at once.
        stream: communication stream.
        group: see `Site.group`.
        dtype: BFloat16 or Float.
        root: root of broadcast, reduce, scatter and gather.
    """

    operation: str
    elements: int
    ns: int
    after: bool = True
    event: str = ""
    wait: bool = False
    stream: Stream = Stream.COMM
    group: str = "world"
    dtype: str = "BFloat16"
    root: int = -1

    def emit(self, code: Code, site: Site) -> None:
        """Order the streams and launch."""
        group = site.group(self.group)
        share = self.elements // len(group.ranks)
        given = share if self.operation == "_allgather_base" else self.elements
        taken = share if self.operation == "_reduce_scatter_base" else self.elements
        if self.after:
            code.order(Stream.COMPUTE, self.stream)
        code.collective(
            Collective(self.operation, given, taken, self.dtype, group, f"{group.name}/{int(self.stream)}", group.ranks, self.root),
            self.ns,
            self.stream,
        )
        if self.event:
            code.record_named(self.stream, self.event)
        if self.wait:
            code.order(self.stream, Stream.COMPUTE)

    @property
    def varies(self) -> frozenset[str]:
        """Groups smaller than the world differ between ranks."""
        return frozenset() if self.group == "world" else frozenset({"rank"})


@dataclass(frozen=True)
class Await(Phase):
    """The compute stream waits for a named event, or for everything on a stream so far."""

    event: str = ""
    stream: Stream = Stream.COMM

    def emit(self, code: Code, site: Site) -> None:
        """A cudaStreamWaitEvent."""
        if self.event:
            code.wait_named(Stream.COMPUTE, self.event)
        else:
            code.order(self.stream, Stream.COMPUTE)


@dataclass(frozen=True)
class Annotate(Phase):
    """Phases inside a range of the user's or the framework's."""

    name: str
    phases: tuple[Phase, ...]

    def emit(self, code: Code, site: Site) -> None:
        """The range around the phases."""
        with code.range(self.name):
            emit_all(self.phases, code, site)


@dataclass(frozen=True)
class Zero(Phase):
    """Set `size` bytes of device memory to zero."""

    size: int
    ns: int

    def emit(self, code: Code, site: Site) -> None:
        """A memset."""
        code.memset(self.size, self.ns)


def optimizer(kernels: int, each: int, host: HostCost | None = None) -> Phase:
    """An optimizer step of `kernels` kernels."""
    return Annotate("Optimizer.step#AdamW.step", (Compute(kernels, each, "optimizer", layer=kernels, host=host),))


ZERO_GRAD = Annotate("Optimizer.zero_grad#AdamW.zero_grad", (Zero(4_194_304, 3 * US),))
"""Clearing the gradients."""


@dataclass(frozen=True)
class Item(Phase):
    """Read one number from the device: a small copy and a stream synchronisation, as `tensor.item()` does."""

    def emit(self, code: Code, site: Site) -> None:
        """aten::item around copy and synchronisation."""
        with code.range("train.py(88): log_loss", "python"), code.range("aten::item", "op"):
            code.copy("DtoH", 4, 1_200, op="aten::_local_scalar_dense")
            code.synchronize(Stream.COMPUTE)


@dataclass(frozen=True)
class Synchronize(Phase):
    """Block the host until a stream, a named event or (neither) the device is done."""

    stream: Stream | None = None
    event: str = ""

    def emit(self, code: Code, site: Site) -> None:
        """The blocking call."""
        if self.event:
            code.synchronize(slot=code.named_slot(self.event))
        else:
            code.synchronize(self.stream)


@dataclass(frozen=True)
class RecordEvent(Phase):
    """Record a named event on a stream."""

    event: str
    stream: Stream = Stream.COMPUTE

    def emit(self, code: Code, site: Site) -> None:
        """A cudaEventRecord."""
        code.record_named(self.stream, self.event)


@dataclass(frozen=True)
class Python(Phase):
    """Python that leaves no row unless stacks are recorded; then it is `frames` frames, one after the other."""

    ns: int
    frames: int = 1
    where: str = "train.py({}): host_work"

    def emit(self, code: Code, site: Site) -> None:
        """Host time inside frames."""
        for i in range(self.frames):
            with code.range(self.where.format(100 + i), "python"):
                code.python(self.ns // self.frames)


@dataclass(frozen=True)
class CpuOps(Phase):
    """Operators that launch nothing: `ns` in all, each `each` long and `gap` apart."""

    ns: int
    each: int = 400 * US
    gap: int = 100 * US
    name: str = "aten::to"

    def emit(self, code: Code, site: Site) -> None:
        """The operators, one after the other."""
        for _ in range(self.ns // (self.each + self.gap)):
            code.op(self.name, self.each, self.gap)


@dataclass(frozen=True)
class Allocate(Phase):
    """The caching allocator asks the driver for memory: `calls` times cudaMalloc of `ns`, freeing cached blocks before if `free`."""

    calls: int
    ns: int
    free: bool = False

    def emit(self, code: Code, site: Site) -> None:
        """Freeing blocks until the device is idle, allocating takes its time."""
        with code.range("aten::empty", "op"):
            for _ in range(self.calls):
                if self.free:
                    code.synchronize(call="cudaFree")
                code.call("cudaMalloc", self.ns, Nature.ALLOCATION)


@dataclass(frozen=True)
class Recompile(Phase):
    """torch.compile meets a new shape: tracing and code generation for `ns`."""

    ns: int

    def emit(self, code: Code, site: Site) -> None:
        """The ranges that Dynamo and Inductor leave."""
        with code.range("_compile.compile_inner (dynamo_timed)", "annotation", Nature.COMPILE):
            code.op("TorchDynamo Cache Lookup", 40 * US, 0)
            code.python(self.ns // 4)
            with code.range("compile_fx.<locals>.fw_compiler_base (dynamo_timed)"):
                code.python(self.ns - self.ns // 4 - 40 * US)


@dataclass(frozen=True)
class LoadCode(Phase):
    """Kernels that run for the first time: loading the code of each takes `ns` inside its launch call.

    Attributes:
        kernels: how many.
        ns: time to load the code of one.
        each: length of each.
        fresh: new names in every step, as with changing shapes.
        recorded: whether the profiler has a row for the loading.
    """

    kernels: int
    ns: int
    each: int = 200 * US
    fresh: bool = True
    recorded: bool = False

    def emit(self, code: Code, site: Site) -> None:
        """First launches."""
        for i in range(self.kernels):
            name = f"triton_poi_fused_add_{site.step * self.kernels + i if self.fresh else i}"
            code.first_launch(Kernel(name, name), self.each, self.ns, recorded=self.recorded)

    @property
    def varies(self) -> frozenset[str]:
        """New names in every step."""
        return frozenset({"step"}) if self.fresh else frozenset()


@dataclass(frozen=True)
class Checkpoint(Phase):
    """Save a checkpoint.

    Attributes:
        copies, size, copy_ns: copies from the device, on a stream of their own if asynchronous.
        write_ns: writing; by a helper thread if asynchronous.
        asynchronous: whether training goes on meanwhile.
    """

    copies: int
    size: int
    copy_ns: int
    write_ns: int
    asynchronous: bool = False

    def emit(self, code: Code, site: Site) -> None:
        """The range, the copies and the writing."""
        with code.range("save_checkpoint", "annotation", Nature.CHECKPOINT):
            if not self.asynchronous:
                for _ in range(self.copies):
                    code.blocking_copy("DtoH", self.size, self.copy_ns)
                with code.range("write", "os"):
                    code.python(self.write_ns)
                return
            code.order(Stream.COMPUTE, Stream.COPY)
            for _ in range(self.copies):
                code.copy("DtoH", self.size, self.copy_ns, Stream.COPY)
        writer = code.on_thread(SIDE)
        writer.python(self.write_ns)
        code.hand_over(SIDE, writer, "written")


@dataclass(frozen=True)
class GarbageCollection(Phase):
    """Python's collector stops the thread for `ns`, in `passes` labelled pieces."""

    ns: int
    passes: int = 1

    def emit(self, code: Code, site: Site) -> None:
        """The labelled stop."""
        for _ in range(self.passes):
            with code.range("gc.collect"):
                code.python(self.ns // self.passes)


@dataclass(frozen=True)
class GraphReplay(Phase):
    """Replay a CUDA graph of `nodes` kernels; of every `recorded` runs of ten nodes the profiler records one (1: all)."""

    nodes: int
    each: int
    call_ns: int = 60 * US
    name: str = "train_graph"
    mix: str = "compiled"
    recorded: int = 1

    def emit(self, code: Code, site: Site) -> None:
        """One launch for all nodes."""
        mix = MIXES[self.mix]
        nodes = []
        for i in range(self.nodes):
            kernel = mix[i % len(mix)]
            activity = code.library.kernel(kernel, "cudaGraphLaunch")
            nodes.append((activity, max(self.each // code.tick, 1), int(Stream.COMPUTE)))
        graph = Graph(self.name, tuple(nodes), tuple(i // 10 % self.recorded == 0 or i == self.nodes - 1 for i in range(self.nodes)))
        with code.range("CUDAGraph::replay", "op"):
            code.graph(graph, self.call_ns)


@dataclass(frozen=True)
class ProfilerFlush(Phase):
    """The profiler stops the thread for `ns` to flush its buffers."""

    ns: int

    def emit(self, code: Code, site: Site) -> None:
        """The profiler's row."""
        code.overhead("Buffer Flush", self.ns)


@dataclass(frozen=True)
class Repeat(Phase):
    """The same phases `times` times, as in gradient accumulation."""

    times: int
    phases: tuple[Phase, ...]

    def emit(self, code: Code, site: Site) -> None:
        """The phases again and again."""
        for _ in range(self.times):
            emit_all(self.phases, code, site)


@dataclass(frozen=True)
class Poll(Phase):
    """Ask `times` times whether an event has happened: cudaEventQuery does not block."""

    times: int = 3

    def emit(self, code: Code, site: Site) -> None:
        """The calls."""
        for _ in range(self.times):
            code.call("cudaEventQuery", 1_500)


@dataclass(frozen=True)
class Pipeline(Phase):
    """One forward, one backward (1F1B): the rank is the stage.

    Attributes:
        microbatches: how many.
        forward, backward: length of the work of one microbatch on one stage.
        kernels: kernels of each.
        transfer: transfer time of activations and gradients between stages.
        elements: elements of an activation.
    """

    microbatches: int
    forward: int
    backward: int
    kernels: int = 10
    transfer: int = 60 * US
    elements: int = 8_388_608

    def emit(self, code: Code, site: Site) -> None:
        """The schedule of this stage."""
        warmup = min(site.world - 1 - site.rank, self.microbatches)
        for _ in range(warmup):
            self._forward(code, site)
        for _ in range(self.microbatches - warmup):
            self._forward(code, site)
            self._backward(code, site)
        for _ in range(warmup):
            self._backward(code, site)

    def _forward(self, code: Code, site: Site) -> None:
        self._receive(code, site, site.rank - 1, Stream.PEER)
        Compute(self.kernels, self.forward // self.kernels).emit(code, site)
        self._send(code, site, site.rank + 1, Stream.PEER)

    def _backward(self, code: Code, site: Site) -> None:
        self._receive(code, site, site.rank + 1, Stream.SECOND)
        Backward((Compute(self.kernels, self.backward // self.kernels, "backward"),)).emit(code, site)
        self._send(code, site, site.rank - 1, Stream.SECOND)

    def _receive(self, code: Code, site: Site, peer: int, stream: Stream) -> None:
        if 0 <= peer < site.world:
            self._transfer(code, site, "recv", peer, site.rank, stream)
            code.order(stream, Stream.COMPUTE)

    def _send(self, code: Code, site: Site, peer: int, stream: Stream) -> None:
        if 0 <= peer < site.world:
            code.order(Stream.COMPUTE, stream)
            self._transfer(code, site, "send", site.rank, peer, stream)

    def _transfer(self, code: Code, site: Site, operation: str, source: int, destination: int, stream: Stream) -> None:
        group = site.group("pipeline")
        code.collective(
            Collective(
                operation,
                self.elements,
                self.elements,
                "BFloat16",
                group,
                f"{group.name}/{source}>{destination}",
                (source, destination),
                -1,
                source,
                destination,
            ),
            self.transfer,
            stream,
        )

    @property
    def varies(self) -> frozenset[str]:
        """Every stage has its own schedule."""
        return frozenset({"rank"})


@dataclass(frozen=True)
class Experts(Phase):
    """Dispatch tokens, run the local experts, combine: the load differs from rank to rank by up to `skew` thousandths."""

    kernels: int
    each: int
    skew: int
    transfer: int = 300 * US
    elements: int = 16_777_216

    def emit(self, code: Code, site: Site) -> None:
        """Two all-to-alls around unequal work."""
        group = site.group()
        load = zlib.crc32(f"{site.rank} {site.step} {site.place}".encode()) % (self.skew + 1)
        spec = Collective("all_to_all", self.elements, self.elements, "BFloat16", group, f"{group.name}/{int(Stream.SECOND)}", group.ranks)
        Compute(2, self.each, "router").emit(code, site)
        for work in (self.each + self.each * load // 1000, 0):
            code.order(Stream.COMPUTE, Stream.SECOND)
            code.collective(spec, self.transfer, Stream.SECOND)
            code.order(Stream.SECOND, Stream.COMPUTE)
            if work:
                Compute(self.kernels, work, "expert").emit(code, site)

    @property
    def varies(self) -> frozenset[str]:
        """Load is drawn per rank and step."""
        return frozenset({"rank", "step"})
