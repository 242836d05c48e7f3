"""How much of the GPUs' peak training uses: tokens per second, MFU and HFU."""

from __future__ import annotations

from collections.abc import Sequence

from traceread.errors import Notice
from traceread.measurements.flops import Recomputation, TokenFlops, flops_of_token, utilisation
from traceread.measurements.peaks import Gpu, Peak, find_gpu, find_peak
from traceread.model import Device
from traceread.records import record
from traceread.run import Described, Tokens

_SECOND = 10**9


@record
class Utilisation:
    """What a job makes of its GPUs. Everything that is not known is None; `missing` says what would have to be.

    Attributes:
        step_ns: mean step of the slowest rank.
        gpus, gpus_source: number of GPUs of the job, and how that is known.
        tokens, tokens_source: of a step over all ranks.
        flops: of training on one token.
        precision, precision_source: number format of the matrix products.
        peak: dense peak of one GPU.
        gpu: the entry of the table of peaks that the device fits.
        missing: what MFU lacks, each with what to do about it.
        untraced_step_ns: step without the profiler.
        given_matmul_flops: FLOP/s that large products were measured to reach, where that is given.
        notices: warnings.
    """

    step_ns: int
    gpus: int
    gpus_source: str
    tokens: Tokens
    tokens_source: str
    flops: TokenFlops | None
    precision: str | None
    precision_source: str
    peak: Peak
    gpu: Gpu | None
    missing: tuple[str, ...]
    untraced_step_ns: int | None = None
    given_matmul_flops: float | None = None
    notices: tuple[Notice, ...] = ()

    def tokens_per_s(self, kind: str = "valid", step_ns: int | None = None) -> float | None:
        """Tokens per second of the job: "valid", "padded" or "dropped" ones; of another step time if given."""
        count = getattr(self.tokens, kind)
        ns = self.step_ns if step_ns is None else step_ns
        return None if count is None or ns <= 0 else count * _SECOND / ns

    def mfu_at(self, step_ns: int) -> float | None:
        """Model FLOPs utilisation if a step took so long: 6N + 12LHQT FLOPs a valid token, over the dense peak of all GPUs."""
        return None if self.flops is None else self._used(self.flops.model, step_ns)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation of the measured step."""
        return self.mfu_at(self.step_ns)

    @property
    def mfu_causal(self) -> float | None:
        """The same with the half of attention that a causal mask leaves."""
        return None if self.flops is None or self.flops.causal is None else self._used(self.flops.causal, self.step_ns)

    @property
    def mfu_without_attention(self) -> float | None:
        """The same with 6N alone."""
        return None if self.flops is None else self._used(self.flops.without_attention, self.step_ns)

    @property
    def mfu_untraced(self) -> float | None:
        """Model FLOPs utilisation of the step without the profiler."""
        return None if self.untraced_step_ns is None else self.mfu_at(self.untraced_step_ns)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation: recomputation and padding count too. None where it is not known what is recomputed."""
        if self.flops is None or self.flops.hardware is None:
            return None
        return self._used(self.flops.hardware, self.step_ns, padding=True)

    @property
    def model_flops(self) -> int | None:
        """FLOPs that one GPU must do in a step for the model: those of the valid tokens, shared by all GPUs."""
        return self._flops_of_gpu(None if self.flops is None else self.flops.model, padding=False)

    @property
    def hardware_flops(self) -> int | None:
        """FLOPs that one GPU does in a step, recomputation and padding included."""
        return self._flops_of_gpu(None if self.flops is None else self.flops.hardware, padding=True)

    def time_of(self, flops: int | None, rate: float | None = None) -> int | None:
        """Time in ns that one GPU needs for so many FLOPs at a rate, at its peak if none is given."""
        per_s = self.peak.flops if rate is None else rate
        return None if flops is None or per_s is None else round(flops * _SECOND / per_s)

    @property
    def matmul_flops(self) -> float | None:
        """FLOP/s that large products reach on one GPU, as measured: given, else from the table of peaks for bf16. None if not known."""
        if self.given_matmul_flops is not None:
            return self.given_matmul_flops
        return self.gpu.matmul if self.gpu is not None and self.precision in ("bf16", "fp16") else None

    def _flops_of_gpu(self, per_token: int | None, padding: bool) -> int | None:
        count = self._count(padding)
        return None if per_token is None or count is None else per_token * count // self.gpus

    def _count(self, padding: bool) -> int | None:
        if self.tokens.valid is None:
            return None
        return self.tokens.valid + (self.tokens.padded or 0 if padding else 0)

    def _used(self, per_token: int, step_ns: int, padding: bool = False) -> float | None:
        count = self._count(padding)
        if count is None or self.peak.flops is None or step_ns <= 0:
            return None
        return utilisation(per_token * count * _SECOND / step_ns, self.gpus, self.peak.flops)


def measure_utilisation(
    described: Described, step_ns: int, devices: Sequence[Device], world_size: int | None, seen: tuple[str, str] | None
) -> Utilisation:
    """The utilisation of a job.

    Args:
        described: what is known about it beside the trace.
        step_ns: mean step of its slowest rank.
        devices: the GPUs of the loaded ranks.
        world_size: number of ranks as recorded in the trace.
        seen: number format that the trace shows, and by what.
    """
    run = described.run
    gpus, gpus_source, notices = _gpus(described, world_size, len(devices))
    tokens, tokens_source = _tokens(described)
    shape = run.model
    parameters = shape.active_parameters or shape.parameters
    recomputation = None if shape.recomputation is None else Recomputation(shape.recomputation)
    flops = (
        None
        if parameters is None
        else flops_of_token(parameters, shape.layers, shape.attention_width, shape.sequence_length, recomputation)
    )
    precision, precision_source = seen or (None, "")
    if shape.precision is not None:
        precision, precision_source = shape.precision, described.sources["model.precision"]
    peak = _peak(described, devices, precision)
    missing = []
    if parameters is None:
        missing.append("the number of parameters is not known (--parameters, or model.parameters in run.json)")
    if tokens.valid is None:
        missing.append("the tokens of a step are not known (--sequences and --sequence-length, or --tokens-per-step)")
    if peak.flops is None:
        missing.append(f"the peak of the GPU is not known: {peak.source} (--peak-flops)")
    gpu = find_gpu(devices[0]).gpu if len({(d.name, d.memory_bytes, d.multiprocessors) for d in devices}) == 1 else None
    return Utilisation(
        step_ns=step_ns,
        gpus=gpus,
        gpus_source=gpus_source,
        tokens=tokens,
        tokens_source=tokens_source,
        flops=flops,
        precision=precision,
        precision_source=precision_source,
        peak=peak,
        gpu=gpu,
        missing=tuple(missing),
        untraced_step_ns=run.untraced_step_ns,
        given_matmul_flops=run.matmul_flops,
        notices=() if missing else notices,
    )


def _gpus(described: Described, recorded: int | None, loaded: int) -> tuple[int, str, tuple[Notice, ...]]:
    if described.run.world_size is not None:
        return described.run.world_size, described.sources["world_size"], ()
    if recorded is not None:
        return recorded, "recorded in the trace", ()
    message = f"how many ranks the job has is not known; MFU counts the {loaded} loaded (--world-size, or world_size in run.json)"
    return loaded, "ranks loaded", (Notice("world-size-assumed", message),)


def _tokens(described: Described) -> tuple[Tokens, str]:
    run = described.run
    if run.tokens_per_step.valid is not None:
        return run.tokens_per_step, described.sources["tokens_per_step.valid"]
    if run.global_batch_sequences is None or run.model.sequence_length is None:
        return run.tokens_per_step, ""
    padded, dropped = run.tokens_per_step.padded, run.tokens_per_step.dropped
    valid = run.global_batch_sequences * run.model.sequence_length - (padded or 0) - (dropped or 0)
    return Tokens(
        valid=max(valid, 0), padded=padded, dropped=dropped
    ), f"sequences times length, {described.sources['global_batch_sequences']}"


def _peak(described: Described, devices: Sequence[Device], precision: str | None) -> Peak:
    if described.run.peak_flops is not None:
        return Peak(described.run.peak_flops, described.sources["peak_flops"])
    kinds = {d.name: d for d in devices}
    if len(kinds) > 1:
        return Peak(None, f"the ranks run on different GPUs: {', '.join(sorted(str(name) for name in kinds))}")
    if not devices:
        return Peak(None, "no device is recorded")
    if precision is None:
        found = find_gpu(devices[0])
        return Peak(None, found.reason or "the number format is not known, neither from kernel names nor by --precision")
    return find_peak(devices[0], precision)
