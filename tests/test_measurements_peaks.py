import pytest

from traceread.measurements.peaks import find_gpu, find_peak, load_gpus
from traceread.model import Device
from traceread.run import PRECISIONS

GIB = 1 << 30


def device(name, gib=None, multiprocessors=None):
    return Device(0, name, None if gib is None else int(gib * GIB), multiprocessors)


@pytest.mark.parametrize(
    ("name", "gib", "multiprocessors", "key"),
    [
        ("NVIDIA H100 80GB HBM3", 79.2, 132, "H100 SXM"),
        ("H100 80GB HBM3", 79.2, 132, "H100 SXM"),  # without the maker, as of old drivers
        ("NVIDIA H100 80GB HBM3", None, None, "H100 SXM"),
        ("NVIDIA H100 PCIe", 79.2, 114, "H100 PCIe"),
        ("NVIDIA H100 NVL", 93.6, 132, "H100 NVL"),
        ("NVIDIA H100", 79.2, 132, "H100 SXM"),
        ("NVIDIA H100", 79.2, 114, "H100 PCIe"),
        ("NVIDIA H200", 139.8, 132, "H200 SXM"),
        ("NVIDIA H200 NVL", 139.8, 132, "H200 NVL"),
        ("NVIDIA H20", 95.1, 78, "H20"),
        ("NVIDIA H800", 79.2, 132, "H800 SXM"),
        ("NVIDIA GH200 120GB", 94.5, 132, "GH200"),
        ("NVIDIA GH200 480GB", 94.5, 132, "GH200"),
        ("NVIDIA GB200", 184.0, 152, "GB200"),
        ("NVIDIA B200", 178.35, 148, "B200"),
        ("NVIDIA B300 SXM6 AC", 268, 148, "B300"),
        ("NVIDIA A100-SXM4-40GB", 39.4, 108, "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", 79.25, 108, "A100 80 GB SXM"),
        ("NVIDIA A100 80GB PCIe", 79.2, 108, "A100 80 GB PCIe"),
        ("NVIDIA A100-PCIE-40GB", 39.4, 108, "A100 40 GB"),
        ("NVIDIA A100-PG509-200", 39.6, 108, "A100 40 GB"),
        ("NVIDIA A800-SXM4-80GB", 79.2, 108, "A800 80 GB"),
        ("NVIDIA A10", 22.5, 72, "A10"),
        ("NVIDIA L40S", 44.4, 142, "L40S"),
        ("NVIDIA L40", 44.4, 142, "L40"),
        ("NVIDIA L4", 22.0, 58, "L4"),
        ("Tesla T4", 14.6, 40, "T4"),
        ("Tesla V100-SXM2-32GB", 31.7, 80, "V100 SXM"),
        ("Tesla V100-PCIE-16GB", 15.8, 80, "V100 PCIe"),
        ("Tesla V100S-PCIE-32GB", 31.7, 80, "V100S PCIe"),
        ("NVIDIA RTX A6000", 47.5, 84, "RTX A6000"),
        ("NVIDIA GeForce RTX 4090", 23.6, 128, "RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", 47.4, 142, "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell W", 95.6, 188, "RTX PRO 6000 Blackwell Workstation"),  # cut by nsys
        ("AMD Instinct MI300X", 191.98, 304, "MI300X"),
        ("AMD Instinct MI300X VF", 191.98, 304, "MI300X"),
        ("AMD Instinct MI355X", 287.98, 256, "MI355X"),
        ("AMD Instinct MI250X/MI250", 63.98, 110, "MI250X, one die"),
    ],
)
def test_names_as_drivers_write_them(name, gib, multiprocessors, key):
    found = find_gpu(device(name, gib, multiprocessors))
    assert found.gpu is not None, found.reason
    assert found.gpu.key == key
    assert found.confirmed is (gib is not None)


@pytest.mark.parametrize(
    ("name", "gib", "multiprocessors", "why"),
    [
        (None, None, None, "not named"),
        ("", 191.98, 304, "not named"),
        ("NVIDIA H100", 94.99, 132, "96 GB"),
        ("NVIDIA H100", None, None, "the name alone does not tell"),
        ("NVIDIA H100 80GB HBM3", 79.2, 114, "114 multiprocessors are recorded, and it has 132"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.8, 16, "slice"),
        ("NVIDIA A100-SXM4-80GB", 39.4, 108, "39 GiB are recorded, and it has 80"),
        ("NVIDIA A100-SXM-64GB", 63.4, 124, "A100"),
        ("NVIDIA H20-3e", 139.8, 78, "no figures for this variant"),
        ("NVIDIA GeForce RTX 4090 D", 23.6, 114, "D model"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 15.6, 76, "laptop"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 95.6, 188, "Max-Q"),
        ("NVIDIA A10G", 22.5, 80, "disputed"),
        ("NVIDIA A1000", 7.9, 18, "not in the table"),
        ("NVIDIA T400", 3.8, 6, "not in the table"),
        ("NVIDIA GeForce RTX 3060 Laptop ", 5.8, 30, "laptop"),
        ("AMD Radeon Graphics", 63.98, 104, "not in the table"),
        ("Intel(R) Arc(TM) A770", None, None, "not in the table"),
    ],
)
def test_what_is_not_known_has_no_peak_and_says_why(name, gib, multiprocessors, why):
    found = find_gpu(device(name, gib, multiprocessors))
    assert found.gpu is None
    assert why in found.reason
    assert find_peak(device(name, gib, multiprocessors), "bf16").flops is None


def test_peaks_are_dense():
    h100 = device("NVIDIA H100 80GB HBM3", 79.2, 132)
    assert find_peak(h100, "bf16").flops == 989.4e12
    assert find_peak(h100, "fp8").flops == 1979e12
    for gpu in load_gpus():
        bf16, fp8 = gpu.flops.get("bf16"), gpu.flops.get("fp8")
        if bf16 and fp8:
            assert fp8 == pytest.approx(2 * bf16, rel=0.02), gpu.key
        assert gpu.flops.get("fp16", 0) <= 2517e12, gpu.key


def test_a_precision_without_units():
    assert find_peak(device("Tesla V100-SXM2-32GB", 31.7, 80), "bf16").source == "no bf16 peak is known for the V100 SXM"
    assert find_peak(device("NVIDIA A100-SXM4-80GB", 79.2, 108), "fp8").flops is None


def test_where_a_peak_comes_from():
    assert find_peak(device("NVIDIA H200", 139.8, 132), "bf16").source == "bf16 peak of the H200 SXM"
    assert find_peak(device("NVIDIA H200"), "bf16").source == "bf16 peak of the H200 SXM, by its name alone"


def test_every_entry_is_complete():
    for gpu in load_gpus():
        assert gpu.note, gpu.key
        assert gpu.names or gpu.loose, gpu.key
        assert set(gpu.flops) <= set(PRECISIONS), gpu.key
        assert bool(gpu.unknown) != bool(gpu.flops), gpu.key
        if gpu.flops:
            assert gpu.memory_gib, gpu.key
            assert gpu.multiprocessors, gpu.key
            assert gpu.bandwidth, gpu.key
        if gpu.matmul:
            assert 0.4 < gpu.matmul / gpu.flops["bf16"] < 0.9, gpu.key


@pytest.mark.parametrize(
    ("key", "units", "fma", "hz", "precision"),
    [
        ("H100 SXM", 132 * 4, 512, 1.83e9, "bf16"),
        ("A100 80 GB SXM", 108 * 4, 256, 1.41e9, "bf16"),
        ("MI300X", 1216, 256, 2.1e9, "bf16"),
        ("MI355X", 1024, 512, 2.4e9, "bf16"),
        ("MI250X, one die", 880 // 2, 128, 1.7e9, "bf16"),
    ],
)
def test_peaks_from_units_and_clock(key, units, fma, hz, precision):
    [gpu] = [gpu for gpu in load_gpus() if gpu.key == key]
    assert gpu.flops[precision] == pytest.approx(units * fma * 2 * hz, rel=0.003)
