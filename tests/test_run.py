import json

import pytest

from traceread.errors import ConfigError
from traceread.measurements.flops import Recomputation
from traceread.run import PRECISIONS, RECOMPUTATIONS, Described, ModelShape, Run, Tokens, find_run, read_run, run_of, run_of_config

EVERYTHING = {
    "format": 1,
    "job": "llama7b",
    "world_size": 32,
    "parallel": {"dp": 8, "tp": 4},
    "model": {
        "parameters": 6.74e9,
        "active_parameters": 6_740_000_000,
        "layers": 32,
        "attention_width": 4096,
        "sequence_length": 4096,
        "precision": "bf16",
        "recomputation": "full",
    },
    "global_batch_sequences": 256,
    "tokens_per_step": {"valid": 1_000_000, "padded": 48_000, "dropped": 576},
    "untraced_step_ns": 3_500_000_000,
    "stack": {"torch": "2.7.1", "cuda": {"driver": "570"}},
    "profiler": {"with_stack": False},
    "peak_flops": 989e12,
    "matmul_flops": 7.9e14,
    "link_bytes_per_s": 50e9,
    "link_latency_ns": 5_000,
    "input_bytes_per_step": 134_217_728,
    "input_bytes_per_s": 2e9,
    "price_per_gpu_hour": 2.5,
}


def written(tmp_path, values, name="run.json"):
    path = tmp_path / name
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def test_everything_it_can_say(tmp_path):
    described = read_run(written(tmp_path, EVERYTHING))
    run = described.run
    assert described.notices == ()
    assert (run.job, run.world_size, run.parallel) == ("llama7b", 32, {"dp": 8, "tp": 4})
    assert run.model == ModelShape(
        parameters=6_740_000_000,
        active_parameters=6_740_000_000,
        layers=32,
        attention_width=4096,
        sequence_length=4096,
        precision="bf16",
        recomputation="full",
    )
    assert run.tokens_per_step == Tokens(valid=1_000_000, padded=48_000, dropped=576)
    assert (run.global_batch_sequences, run.untraced_step_ns) == (256, 3_500_000_000)
    assert (run.peak_flops, run.matmul_flops, run.link_bytes_per_s, run.link_latency_ns) == (989e12, 7.9e14, 50e9, 5_000)
    assert (run.input_bytes_per_step, run.input_bytes_per_s, run.price_per_gpu_hour) == (134_217_728, 2e9, 2.5)
    assert run.stack["cuda"] == {"driver": "570"}
    assert set(run.to_dict()) == set(EVERYTHING) - {"format"}
    assert set(described.sources.values()) == {"run.json"}


def test_every_field_is_optional(tmp_path):
    assert read_run(written(tmp_path, {})).run == Run()
    assert read_run(written(tmp_path, {"model": {}})).run == Run()
    assert Run().to_dict() == {}


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"world_size": "32"}, "world_size", "expected a whole number, got text"),
        ({"world_size": 0}, "world_size", "expected a whole number >= 1"),
        ({"world_size": 2.5}, "world_size", "expected a whole number, got a number"),
        ({"world_size": True}, "world_size", "got true or false"),
        ({"model": 3}, "model", "expected an object"),
        ({"model": {"parameters": "7B"}}, "model.parameters", "got text"),
        ({"model": {"layers": -1}}, "model.layers", ">= 1"),
        ({"model": {"precision": "bfloat16"}}, "model.precision", "'bfloat16'; it is one of bf16, fp16"),
        ({"model": {"recomputation": True}}, "model.recomputation", "none, selective, full"),
        ({"tokens_per_step": {"valid": -5}}, "tokens_per_step.valid", ">= 0"),
        ({"peak_flops": 0}, "peak_flops", "a number > 0"),
        ({"parallel": {"dp": "all"}}, "parallel", "got text"),
        ({"stack": []}, "stack", "expected an object, got a list"),
        ({"untraced_step_ns": 10**19}, "untraced_step_ns", "<= 10000"),
    ],
)
def test_a_wrong_value_is_refused_with_file_and_field(tmp_path, change, field, expected):
    path = written(tmp_path, EVERYTHING | change)
    with pytest.raises(ConfigError) as error:
        read_run(path)
    assert error.value.message.startswith(f"{path}: {field}")
    assert expected in error.value.message
    assert error.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"world_size": NaN}', "\udcff", "[" * 100_000, '{"peak_flops": 1e999}'])
def test_what_is_no_description_is_refused(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"run\.json"):
        read_run(path)


def test_a_missing_or_huge_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_run(tmp_path / "run.json")
    with pytest.raises(ConfigError, match="larger"):
        read_run(written(tmp_path, " " * ((1 << 20) + 1)))


def test_another_format(tmp_path):
    with pytest.raises(ConfigError, match="format is 2"):
        read_run(written(tmp_path, {"format": 2}))


def test_what_means_nothing_is_named_and_ignored(tmp_path):
    described = read_run(written(tmp_path, {"wolrd_size": 8, "model": {"paramters": 7, "colour": 1}, "tokens_per_step": {"vaild": 1}}))
    assert described.run == Run()
    assert {n.slug for n in described.notices} == {"unknown-field"}
    assert [n.message for n in described.notices] == [
        "run.json: wolrd_size means nothing; did you mean world_size?",
        "run.json: model.paramters means nothing; did you mean parameters?",
        "run.json: model.colour means nothing",
        "run.json: tokens_per_step.vaild means nothing; did you mean valid?",
    ]


def test_it_is_found_beside_the_traces(tmp_path):
    assert find_run([tmp_path / "rank0.json"]) == Described()
    written(tmp_path, {"world_size": 4})
    assert find_run([tmp_path / "rank0.json", tmp_path / "rank1.json"]).run.world_size == 4
    assert find_run([tmp_path]).run.world_size == 4


def test_ranks_may_describe_the_job(tmp_path):
    written(tmp_path, {"world_size": 4, "model": {"layers": 3}}, "run.rank10.json")
    written(tmp_path, {"world_size": 4, "job": "a"}, "run.rank2.json")
    written(tmp_path, "no json", "run.rankx.json")
    described = find_run([tmp_path])
    assert (described.run.world_size, described.run.job, described.run.model.layers) == (4, "a", 3)
    assert described.notices == ()
    assert described.sources == {"world_size": "run.rank2.json", "job": "run.rank2.json", "model.layers": "run.rank10.json"}


def test_ranks_that_differ(tmp_path):
    written(tmp_path, {"world_size": 4}, "run.rank0.json")
    written(tmp_path, {"world_size": 8}, "run.rank1.json")
    described = find_run([tmp_path])
    assert described.run.world_size == 4
    [notice] = described.notices
    assert notice.slug == "different-runs"
    assert "world_size" in notice.message


def test_the_job_goes_before_its_ranks(tmp_path):
    written(tmp_path, {"world_size": 16})
    written(tmp_path, {"world_size": 8}, "run.rank1.json")
    assert find_run([tmp_path]).run.world_size == 16


def test_fields_complete_each_other():
    flags = run_of({"model": {"layers": 40}}, "command line")
    file = run_of({"model": {"layers": 32, "parameters": 7e9}, "parallel": {"dp": 2}}, "run.json")
    both = flags.over(file)
    assert both.run == Run(model=ModelShape(layers=40, parameters=7_000_000_000), parallel={"dp": 2})
    assert both.sources == {"model.layers": "command line", "model.parameters": "run.json", "parallel.dp": "run.json"}


def test_a_batch_in_sequences_replaces_the_tokens_of_others():
    file = run_of({"tokens_per_step": {"valid": 10, "padded": 2}, "world_size": 8}, "run.json")
    both = run_of({"global_batch_sequences": 4}, "command line").over(file)
    assert both.run == Run(global_batch_sequences=4, world_size=8)
    both = run_of({"global_batch_sequences": 4, "tokens_per_step": {"valid": 5}}, "command line").over(file)
    assert both.run.tokens_per_step == Tokens(valid=5, padded=2)


def test_the_model_in_traceread_toml(tmp_path):
    path = tmp_path / "traceread.toml"
    described = run_of_config({"parameters": 6.74e9, "precision": "bf16", "world_size": 8, "peak_flops": 1e15}, path)
    assert described.run == Run(model=ModelShape(parameters=6_740_000_000, precision="bf16"), world_size=8, peak_flops=1e15)
    assert set(described.sources.values()) == {"traceread.toml"}
    assert run_of_config({}, None) == Described()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"paramters": 7}, "paramters means nothing; did you mean parameters?"),
        ({"model": {}}, "model means nothing"),
        ({"layers": "many"}, "model.layers: expected a whole number"),
        ({"peak_flops": float("inf")}, "peak_flops"),
    ],
)
def test_a_wrong_model_in_traceread_toml(tmp_path, values, says):
    with pytest.raises(ConfigError) as error:
        run_of_config(values, tmp_path / "traceread.toml")
    assert "traceread.toml" in error.value.message
    assert says in error.value.message


def test_one_list_of_names():
    assert tuple(Recomputation) == RECOMPUTATIONS
    assert len(set(PRECISIONS)) == 7
