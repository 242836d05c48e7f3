"""The table of known problems: every one is there once, and the tests that it names exist."""

import ast
from functools import cache
from pathlib import Path

import pytest
from test_docs import generator

ROOT = Path(__file__).parents[1]
IDS = {"P": 57, "K": 40, "N": 28}

PROBLEMS = [problem for problems in generator().known_problems().values() for problem in problems]


@cache
def functions_in(file):
    """The names of the tests in a file, those in classes as Class::name."""
    found = set()
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + n.name for n in inner if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}
    return found


def test_every_problem_stands_there_once_and_in_order():
    assert [problem.id for problem in PROBLEMS] == [f"{letter}{n}" for letter, count in IDS.items() for n in range(1, count + 1)]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_every_problem_is_told_and_shown(problem):
    assert all(text.strip().endswith((".", "?", "!", ")")) for text in (problem.report, problem.shape, problem.answer))
    assert problem.tests
    missing = [test for test in problem.tests if test.partition("::")[2] not in functions_in(test.partition("::")[0])]
    assert missing == []


def test_a_test_that_is_not_there_is_noticed():
    assert "test_a_test_that_is_not_there_is_noticed" in functions_in("tests/test_known_problems.py")
    assert "test_that_never_was" not in functions_in("tests/test_known_problems.py")


def test_page_is_up_to_date():
    assert (ROOT / "docs" / "known-problems.md").read_text("utf-8") == generator().problems_page(), "python docs/generate.py"
