"""Whole reports of real captures, each with a note on why it is right.

The captures are not part of the repository; without them these tests are skipped. A note stands above each report in
tests/gold/real-*.txt; what the fix list holds is checked number by number in test_rules_scenarios.py.
"""

import json
from pathlib import Path

import pytest

import traceread
from traceread.reporters import render

TRACES = Path(__file__).parents[2] / "shared" / "traces"
NOTES = json.loads(Path(__file__).with_name("gold").joinpath("real_fix_lists.json").read_text("utf-8"))
REPORTS = [
    "kineto/torch19_workers0.json.gz",
    "kineto/dlrm_graph_pair/ungraphed_rank3of8.json.gz",
    "kineto/dlrm_graph_pair/graphed_rank1of2.json.gz",
    "kineto/h100_qwen.json.gz",
    "kineto/b200_eager_8rank_job.json.gz",
    "kineto/ddp_nccl_metadata.json.gz",
]


@pytest.mark.parametrize("name", REPORTS)
def test_report_of_a_real_capture_is_the_golden_one(name, gold, monkeypatch):
    if not (TRACES / name).exists():
        pytest.skip(f"the real trace {name} is not beside this repository")
    monkeypatch.chdir(TRACES)
    text = render(traceread.analyze(Path(name)), "text")
    gold(f"real-{Path(name).name.removesuffix('.json.gz')}.txt", f"Why it is right: {NOTES[name]['note']}\n\n{text}")
