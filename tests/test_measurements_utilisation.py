import pytest

from traceread.measurements.flops import flops_of_token
from traceread.measurements.utilisation import measure_utilisation
from traceread.model import Device
from traceread.run import Tokens, run_of

H100 = Device(0, "NVIDIA H100 80GB HBM3", 85_024_112_640, 132)
LLAMA = {
    "world_size": 32,
    "model": {
        "parameters": 6.74e9,
        "layers": 32,
        "attention_width": 4096,
        "sequence_length": 4096,
        "precision": "bf16",
        "recomputation": "full",
    },
    "global_batch_sequences": 256,
    "peak_flops": 989e12,
}
S = 10**9


def measured(values=None, step_ns=3_600_000_000, devices=(H100,), world_size=None, seen=None, **change):
    return measure_utilisation(run_of({**(LLAMA if values is None else values), **change}, "run.json"), step_ns, devices, world_size, seen)


def percent(value):
    return round(100 * value, 1)


def test_llama_7b_on_32_gpus():
    u = measured()
    assert u.missing == ()
    assert u.tokens == Tokens(valid=256 * 4096)
    assert (percent(u.mfu), percent(u.hfu)) == (43.1, 57.5)
    assert [percent(u.mfu_at(ns)) for ns in (3_200_000_000, 3_020_000_000, 2_900_000_000)] == [48.5, 51.4, 53.6]
    assert percent(u.mfu_causal) == 40.2
    assert percent(u.mfu_without_attention) == 37.2
    assert round(u.time_of(u.hardware_flops) / S, 2) == 2.07
    assert round(u.time_of(u.model_flops) / S, 2) == 1.55
    assert round(u.tokens_per_s()) == 291271


def test_7b_on_512_gpus_by_6n():
    u = measured(
        {"model": {"parameters": 7e9}, "tokens_per_step": {"valid": 8_390_000}, "world_size": 512, "peak_flops": 1e15}, 1_800_000_000
    )
    assert round(100 * u.mfu) == 38
    assert (u.mfu_causal, u.hfu) == (None, None)
    assert u.flops == flops_of_token(7_000_000_000)


def test_1_2b_on_eight_h100():
    model = {"parameters": 1.2e9, "layers": 24, "attention_width": 2048, "sequence_length": 2048, "recomputation": "full"}
    u = measured({"model": model, "tokens_per_step": {"valid": 400_000}, "world_size": 8, "peak_flops": 989e12}, S)
    assert (percent(u.mfu), percent(u.mfu_without_attention), percent(u.hfu)) == (42.5, 36.4, 56.7)


def test_padding_earns_no_mfu_and_counts_as_hardware_work():
    u = measured(tokens_per_step={"valid": 786_432, "padded": 262_144, "dropped": 1000})
    assert u.mfu == pytest.approx(0.75 * measured().mfu)
    assert u.hfu == pytest.approx(measured().hfu)
    assert [round(u.tokens_per_s(kind)) for kind in ("valid", "padded", "dropped")] == [218453, 72818, 278]


def test_what_is_padded_and_dropped_is_taken_off_the_batch():
    u = measured(tokens_per_step={"padded": 262_144})
    assert u.tokens == Tokens(valid=786_432, padded=262_144)
    assert u.tokens_per_s("dropped") is None


def test_the_peak_of_a_known_device():
    values = {name: value for name, value in LLAMA.items() if name != "peak_flops"}
    u = measured(values)
    assert (u.peak.flops, u.peak.source) == (989.4e12, "bf16 peak of the H100 SXM")
    assert u.gpu.key == "H100 SXM"


def test_the_format_that_kernel_names_show():
    values = {"model": {"parameters": 7e9}, "tokens_per_step": {"valid": 10**6}, "world_size": 8}
    assert measured(values, seen=("fp8", "kernel names")).peak.flops == 1979e12
    assert measured(values, seen=("fp8", "kernel names")).precision_source == "kernel names"
    assert measured({**values, "model": {"parameters": 7e9, "precision": "bf16"}}, seen=("fp8", "kernel names")).peak.flops == 989.4e12
    without = measured(values)
    assert without.mfu is None
    assert "--precision" in without.missing[0]


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ((Device(0, "NVIDIA A10G", None, None),), "A10G"),
        ((Device(0, None),), "not named"),
        ((H100, Device(0, "NVIDIA H200")), "different GPUs: NVIDIA H100 80GB HBM3, NVIDIA H200"),
        ((), "no device"),
    ],
)
def test_no_mfu_without_a_peak_and_why(devices, why):
    values = {name: value for name, value in LLAMA.items() if name != "peak_flops"}
    u = measured(values, devices=devices)
    assert (u.mfu, u.hfu, u.mfu_causal) == (None, None, None)
    assert len(u.missing) == 1
    assert why in u.missing[0]
    assert u.tokens_per_s() is not None


@pytest.mark.parametrize(
    ("values", "lacks"),
    [
        ({"world_size": 8, "peak_flops": 1e15}, ["parameters", "tokens"]),
        ({"model": {"parameters": 7e9}, "global_batch_sequences": 8, "peak_flops": 1e15}, ["tokens"]),
        ({"tokens_per_step": {"valid": 8}, "peak_flops": 1e15}, ["parameters"]),
    ],
)
def test_what_is_missing_is_named(values, lacks):
    u = measured(values)
    assert u.mfu is None
    assert len(u.missing) == len(lacks)
    for missing, word in zip(u.missing, lacks, strict=True):
        assert word in missing
        assert "--" in missing


def test_the_number_of_gpus():
    without = {name: value for name, value in LLAMA.items() if name != "world_size"}
    assert (measured(world_size=16).gpus, measured(world_size=16).gpus_source) == (32, "run.json")
    assert (measured(without, world_size=16).gpus, measured(without, world_size=16).notices) == (16, ())
    assumed = measured(without, devices=(H100, H100))
    assert (assumed.gpus, assumed.gpus_source) == (2, "ranks loaded")
    [notice] = assumed.notices
    assert notice.slug == "world-size-assumed"
    assert measured({}, devices=(H100, H100)).notices == ()  # no MFU, nothing to warn of


def test_a_mixture_of_experts_counts_the_active_parameters():
    model = {**LLAMA["model"], "active_parameters": 3.37e9}
    assert measured(model=model).flops.parameters == 3_370_000_000


def test_the_step_without_the_profiler():
    assert percent(measured(untraced_step_ns=3_200_000_000).mfu_untraced) == 48.5
    assert measured().mfu_untraced is None


def test_an_empty_step():
    u = measured(step_ns=0)
    assert (u.mfu, u.tokens_per_s()) == (None, None)
