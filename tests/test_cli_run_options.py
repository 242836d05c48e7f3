import argparse

import pytest

from traceread.cli import run_options
from traceread.run import PRECISIONS, RECOMPUTATIONS, Run, run_of

EVERYTHING = (
    "--parameters 6.74e9 --active-parameters 2B --layers 32 --attention-width 4096 --sequence-length 4096 "
    "--precision bf16 --recomputation full --peak-flops 989T --world-size 32 --sequences 256 "
    "--tokens-per-step 1M --untraced-step 3.45s --matmul-flops 794.5e12 --link 50"
)


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    run_options.add_model(parser)
    run_options.add_job(parser)
    return run_options.given(parser.parse_args(arguments))


def test_every_option_sets_its_field():
    described = parsed(*EVERYTHING.split())
    expected = {
        "world_size": 32,
        "model": {
            "parameters": 6_740_000_000,
            "active_parameters": 2_000_000_000,
            "layers": 32,
            "attention_width": 4096,
            "sequence_length": 4096,
            "precision": "bf16",
            "recomputation": "full",
        },
        "global_batch_sequences": 256,
        "tokens_per_step": {"valid": 1_000_000},
        "untraced_step_ns": 3_450_000_000,
        "peak_flops": 989e12,
        "matmul_flops": 794.5e12,
        "link_bytes_per_s": 50e9,
    }
    assert described.run == run_of(expected, "").run
    assert set(described.sources.values()) == {"command line"}


def test_nothing_given_says_nothing():
    assert parsed().run == Run()
    assert run_options.given(argparse.Namespace()).run == Run()


def test_the_choices_are_those_of_run_json():
    assert (run_options.PRECISIONS, run_options.RECOMPUTATIONS) == (PRECISIONS, RECOMPUTATIONS)


@pytest.mark.parametrize(
    ("text", "value"), [("7B", 7e9), ("400k", 4e5), ("989e12", 989e12), ("1_000_000", 1e6), ("8,390,000", 8.39e6), ("1.5 T", 1.5e12)]
)
def test_numbers(text, value):
    assert run_options.number(text) == value
    assert run_options.count(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1e99", "7BB", "1e500", "nan", "inf", "9" * 40])
def test_no_numbers(text):
    with pytest.raises(argparse.ArgumentTypeError):
        run_options.number(text)


def test_counts_are_whole():
    with pytest.raises(argparse.ArgumentTypeError, match="whole"):
        run_options.count("2.5")


@pytest.mark.parametrize(("text", "ns"), [("3.45s", 3_450_000_000), ("345 ms", 345_000_000), ("2h", 7_200 * 10**9), ("5 µs", 5_000)])
def test_times(text, ns):
    assert run_options.nanoseconds(text) == ns


@pytest.mark.parametrize("text", ["", "3", "0s", "s", "3 days"])
def test_no_times(text):
    with pytest.raises(argparse.ArgumentTypeError):
        run_options.nanoseconds(text)


@pytest.mark.parametrize(("text", "value"), [("40%", 0.4), ("0.4", 0.4), ("100 %", 1.0), ("1", 1.0)])
def test_shares(text, value):
    assert run_options.share(text) == value


@pytest.mark.parametrize("text", ["0", "0%", "40", "101%", "-1%", "x"])
def test_no_shares(text):
    with pytest.raises(argparse.ArgumentTypeError):
        run_options.share(text)
