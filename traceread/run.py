"""What a trace cannot say about a job: run.json beside the traces, [model] in traceread.toml, or options of the command line.

One run.json describes the job, or run.rankN.json of any rank does. Every field is optional. What is given on the command line wins
over run.json, and that over traceread.toml, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from traceread.errors import ConfigError, Notice
from traceread.records import record

FORMAT = 1
FILE_NAME = "run.json"

Precision = Literal["bf16", "fp16", "fp8", "fp4", "int8", "tf32", "fp32"]
RecomputationName = Literal["none", "selective", "full"]
Count = Annotated[int, msgspec.Meta(gt=0, le=10**18)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=10**18)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

_RANK_FILE = re.compile(r"run\.rank(\d{1,9})\.json")
_LARGEST_FILE = 1 << 20
_WHERE = re.compile(r" - at `\$\.?(.*)`$")


class ModelShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model as far as its FLOPs depend on it.

    Attributes:
        parameters: all of them.
        active_parameters: of a mixture of experts, those that a token passes through.
        layers: transformer layers.
        attention_width: heads times the width of a query head.
        sequence_length: tokens in a sequence.
        precision: number format of the matrix products.
        recomputation: what the backward runs again of the forward.
    """

    parameters: Count | None = None
    active_parameters: Count | None = None
    layers: Count | None = None
    attention_width: Count | None = None
    sequence_length: Count | None = None
    precision: Precision | None = None
    recomputation: RecomputationName | None = None


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of a step over all ranks: those that train the model, padding, and those left out (cut off, over an expert's capacity)."""

    valid: Amount | None = None
    padded: Amount | None = None
    dropped: Amount | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, as run.json describes it.

    Attributes:
        format: of the file.
        job: its name.
        world_size: number of ranks, one GPU each.
        parallel: degrees of parallelism, such as {"dp": 8, "tp": 4}.
        model: the model.
        global_batch_sequences: sequences of a step over all ranks.
        tokens_per_step: tokens of a step over all ranks.
        untraced_step_ns: a step's time without a profiler.
        stack: fingerprint of the software, for comparisons.
        profiler: how the profiler was set.
        peak_flops: FLOP/s of one GPU at most; wins over the table of peaks.
        matmul_flops: FLOP/s that large matrix products were measured to reach on one GPU.
        link_bytes_per_s: bytes that one GPU can send to its peers in a second.
        link_latency_ns: the shortest time of a message between two GPUs.
        input_bytes_per_step, input_bytes_per_s: what one rank reads for a step, and what its input pipeline delivers.
        price_per_gpu_hour: of one GPU, in any currency.
        goodput: GPU time of steps that count over all GPU time of the whole job.
        cost_per_evaluation: price of the whole job for each of its evaluation points.
    """

    format: int = FORMAT
    job: str | None = None
    world_size: Count | None = None
    parallel: dict[str, Count] = {}
    model: ModelShape = ModelShape()
    global_batch_sequences: Count | None = None
    tokens_per_step: Tokens = Tokens()
    untraced_step_ns: Count | None = None
    stack: dict[str, Any] = {}
    profiler: dict[str, Any] = {}
    peak_flops: Rate | None = None
    matmul_flops: Rate | None = None
    link_bytes_per_s: Rate | None = None
    link_latency_ns: Amount | None = None
    input_bytes_per_step: Count | None = None
    input_bytes_per_s: Rate | None = None
    price_per_gpu_hour: Rate | None = None
    goodput: Share | None = None
    cost_per_evaluation: Rate | None = None

    def to_dict(self) -> dict[str, Any]:
        """What is known, as JSON builtins in the shape of run.json."""
        known: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in known.items() if value != {}}


PRECISIONS: tuple[str, ...] = get_args(Precision)
RECOMPUTATIONS: tuple[str, ...] = get_args(RecomputationName)

_CHOICES = {"model.precision": PRECISIONS, "model.recomputation": RECOMPUTATIONS}
_TYPE = re.compile(r"`(\w+)(?: \| null)?`")
_TYPES = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "object": "an object", "array": "a list"}
_FIELDS: Mapping[str, type[msgspec.Struct]] = {"model": ModelShape, "tokens_per_step": Tokens}


@record
class Described:
    """A job with where each part of its description comes from.

    Attributes:
        run: the description.
        sources: where each given field comes from, by its name such as "model.layers".
        notices: what was odd about the files.
    """

    run: Run = field(default_factory=Run)
    sources: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()

    def over(self, other: Described) -> Described:
        """The description, completed with what another says.

        Who gives a batch in sequences and no tokens does not want the tokens of the other description.
        """
        mine, theirs = _leaves(self.run), _leaves(other.run)
        shaped = {"global_batch_sequences", "model.sequence_length"} & set(mine)
        if shaped and not any(name.startswith("tokens_per_step.") for name in mine):
            theirs = {name: value for name, value in theirs.items() if not name.startswith("tokens_per_step.")}
        merged = theirs | mine
        sources = {name: (self if name in mine else other).sources[name] for name in merged}
        return Described(msgspec.convert(_nested(merged), Run), sources, self.notices + other.notices)


def run_of(values: Mapping[str, Any], source: str) -> Described:
    """The description in a mapping of the shape of run.json.

    Raises:
        ConfigError: a field has a value that cannot be understood.
    """
    run = _converted(_whole_numbers(values), source)
    return Described(run, dict.fromkeys(_leaves(run), source))


def read_run(path: Path) -> Described:
    """The description in a run.json. Fields that mean nothing are named in a notice.

    Raises:
        ConfigError: the file cannot be read, is no JSON, or a field has a value that cannot be understood.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", "give an existing file") from None
    if len(text) > _LARGEST_FILE:
        raise ConfigError(f"{path} is larger than a description of a run can be", "see docs/efficiency.md for the format")
    try:
        values = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}", "see docs/efficiency.md for the format") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no JSON object", 'write {"format": 1, "model": {"parameters": …}}')
    found = values.get("format", FORMAT)
    if found != FORMAT:
        raise ConfigError(f"{path}: format is {found!r}, and this version knows {FORMAT}", "pip install --upgrade traceread")
    described = run_of(values, str(path))
    sources = dict.fromkeys(described.sources, path.name)
    return Described(described.run, sources, tuple(_unknown(values, path)))


def find_run(paths: Sequence[Path]) -> Described:
    """The description beside these traces: run.json, else what the files run.rankN.json say; where those differ the first wins.

    Raises:
        ConfigError: one of them cannot be understood.
    """
    found: list[Described] = []
    for directory in dict.fromkeys(path if path.is_dir() else path.parent for path in paths):
        of_job = directory / FILE_NAME
        if of_job.is_file():
            found.append(read_run(of_job))
        else:
            found += [read_run(path) for path in _rank_files(directory)]
    if not found:
        return Described()
    differing = sorted({name for other in found[1:] for name in _differing(found[0].run, other.run)})
    described = found[0]
    for other in found[1:]:
        described = described.over(other)
    if not differing:
        return described
    message = f"the descriptions of the run differ in {', '.join(differing)}; what {next(iter(described.sources.values()))} says is used"
    return Described(described.run, described.sources, (*described.notices, Notice("different-runs", message)))


def run_of_config(values: Mapping[str, Any], path: Path | None) -> Described:
    """The description in [model] of traceread.toml: fields of the model and of run.json side by side.

    Raises:
        ConfigError: a field is not known, or has a value that cannot be understood.
    """
    if not values:
        return Described()
    shape = {name: value for name, value in values.items() if name in ModelShape.__struct_fields__}
    others = {name: value for name, value in values.items() if name not in shape}
    for name in others:
        if name not in Run.__struct_fields__ or name in ("format", "model"):
            raise ConfigError(
                f"{path}: [model] {name} means nothing{_meant(name, [*ModelShape.__struct_fields__, *Run.__struct_fields__])}"
            )
    described = run_of({**others, "model": shape}, f"{path} [model]")
    return Described(described.run, dict.fromkeys(described.sources, path.name if path else "traceread.toml"))


def _rank_files(directory: Path) -> list[Path]:
    try:
        numbered = [(int(match[1]), path) for path in directory.iterdir() if (match := _RANK_FILE.fullmatch(path.name))]
    except OSError:
        return []
    return [path for _, path in sorted(numbered)]


def _converted(values: Mapping[str, Any], source: str) -> Run:
    try:
        return msgspec.convert(dict(values), Run)
    except msgspec.ValidationError as error:
        text = str(error)
        place = _WHERE.search(text)
        what = _TYPE.sub(lambda found: _TYPES.get(found[1], found[0]), text[: place.start()] if place else text)
        name = place[1] if place and place[1] else "the whole"
        choice = _CHOICES.get(name)
        what = f"{what}; it is one of {', '.join(choice)}" if choice else what
        raise ConfigError(f"{source}: {name}: {what[:1].lower()}{what[1:]}", "see docs/efficiency.md for what every field takes") from None


def _whole_numbers(value: Any, depth: int = 0) -> Any:
    """The value with floats that are whole numbers, such as 6.74e9, as integers; too deep parts are left as they are."""
    if isinstance(value, Mapping) and depth < 8:
        return {str(k): _whole_numbers(v, depth + 1) for k, v in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def _leaves(run: Run) -> dict[str, Any]:
    """The given fields by name, those of parts as "model.layers"."""
    leaves: dict[str, Any] = {}
    for name, value in run.to_dict().items():
        if isinstance(value, dict):
            leaves |= {f"{name}.{key}": part for key, part in value.items()}
        elif name != "format":
            leaves[name] = value
    return leaves


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in leaves.items():
        part, dot, key = name.partition(".")
        if dot:
            nested.setdefault(part, {})[key] = value
        else:
            nested[part] = value
    return nested


def _differing(first: Run, other: Run) -> list[str]:
    mine, theirs = _leaves(first), _leaves(other)
    return [name for name in mine if name in theirs and mine[name] != theirs[name]]


def _unknown(values: Mapping[str, Any], path: Path) -> Iterator[Notice]:
    parts: list[tuple[str, Mapping[str, Any], Sequence[str]]] = [("", values, Run.__struct_fields__)]
    parts += [(f"{n}.", values[n], struct.__struct_fields__) for n, struct in _FIELDS.items() if isinstance(values.get(n), dict)]
    for prefix, part, known in parts:
        for name in part:
            if name not in known:
                yield Notice("unknown-field", f"{path.name}: {prefix}{name} means nothing{_meant(name, known)}")


def _meant(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
