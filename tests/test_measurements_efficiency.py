"""The whole way from captures to efficiency figures."""

import json
import shutil
from pathlib import Path

import pytest

import traceread
from traceread.errors import ConfigError
from traceread.measurements.estimates import Resource
from traceread.measurements.reconciliation import Part
from traceread.reporters import render
from traceread.reporters.headline import headline
from traceread.simulate import Capture, scenarios, simulate, write_run

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_traces"
REAL = ROOT.parent / "shared" / "traces" / "kineto"


@pytest.fixture(scope="module")
def llama():
    return traceread.analyze(SAMPLES / "llama7b" / "before-kineto")


def percent(value):
    return round(100 * value, 1)


def seconds(ns):
    return round(ns / 1e9, 2)


def test_llama_7b(llama):
    e = llama.efficiency
    u = e.utilisation
    assert (u.gpus, u.peak.flops, u.tokens.valid) == (32, 989e12, 1_048_576)
    assert percent(u.mfu) == pytest.approx(43.1, abs=0.3)
    assert percent(u.hfu) == pytest.approx(57.5, abs=0.3)
    assert e.notices == ()
    compute, communication = e.estimates.of(Resource.COMPUTE), e.estimates.of(Resource.COMMUNICATION)
    assert seconds(compute.least_ns) == 2.07
    assert round(100 * compute.reached) == 71
    assert seconds(u.time_of(u.model_flops)) == 1.55
    assert round(e.sent / 1e9, 1) == 39.2
    assert seconds(communication.least_ns) == 0.78
    assert [row.resource for row in e.estimates.rows] == [Resource.COMPUTE, Resource.COMMUNICATION, Resource.INPUT, Resource.HOST]


def test_findings_know_the_mfu_after_them(llama):
    steps = [seconds(f.step_ns_after) for f in llama.findings]
    assert steps == pytest.approx([3.20, 3.02, 2.90], abs=0.02)
    assert [percent(f.mfu_after) for f in llama.findings] == pytest.approx([48.5, 51.4, 53.6], abs=0.3)
    assert [f["mfu_after"] for f in llama.to_dict()["findings"]] == [f.mfu_after for f in llama.findings]
    assert "MFU is 43.1 %, and 53.6 % with everything in the fix list." in headline(llama)[0]


def test_the_wall_time_adds_up(llama):
    parts = llama.efficiency.reconciliation
    assert sum(parts.ns.values()) == parts.whole_ns == llama.summary.mean_ns
    assert percent(parts.share(Part.MODEL)) == pytest.approx(60.4, abs=0.1)
    assert percent(parts.share(Part.AGAIN)) == pytest.approx(20.1, abs=0.1)
    assert parts.transfer_ns + parts.wait_ns == parts.ns[Part.COMMUNICATION]
    assert parts.rate_while_computing(llama.efficiency.utilisation.mfu) == pytest.approx(0.714, abs=0.001)


@pytest.mark.parametrize("name", ["before-nsys", "after-nsys", "after-kineto"])
def test_the_other_captures_of_the_job(name):
    e = traceread.analyze(SAMPLES / "llama7b" / name).efficiency
    assert percent(e.utilisation.mfu) == pytest.approx(43.1 if "before" in name else 53.6, abs=0.3)


def test_sizes_that_are_not_recorded_make_no_estimate():
    """The simulated export has no payloads of NCCL."""
    row = traceread.analyze(SAMPLES / "llama7b" / "before-nsys").efficiency.estimates.of(Resource.COMMUNICATION)
    assert (row.least_ns, row.reason) == (None, "the sizes of the collectives are not recorded")
    assert seconds(row.exposed_ns) == seconds(row.gap_ns) == 0.40


def test_without_a_description_there_is_no_mfu_and_the_report_says_what_is_missing():
    report = traceread.analyze(SAMPLES / "item-sync")
    assert report.efficiency.utilisation.mfu is None
    assert [f.mfu_after for f in report.findings] == [None] * len(report.findings)
    text = render(report, "text")
    assert "MFU is not computed" in text
    assert "--parameters" in text
    assert "wall time" not in text


def test_a_description_from_the_caller():
    run = {"model": {"parameters": 1.2e9, "precision": "bf16"}, "tokens_per_step": {"valid": 65_536}, "world_size": 2}
    report = traceread.analyze(SAMPLES / "item-sync", run=run)
    u = report.efficiency.utilisation
    assert u.mfu == pytest.approx(7.2e9 * 65_536 / (report.summary.mean_ns / 1e9) / (2 * 989.4e12))
    assert u.flops.convention == "6N"
    assert report.described.sources["model.parameters"] == "the caller"


def test_a_description_in_traceread_toml_and_one_beside_it(tmp_path):
    shutil.copytree(SAMPLES / "item-sync", tmp_path / "run")
    (tmp_path / "run" / "traceread.toml").write_text("[model]\nparameters = 1.2e9\nlayers = 3\nglobal_batch_sequences = 8\n")
    (tmp_path / "run" / "run.json").write_text('{"model": {"layers": 4, "sequence_length": 2048}}')
    described = traceread.analyze(tmp_path / "run").described
    assert (described.run.model.parameters, described.run.model.layers) == (1_200_000_000, 4)
    assert described.sources == {
        "model.parameters": "traceread.toml",
        "global_batch_sequences": "traceread.toml",
        "model.layers": "run.json",
        "model.sequence_length": "run.json",
    }


def test_a_broken_description_is_an_error_with_its_file(tmp_path):
    shutil.copytree(SAMPLES / "item-sync", tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"world_size": "many"}')
    with pytest.raises(ConfigError, match=r"run\.json: world_size"):
        traceread.analyze(tmp_path / "run")


def test_more_than_the_peak_is_doubted():
    run = {"model": {"parameters": 1e15, "precision": "bf16"}, "tokens_per_step": {"valid": 10**9}, "world_size": 1}
    report = traceread.analyze(SAMPLES / "item-sync", run=run)
    assert "mfu-above-peak" in [n.slug for n in report.all_notices]


@pytest.mark.parametrize("format", ["text", "markdown", "html", "json"])
def test_every_format_has_the_figures(llama, format):
    text = render(llama, format)
    if format == "json":
        value = json.loads(text)["efficiency"]
        assert percent(value["mfu"]) == 43.1
        assert value["run"]["world_size"] == 32
        return
    for said in ("43.1", "57.5", "39.2 GB", "2.07", "model compute", "recomputation and padding"):
        assert said in text


def test_shapes_give_executed_flops(tmp_path):
    job = scenarios()["healthy"]
    write_run(simulate(job, ranks=1, steps=3), tmp_path, Capture(shapes=True, compress=False), truth=False)
    report = traceread.analyze(tmp_path)
    work = report.efficiency.matrices
    assert work.flops > 0
    assert 0 < work.coverage <= 1
    assert report.to_dict()["efficiency"]["matrix_work"]["flops"] == work.flops
    without = tmp_path / "without"
    write_run(simulate(job, ranks=1, steps=3), without, Capture(compress=False), truth=False)
    assert traceread.analyze(without).to_dict()["efficiency"]["matrix_work"] is None


@pytest.mark.skipif(not REAL.exists(), reason="the real traces are not here")
def test_a_real_forward_pass_by_its_shapes():
    """Qwen1.5-0.5B, 16 sequences of 559 tokens: 308 million parameters outside the embedding, 2 FLOPs each, and the square of attention."""
    report = traceread.analyze(REAL / "h100_qwen.json.gz")
    e = report.efficiency
    tokens = 16 * 559
    gemm, attention = e.matrices.kinds
    assert gemm.total_flops == pytest.approx(2 * 308e6 * tokens, rel=0.01)
    assert attention.total_flops == 24 * 4 * 16 * 559 * 559 * 1024
    assert e.matrices.coverage == 1.0
    assert gemm.peak_share(e.utilisation.gpu.flops) == pytest.approx(0.629, abs=0.001)
    model = {"parameters": 464e6, "layers": 24, "attention_width": 1024, "sequence_length": 559}
    training = traceread.analyze(REAL / "h100_qwen.json.gz", run={"model": model, "global_batch_sequences": 16})
    assert "flops-not-executed" in [n.slug for n in training.all_notices]
