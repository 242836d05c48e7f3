"""Options that say about a job what its traces cannot, as run.json does; they win over it."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceread.run import Described

_NUMBER = r"(\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,2})?)\s*([kmbgtp]?)"
_SCALES = {"": 0, "k": 3, "m": 6, "b": 9, "g": 9, "t": 12, "p": 15}
_TIME = r"(\d{1,12}(?:\.\d{1,9})?)\s*(ns|us|µs|ms|s|min|h)"
_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_PERCENT = r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)"

PRECISIONS = ("bf16", "fp16", "fp8", "fp4", "int8", "tf32", "fp32")
RECOMPUTATIONS = ("none", "selective", "full")

_FIELDS = {
    "world_size": "world_size",
    "parameters": "model.parameters",
    "active_parameters": "model.active_parameters",
    "layers": "model.layers",
    "attention_width": "model.attention_width",
    "sequence_length": "model.sequence_length",
    "precision": "model.precision",
    "recomputation": "model.recomputation",
    "sequences": "global_batch_sequences",
    "tokens_per_step": "tokens_per_step.valid",
    "untraced_step": "untraced_step_ns",
    "peak_flops": "peak_flops",
    "matmul_flops": "matmul_flops",
    "link_bytes_per_s": "link_bytes_per_s",
}
"""Options and the fields of run.json that they stand for."""


def add_model(parser: argparse.ArgumentParser) -> None:
    """What the FLOPs of the model depend on."""
    group = parser.add_argument_group("model (wins over run.json)")
    group.add_argument("--parameters", type=count, metavar="N", help="parameters of the model, such as 6.74e9 or 7B")
    group.add_argument("--active-parameters", type=count, metavar="N", help="of a mixture of experts: those a token passes through")
    group.add_argument("--layers", type=count, metavar="L", help="transformer layers")
    group.add_argument("--attention-width", type=count, metavar="W", help="heads times the width of a query head")
    group.add_argument("--sequence-length", type=count, metavar="T", help="tokens in a sequence")
    group.add_argument("--precision", choices=PRECISIONS, help="number format of the matrix products (default: by kernel names)")
    group.add_argument("--recomputation", choices=RECOMPUTATIONS, help="what the backward runs again, for HFU")
    group.add_argument("--peak-flops", type=number, metavar="F", help="dense FLOP/s of one GPU, such as 989T (default: by its name)")


def add_job(parser: argparse.ArgumentParser) -> None:
    """Size of the job, its batch, and what its hardware was measured to do."""
    group = parser.add_argument_group("job (wins over run.json)")
    group.add_argument("--world-size", type=count, metavar="N", help="ranks of the job, one GPU each")
    group.add_argument("--sequences", type=count, metavar="N", help="sequences of a step over all ranks")
    group.add_argument("--tokens-per-step", type=count, metavar="N", help="valid tokens of a step over all ranks")
    group.add_argument("--untraced-step", type=nanoseconds, metavar="TIME", help="a step's time without the profiler, such as 3.45s")
    group.add_argument("--matmul-flops", type=number, metavar="F", help="FLOP/s that large products were measured to reach on one GPU")
    group.add_argument("--link", type=gigabytes, dest="link_bytes_per_s", metavar="GB/S", help="what one GPU can send to its peers")


def given(args: argparse.Namespace) -> Described:
    """What these options say; nothing for a command that has none of them."""
    from traceread.run import run_of

    values: dict[str, Any] = {}
    for option, name in _FIELDS.items():
        value = getattr(args, option, None)
        if value is not None:
            part, dot, field = name.partition(".")
            if dot:
                values.setdefault(part, {})[field] = value
            else:
                values[part] = value
    return run_of(values, "command line")


def number(text: str) -> float:
    """A positive number such as 6.74e9, 400k, 7B or 989T."""
    found = re.fullmatch(_NUMBER, text.strip().replace("_", "").replace(",", ""), re.IGNORECASE)
    value = float(found[1]) * 10.0 ** _SCALES[found[2].lower()] if found else 0.0
    if not 0 < value < 1e30:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number; write 6.74e9, 400k, 7B or 989T")
    return float(f"{value:.15g}")


def count(text: str) -> int:
    """A positive whole number such as 32, 6.74e9 or 7B."""
    value = number(text)
    if not value.is_integer() or value > 10**18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(value)


def gigabytes(text: str) -> float:
    """Bytes per second from a number of GB/s."""
    return number(text) * 1e9


def nanoseconds(text: str) -> int:
    """A time such as 3.45s, 345 ms or 2h in ns."""
    found = re.fullmatch(_TIME, text.strip())
    ns = round(float(found[1]) * _NS[found[2]]) if found else 0
    if ns <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 3.45s, 345ms, 10min or 2h")
    return ns


def share(text: str) -> float:
    """A share above 0 and at most 1, from 40% or 0.4."""
    found = re.fullmatch(_PERCENT, text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 40% or 0.4")
    return value
