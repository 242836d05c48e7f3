"""Whether the two sides are the same job on the same machine, key by key, from what was recorded, run.json or the caller.

What differs is named, and then no side is called faster: a step of half the batch is not half the work done in less time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from shlex import quote
from typing import Any

from traceread.comparison.side import Side
from traceread.errors import ComparisonError
from traceread.records import record

NOT_KNOWN = "not recorded"
_CUT = 30
"""nsys of 2022 and 2023 cut device names to so many characters."""

Declared = Mapping[str, tuple[str, str]]


@record
class KeyCheck:
    """One compare key on both sides.

    Attributes:
        key: how `--allow-mismatch` calls it.
        title: how sentences call it.
        before, after: its values as text, NOT_KNOWN where a side does not say.
        allowed: a difference was allowed by the caller.
        noted: a difference is worth saying but takes nothing away from the comparison.
    """

    key: str
    title: str
    before: str
    after: str
    allowed: bool = False
    noted: bool = False

    @property
    def known(self) -> bool:
        """Whether both sides say it."""
        return NOT_KNOWN not in (self.before, self.after)

    @property
    def differs(self) -> bool:
        """Whether both sides say it, and not the same."""
        return self.known and self.before != self.after

    @property
    def state(self) -> str:
        """In one word: same, different, allowed, noted, or not recorded."""
        if not self.known:
            return NOT_KNOWN
        return "same" if not self.differs else "allowed" if self.allowed else "noted" if self.noted else "different"

    def to_dict(self) -> dict[str, Any]:
        """The check as JSON builtins."""
        return {"key": self.key, "before": _or_none(self.before), "after": _or_none(self.after), "state": self.state}


@record
class Fairness:
    """Whether the sides may be compared.

    Attributes:
        checks: every key.
        mixed: sentences about sides that are not one thing in themselves (two stacks, two GPU models).
    """

    checks: tuple[KeyCheck, ...]
    mixed: tuple[str, ...] = ()

    @property
    def mismatches(self) -> tuple[KeyCheck, ...]:
        """Keys that differ and were not allowed to."""
        return tuple(c for c in self.checks if c.state == "different")

    @property
    def comparable(self) -> bool:
        """Whether one side may be called faster."""
        return not self.mismatches

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON builtins."""
        return {"comparable": self.comparable, "mixed": list(self.mixed), "keys": [c.to_dict() for c in self.checks]}


def check_fairness(before: Side, after: Side, allowed: Collection[str] = (), declared: Declared | None = None) -> Fairness:
    """The compare keys of both sides.

    Args:
        before: one side.
        after: the other.
        allowed: keys that may differ.
        declared: values that the caller gives, before and after, for what is not recorded; they win.

    Raises:
        ComparisonError: `allowed` or `declared` names no key.
    """
    declared = declared or {}
    stacks = [k for k in _stack_keys(before, after) if k not in _KEYS]
    known = [*_KEYS, *stacks, *REFUSALS]
    for key in (*allowed, *declared):
        if key not in known:
            raise ComparisonError(f"{key!r} is no compare key", f"keys are: {', '.join(known)}", "compare-key")
    checks = []
    for key, (title, value, noted) in _KEYS.items():
        own = declared.get(key, (_text(value(before)), _text(value(after))))
        checks.append(KeyCheck(key, title, *_same_spelling(key, *own), key in allowed, noted and key not in declared))
    for key in stacks:
        own = declared.get(key, (_text(_stack(before).get(key)), _text(_stack(after).get(key))))
        checks.append(KeyCheck(key, key.replace("_", " "), *own, key in allowed))
    return Fairness(tuple(checks), (*_mixed(before, "before"), *_mixed(after, "after")))


REFUSALS = ("truncated", "incomplete")
"""What refuses a side unless it is allowed."""


def refuse_unusable(side: Side, name: str, allowed: Collection[str] = ()) -> None:
    """Nothing, if the side can be compared at all.

    Raises:
        ComparisonError: it is empty, has no GPU work, was truncated, or has no complete step.
    """
    title = f"{name} ({side.title})"
    if not side.saved.profile.ranks:
        raise ComparisonError(f"{title} is empty", "give a capture with at least one rank", "nothing-to-compare")
    if not side.has_work:
        raise ComparisonError(
            f"{title} holds no GPU work, so there is no step to compare", f"traceread info {quote(side.title)}", "nothing-to-compare"
        )
    truncated = side.warned("truncated")
    if truncated and "truncated" not in allowed:
        raise ComparisonError(
            f"{title} is truncated: {truncated[0].message}",
            "compare with a complete copy, or accept it: --allow-mismatch truncated",
            "truncated-side",
        )
    if any(window.partial for window in side.windows) and "incomplete" not in allowed:
        raise ComparisonError(
            f"{title} has no complete step: work of those it has is missing, which looks like idle time",
            "record it again, or accept it: --allow-mismatch incomplete",
            "incomplete-side",
        )


def refuse_different_windows(before: Side, after: Side) -> None:
    """Nothing, if both sides count steps or both are whole captures.

    Raises:
        ComparisonError: one side counts steps and the other does not.
    """
    if before.counts_steps == after.counts_steps:
        return
    whole, stepped = ("before", "after") if after.counts_steps else ("after", "before")
    raise ComparisonError(
        f"{stepped} counts steps, and {whole} names none: a step and a whole capture cannot be compared",
        "find its steps with --step-range infer, or a REGEX that matches its ranges",
        "different-windows",
    )


def _gpu(side: Side) -> str | None:
    names = sorted({r.device for r in side.saved.profile.ranks if r.device})
    return ", ".join(names) or None


def _gpus(side: Side) -> int | None:
    return side.saved.profile.world_size or side.run.get("world_size")


def _model(side: Side, name: str) -> Any:
    model = side.run.get("model")
    return model.get(name) if isinstance(model, Mapping) else None


def _tokens(side: Side) -> Any:
    tokens = side.run.get("tokens_per_step")
    return tokens.get("valid") if isinstance(tokens, Mapping) else None


def _recorded(capability: str, option: str) -> Callable[[Side], str | None]:
    """Whether the profiler recorded something, for PyTorch traces; the option in run.json says it best."""

    def value(side: Side) -> str | None:
        profiler = side.run.get("profiler")
        if isinstance(profiler, Mapping) and isinstance(profiler.get(option), bool):
            return "on" if profiler[option] else "off"
        if side.saved.profile.source != "kineto":
            return None
        return "on" if any(capability in r.recorded for r in side.saved.profile.ranks) else "off"

    return value


def _version(*names: str) -> Callable[[Side], str | None]:
    """A version that the trace records, else that of the stack fingerprint."""

    def value(side: Side) -> str | None:
        found = {r.versions[name] for r in side.saved.profile.ranks for name in names if name in r.versions}
        if not found:
            stack = {str(k).lower(): v for k, v in _stack(side).items()}
            found = {str(stack[name.lower()]) for name in names if stack.get(name.lower()) is not None}
        return ", ".join(sorted(found)) or None

    return value


def _layout(side: Side) -> str | None:
    parallel = side.run.get("parallel")
    return ", ".join(f"{k} {v}" for k, v in sorted(parallel.items())) if isinstance(parallel, Mapping) and parallel else None


_FORMATS = {"kineto": "PyTorch trace", "nsys": "Nsight Systems"}

_KEYS: dict[str, tuple[str, Callable[[Side], Any], bool]] = {
    "gpu": ("GPU model", _gpu, False),
    "world_size": ("number of GPUs", _gpus, False),
    "global_batch": ("global batch (sequences)", lambda s: s.run.get("global_batch_sequences"), False),
    "tokens": ("valid tokens per step", _tokens, False),
    "sequence_length": ("sequence length", lambda s: _model(s, "sequence_length"), False),
    "parameters": ("model parameters", lambda s: _model(s, "parameters"), False),
    "precision": ("precision", lambda s: _model(s, "precision"), False),
    "stacks": ("Python stacks recorded", _recorded("stacks", "with_stack"), False),
    "shapes": ("input shapes recorded", _recorded("shapes", "record_shapes"), False),
    "torch": ("PyTorch", _version("torch", "pytorch"), False),
    "cuda": ("CUDA runtime", _version("CUDA runtime", "HIP runtime", "cuda"), False),
    "nccl": ("NCCL", _version("NCCL"), False),
    "driver": ("driver", _version("CUDA driver", "HIP driver", "driver"), False),
    "format": ("profiler", lambda s: _FORMATS.get(s.saved.profile.source, s.saved.profile.source), True),
    "step_source": ("where steps come from", lambda s: s.saved.steps.source, True),
    "ranks": ("ranks loaded", lambda s: len(s.saved.profile.ranks), True),
    "parallel": ("parallel layout", _layout, True),
    "recomputation": ("recomputation", lambda s: _model(s, "recomputation"), True),
}
"""Compare keys: title, value of a side, and whether a difference is noted only: it is what one tunes, or is accounted for elsewhere."""

_OF_THE_MACHINE = frozenset(("host", "hostname", "hash"))
_IN_KEYS = frozenset(("torch", "pytorch", "cuda", "nccl", "driver", "gpu", "gpu name", "gpu_name"))


def _stack(side: Side) -> dict[str, Any]:
    stack = side.run.get("stack")
    return {str(k): v for k, v in stack.items()} if isinstance(stack, Mapping) else {}


def _stack_keys(before: Side, after: Side) -> list[str]:
    """Fields of the stack fingerprint that no other key compares: clocks, power limit, Python."""
    return [k for k in dict.fromkeys((*_stack(before), *_stack(after))) if k.lower() not in _OF_THE_MACHINE | _IN_KEYS]


def _mixed(side: Side, name: str) -> list[str]:
    """Sentences about ranks of one side that do not belong together."""
    said = []
    ranks = side.saved.profile.ranks
    stacks: dict[str, list[int]] = {}
    for r in ranks:
        stacks.setdefault(", ".join(f"{k} {v}" for k, v in sorted(r.versions.items())), []).append(r.rank)
    if len(stacks) > 1:
        groups = "; ".join(f"{stack or 'no versions'} on {_ranks(of)}" for stack, of in stacks.items())
        said.append(f"{name} mixes {len(stacks)} software stacks: {groups}")
    for w in side.warned("different-runs"):
        if "stack" in w.message:
            said.append(f"{name} mixes software stacks: {w.message}")
    devices: dict[str, list[int]] = {}
    for r in ranks:
        if r.device:
            devices.setdefault(r.device, []).append(r.rank)
    if len(devices) > 1:
        said.append(f"{name} mixes GPU models: " + "; ".join(f"{device} on {_ranks(of)}" for device, of in devices.items()))
    return said


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(str(r) for r in ranks[:4])
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def _same_spelling(key: str, before: str, after: str) -> tuple[str, str]:
    """Both values, alike where they mean the same: a GPU's name may be cut, or lack its vendor."""
    if key == "gpu" and NOT_KNOWN not in (before, after):
        short, long = sorted((_plain(before), _plain(after)), key=len)
        if short == long or (len(min(before, after, key=len)) >= _CUT and long.startswith(short)):
            return after, after
    return before, after


def _plain(name: str) -> str:
    return name.lower().replace("nvidia ", "").replace("amd ", "")


def _text(value: Any) -> str:
    if value is None or value == "" or value == {}:
        return NOT_KNOWN
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _or_none(text: str) -> str | None:
    return None if text == NOT_KNOWN else text
