"""FLOPs that training takes, by the formulas in use; a multiply-add counts as two.

N parameters, L layers, H·Q attention width (heads times the width of a query head), T tokens in a sequence. Backward costs twice
the forward, so the parameters cost 2N + 4N a token and the two products of attention 4LHQT + 8LHQT.
"""

from __future__ import annotations

from enum import StrEnum

from traceread.records import record


class Recomputation(StrEnum):
    """How much of the forward the backward runs again."""

    NONE = "none"
    SELECTIVE = "selective"  # the core of attention
    FULL = "full"


@record
class TokenFlops:
    """FLOPs of training on one token, by the convention of the PaLM paper.

    Attributes:
        parameters: N, those that a token passes through.
        attention: 12LHQT, the full square of attention; None where layers, width or length are not known.
        recomputation: what the backward runs again; None: not known.
    """

    parameters: int
    attention: int | None = None
    recomputation: Recomputation | None = None

    @property
    def model(self) -> int:
        """What counts for MFU: 6N + 12LHQT, nothing that is computed twice."""
        return 6 * self.parameters + (self.attention or 0)

    @property
    def without_attention(self) -> int:
        """6N."""
        return 6 * self.parameters

    @property
    def causal(self) -> int | None:
        """6N + 6LHQT: the half of the square that a causal mask leaves. None without attention."""
        return None if self.attention is None else 6 * self.parameters + self.attention // 2

    @property
    def hardware(self) -> int | None:
        """What counts for HFU: the model's, and what is computed again. None where it is not known what that is.

        Full recomputation repeats the forward: 8N + 16LHQT. For selective recomputation this is 6N + 24LHQT, as Korthikanti et al.
        (Reducing Activation Recomputation in Large Transformer Models) count it; one more forward of the attention core alone is
        a third of what they add.
        """
        if self.recomputation is None:
            return None
        if self.recomputation is Recomputation.FULL:
            return (4 * self.model) // 3
        if self.recomputation is Recomputation.NONE:
            return self.model
        return None if self.attention is None else self.model + self.attention

    @property
    def convention(self) -> str:
        """The formula behind `model`."""
        return "6N" if self.attention is None else "6N + 12LHQT"


def flops_of_token(
    parameters: int,
    layers: int | None = None,
    width: int | None = None,
    length: int | None = None,
    recomputation: Recomputation | None = None,
) -> TokenFlops:
    """FLOPs of a token from the shape of the model; attention is left out where part of its shape is not known."""
    known = layers is not None and width is not None and length is not None
    return TokenFlops(parameters, 12 * layers * width * length if known else None, recomputation)  # type: ignore[operator]


def megatron_flops(
    sequences: int, length: int, layers: int, hidden: int, vocabulary: int, recomputation: Recomputation = Recomputation.NONE
) -> float:
    """FLOPs of one step of a GPT by the formula of the Megatron papers, which counts the matrix products alone.

    The model's are 72·B·L·s·h²·(1 + s/6h + V/12hL); selective recomputation has s/3h in place of s/6h; full recomputation repeats
    the layers, not the logits: 96·B·L·s·h²·(1 + s/6h + V/16hL).
    """
    rows = sequences * length * layers * hidden**2
    logits = vocabulary / (hidden * layers)
    if recomputation is Recomputation.FULL:
        return 96 * rows * (1 + length / (6 * hidden) + logits / 16)
    return 72 * rows * (1 + length / ((3 if recomputation is Recomputation.SELECTIVE else 6) * hidden) + logits / 12)


def utilisation(flops_per_s: float, gpus: int, peak_flops: float) -> float:
    """The share of the peak of all GPUs that is used."""
    return flops_per_s / (gpus * peak_flops)
