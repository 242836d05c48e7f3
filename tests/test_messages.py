"""docs/messages.md and the source name the same errors and warnings."""

import ast
import re
from pathlib import Path

import traceread
from traceread import errors

PACKAGE = Path(traceread.__file__).parent
MESSAGES = Path(__file__).parents[1] / "docs" / "messages.md"
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.TracereadError)}
SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def slugs_of(tree):
    """Slugs in a module: of exception classes, of Notice(...), of errors with one of their own, of checks that yield (slug, message)."""
    for node in ast.walk(tree):
        found = None
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "slug":
                    yield statement.value.value
        elif isinstance(node, ast.Call):
            found = next((k.value for k in node.keywords if k.arg == "slug"), None)
            if getattr(node.func, "id", "") == "Notice" and node.args:
                found = node.args[0]
            elif getattr(node.func, "id", "") in ERRORS and len(node.args) == 3:
                found = node.args[2]
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            found = node.value.elts[0]
        if isinstance(found, ast.Constant) and isinstance(found.value, str) and SLUG.fullmatch(found.value):
            yield found.value


def in_source():
    return {slug for path in PACKAGE.rglob("*.py") for slug in slugs_of(ast.parse(path.read_text("utf-8")))} | {"internal"}


def in_docs():
    return re.findall(r"^### `([a-z0-9-]+)`$", MESSAGES.read_text("utf-8"), re.MULTILINE)


def test_every_message_has_a_paragraph_and_no_paragraph_lacks_its_message():
    documented = in_docs()
    assert len(documented) == len(set(documented))
    assert sorted(in_source() - set(documented)) == []
    assert sorted(set(documented) - in_source()) == []


def test_paragraphs_are_in_order():
    for part in re.split(r"^## ", MESSAGES.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        slugs = re.findall(r"^### `([a-z0-9-]+)`$", part, re.MULTILINE)
        assert slugs == sorted(slugs)


def test_the_walk_finds_every_way_of_naming_one():
    code = """
class A(Exception):
    slug = "one"
Notice("two", f"text")
InputError("text", slug="three")
InputError("text", "hint", "six")
Other("text", "hint", "no-slug")
def check():
    yield "four", "text"
    yield ("five", "text")
Notice(variable, "text")
"""
    assert sorted(slugs_of(ast.parse(code))) == ["five", "four", "one", "six", "three", "two"]


def test_every_paragraph_says_what_to_do():
    for section in re.split(r"^### ", MESSAGES.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        slug, _, text = section.partition("\n")
        assert len(text.split()) > 25, slug
        assert re.search(r"`|nothing to do|Nothing to do", text), (
            f"{slug} names nothing to type and does not say that there is nothing to do"
        )
