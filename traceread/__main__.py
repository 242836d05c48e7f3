"""`python -m traceread`."""

import sys

from traceread.cli import main

sys.exit(main())
