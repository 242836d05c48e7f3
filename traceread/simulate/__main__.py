"""`python -m traceread.simulate`: the verb `traceread simulate` on its own."""

import argparse
import sys

from traceread.cli import simulate as verb
from traceread.errors import TracereadError


def main(argv: list[str] | None = None) -> int:
    """Exit code of the verb."""
    parser = argparse.ArgumentParser(prog="traceread")
    verb.add_parser(parser.add_subparsers(required=True))
    try:
        return verb.run(parser.parse_args(["simulate", *(sys.argv[1:] if argv is None else argv)]))
    except TracereadError as error:
        print(f"{error.message} {error.hint}".rstrip(), file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
