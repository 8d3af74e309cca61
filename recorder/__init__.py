"""Start a job under the recorder; turn its spool into a trace."""
