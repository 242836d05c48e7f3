"""Facts about a trace: one function and one result type per file. Nothing here prints, draws or logs."""
