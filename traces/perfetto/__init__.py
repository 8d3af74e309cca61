"""What ui.perfetto.dev shows of a trace."""
