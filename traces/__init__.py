"""The trace format: schema, reader, writer (see FORMAT.md)."""
