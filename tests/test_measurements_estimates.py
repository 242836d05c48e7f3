import pytest

from traceread.measurements.classes import StepClass
from traceread.measurements.estimates import Resource, estimate
from traceread.measurements.traffic import OperationTraffic, Traffic
from traceread.measurements.utilisation import measure_utilisation
from traceread.model import Device, Operation
from traceread.run import run_of

MS = 10**6
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
    "link_bytes_per_s": 50e9,
}
SENT = 3 * 13_480_000_000 * 31 // 32
TRAFFIC = Traffic((OperationTraffic(Operation.ALL_GATHER, 32, 72, 1_527 * MS, SENT, 72, 1_527 * MS),), 1)


def estimated(change=(), traffic=TRAFFIC, hidden=1127, copied=2_097_152, **ms):
    times = {"compute": 2900, "exposed_communication": 400, "data_wait": 180, "host_sync": 120} | ms
    class_ns = {c: times.get(c.key, 0) * MS for c in StepClass}
    described = run_of(LLAMA | dict(change), "run.json")
    utilisation = measure_utilisation(described, sum(class_ns.values()), [H100], None, None)
    return estimate(utilisation, described.run, class_ns, hidden * MS, traffic, copied)


def test_llama_7b():
    found = estimated()
    assert [row.resource for row in found.rows] == [Resource.COMPUTE, Resource.COMMUNICATION, Resource.INPUT, Resource.HOST]
    compute, communication, data, host = found.rows
    assert round(compute.least_ns / 1e9, 2) == 2.07
    assert round(100 * compute.reached) == 71
    assert round(compute.gap_ns / 1e9, 2) == 0.83
    assert round(compute.ceiling_ns / 1e9, 2) == 2.58
    assert round(communication.least_ns / 1e9, 2) == 0.78
    assert (communication.measured_ns, communication.exposed_ns, communication.gap_ns) == (1527 * MS, 400 * MS, 400 * MS)
    assert (data.measured_ns, data.least_ns, data.gap_ns) == (180 * MS, None, 180 * MS)
    assert (host.measured_ns, host.least_ns, host.gap_ns) == (120 * MS, 0, 120 * MS)
    assert not found.done
    assert found.least_step_ns == compute.least_ns


def test_gaps_are_in_order_of_size():
    found = estimated(compute=2100, host_sync=500)
    assert [row.resource for row in found.rows] == [Resource.HOST, Resource.COMMUNICATION, Resource.INPUT, Resource.COMPUTE]


def test_when_to_stop():
    near = {"exposed_communication": 20, "data_wait": 20, "host_sync": 20}
    assert estimated(compute=2600, **near).done  # within a twentieth of what large products reach
    assert not estimated(compute=2720, **near).of(Resource.COMPUTE).done
    assert estimated({"matmul_flops": 760e12}, compute=2720, **near).done
    assert not estimated(compute=2600, **{**near, "data_wait": 60}).of(Resource.INPUT).done


def test_without_a_model_there_is_no_least_time_of_compute():
    found = estimated({"model": {}})
    compute = found.of(Resource.COMPUTE)
    assert (compute.least_ns, compute.gap_ns, compute.reached) == (None, None, None)
    assert "--parameters" in compute.reason
    assert found.rows[-1] is compute
    assert found.least_step_ns is None
    assert not found.done


def test_without_recomputation_the_model_alone_counts():
    model = {name: value for name, value in LLAMA["model"].items() if name != "recomputation"}
    compute = estimated({"model": model}).of(Resource.COMPUTE)
    assert round(compute.least_ns / 1e9, 2) == 1.55
    assert compute.reason == "FLOPs of model at the dense peak"


def test_communication_without_sizes_or_link():
    without = {name: value for name, value in LLAMA.items() if name != "link_bytes_per_s"}
    described = run_of(without, "run.json")
    class_ns = {c: {"compute": 2900, "exposed_communication": 400}.get(c.key, 0) * MS for c in StepClass}
    utilisation = measure_utilisation(described, 3_300 * MS, [H100], None, None)
    row = estimate(utilisation, described.run, class_ns, 0, TRAFFIC, 0).of(Resource.COMMUNICATION)
    assert (row.least_ns, row.gap_ns) == (None, 400 * MS)
    assert "--link" in row.reason
    silent = Traffic((OperationTraffic(Operation.ALL_GATHER, 32, 72, 1_527 * MS, 0, 0, 0),), 1)
    assert "not recorded" in estimated(traffic=silent).of(Resource.COMMUNICATION).reason


def test_sizes_recorded_in_part_give_a_lower_bound():
    part = Traffic((*TRAFFIC.operations, OperationTraffic(Operation.UNKNOWN, -1, 3, 300 * MS, 0, 0, 0)), 1)
    assert "83 % of the time" in estimated(traffic=part).of(Resource.COMMUNICATION).reason


def test_communication_longer_than_computing_cannot_be_hidden():
    row = estimated({"link_bytes_per_s": 10e9}, exposed_communication=1500, hidden=2900).of(Resource.COMMUNICATION)
    assert round(row.least_ns / 1e9, 2) == 3.92
    assert round(row.gap_ns / 1e9, 2) == 0.48  # 1.5 s stick out, of which 1.02 s must
    assert estimated({"link_bytes_per_s": 10e9}).least_step_ns == row.least_ns


def test_a_latency_for_each_round():
    row = estimated({"link_latency_ns": 10_000}).of(Resource.COMMUNICATION)
    assert row.least_ns == estimated().of(Resource.COMMUNICATION).least_ns + 72 * 5 * 10_000


def test_no_communication_has_no_row():
    found = estimated(traffic=Traffic(), exposed_communication=0, hidden=0)
    assert Resource.COMMUNICATION not in [row.resource for row in found.rows]


@pytest.mark.parametrize(
    ("given", "least", "gap"),
    [
        ({"input_bytes_per_step": 10**9, "input_bytes_per_s": 1e10}, 100, 180),
        ({"input_bytes_per_step": 10**9, "input_bytes_per_s": 2.8e8}, 3571, 29),  # the pipeline alone takes nearly the step
        ({"input_bytes_per_step": 10**9, "input_bytes_per_s": 2e8}, 5000, 0),
    ],
)
def test_the_input_pipeline(given, least, gap):
    row = estimated(given).of(Resource.INPUT)
    assert (round(row.least_ns / MS), round(row.gap_ns / MS)) == (least, gap)


def test_bytes_of_a_batch_are_those_copied_where_none_are_given():
    row = estimated({"input_bytes_per_s": 1e9}).of(Resource.INPUT)
    assert row.least_ns == 2_097_152
    assert row.reason.startswith("bytes copied")
