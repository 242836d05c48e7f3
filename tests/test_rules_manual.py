import re
from pathlib import Path

import pytest

from traceread.cli import main
from traceread.errors import SelectionError
from traceread.rules import find_rule, load_rules
from traceread.rules.manual import SECTIONS, read_manual, rules_page

RULES = load_rules()[0]
PAGE = Path(__file__).parents[1] / "docs" / "rules.md"


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_every_manual_says_everything(rule):
    manual = read_manual(rule.manual)
    assert tuple(manual.sections) == SECTIONS
    assert all(manual.sections.values())
    assert manual.docs
    assert all(re.fullmatch(r"https://[\w./~#%-]+", link) for link in manual.docs)
    assert manual.title == rule.title
    assert len(manual.title) < 80


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_a_rule_stands_in_the_file_of_its_name(rule):
    assert rule.check.__module__ == f"traceread.rules.{rule.id.replace('-', '_')}"


def test_the_page_of_rules_is_current():
    assert PAGE.read_text("utf-8") == rules_page(RULES), "write it again: python -m traceread.rules.manual > docs/rules.md"


def test_explain_prints_the_manual(capsys):
    assert main(["explain", "data-loading"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    manual = read_manual(find_rule("data-loading").manual)
    assert all(" ".join(manual.sections[name].split()) in said for name in SECTIONS[:-1])


def test_explain_lists_the_rules(capsys):
    assert main(["explain"]) == 0
    said = capsys.readouterr().out
    assert all(rule.id in said for rule in RULES)


def test_explain_as_json(capsys):
    assert main(["explain", "data-loading", "--json"]) == 0
    assert '"what_to_try": ' in capsys.readouterr().out


def test_a_name_that_comes_close_is_suggested(capsys):
    with pytest.raises(SelectionError, match="no rule 'itemsync'") as error:
        find_rule("itemsync")
    assert "item-sync" in error.value.hint
    assert main(["explain", "itemsync"]) == 1
    assert "there is no rule" in capsys.readouterr().err
    with pytest.raises(SelectionError) as error:
        find_rule("xyzzy")
    assert "traceread explain" in error.value.hint


def test_a_manual_without_sections_is_no_mistake():
    assert read_manual("Something.").title == "Something"
    assert read_manual("").title == ""
    assert read_manual("A.\n\nWhat it means. One.\n\nMore of it.").sections == {"What it means": "One.\n\nMore of it."}
