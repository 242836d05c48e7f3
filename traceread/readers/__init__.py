"""Readers: files in, one `Trace` per rank out. Everything downstream sees nanoseconds and codes, never a file format."""
