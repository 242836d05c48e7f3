import difflib
from pathlib import Path

import pytest

GOLD = Path(__file__).with_name("gold")
ACTUAL = Path(__file__).with_name("actual")


def pytest_addoption(parser):
    parser.addoption("--accept-gold", action="store_true", help="take what the code says now as right: rewrites tests/gold")


@pytest.fixture
def gold(request):
    """Compares a text with tests/gold/NAME; what differs is saved to tests/actual/NAME."""

    def compare(name, text):
        wanted = GOLD / name
        if request.config.getoption("--accept-gold"):
            wanted.parent.mkdir(exist_ok=True)
            wanted.write_text(text, "utf-8")
            return
        expected = wanted.read_text("utf-8") if wanted.exists() else ""
        if text == expected:
            return
        ACTUAL.mkdir(exist_ok=True)
        (ACTUAL / name).write_text(text, "utf-8")
        diff = "\n".join(difflib.unified_diff(expected.splitlines(), text.splitlines(), f"gold/{name}", f"actual/{name}", lineterm=""))
        pytest.fail(f"{name} is not what tests/gold says; if it is right: pytest --accept-gold\n{diff}", pytrace=False)

    return compare
