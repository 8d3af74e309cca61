"""Start a job under the shim, with a plan lowered to what the shim can map."""
