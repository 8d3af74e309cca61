"""The hook in the job's Python: it chains, it counts steps, it never breaks the job."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

HOOK = Path(str(files("transit.recorder").joinpath("hook")))


def run_python(
    code: str, *path: Path, library: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process whose ``PYTHONPATH`` is `path`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRANSIT_")}
    env.pop("CUDA_INJECTION64_PATH", None)
    env |= {"PYTHONPATH": ":".join(map(str, path))} | variables
    if library is not None:
        env["CUDA_INJECTION64_PATH"] = str(library)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


@pytest.fixture
def recorder(native_libs: Path) -> Path:
    return native_libs / "libtransit_recorder.so"


def test_the_jobs_own_sitecustomize_runs(own: Path) -> None:
    (own / "sitecustomize.py").write_text("ANSWER = 42\n")
    code = "import sitecustomize; print(sitecustomize.ANSWER, sitecustomize.__file__)"

    result = run_python(code, HOOK, own)

    assert result.stdout.split() == ["42", str(own / "sitecustomize.py")]
    assert result.stderr == ""


def test_a_failing_sitecustomize_fails_as_it_did(own: Path) -> None:
    (own / "sitecustomize.py").write_text("raise ValueError('the job knows')\n")

    with_hook = run_python("print('went on')", HOOK, own)
    without = run_python("print('went on')", own)

    assert with_hook.stdout == without.stdout == "went on\n"
    assert with_hook.stderr == without.stderr
    assert "the job knows" in with_hook.stderr


def test_a_missing_sitecustomize_is_no_error() -> None:
    result = run_python("print('went on')", HOOK)

    assert (result.stdout, result.stderr) == ("went on\n", "")


@pytest.mark.parametrize("library", [None, Path("/opt/other/libprofiler.so")])
def test_nothing_is_watched_unless_transit_records(library: Path | None) -> None:
    code = "import sys; print([type(f).__name__ for f in sys.meta_path])"

    result = run_python(code, HOOK, library=library)

    assert "TorchFinder" not in result.stdout


def test_a_missing_recorder_leaves_torch_working(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    result = run_python(
        "import torch; print(torch.ones(2).sum().item())",
        HOOK,
        library=tmp_path / "libtransit_recorder.so",
    )

    assert result.stdout == "2.0\n"
    assert result.stderr.count("transit: ") == 1


def test_torch_is_loaded_as_without_the_hook(recorder: Path) -> None:
    pytest.importorskip("torch")
    code = """
import importlib.util
importlib.util.find_spec("torch")  # as libraries do to see whether it is there
import torch
print(type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__)
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
print(len(hooks))
"""

    result = run_python(code, HOOK, library=recorder)

    assert result.stdout.split() == ["SourceFileLoader", "True", "1"]


def test_an_iteration_is_a_step_of_the_optimizer_that_stepped_first(
    recorder: Path,
) -> None:
    pytest.importorskip("torch")
    code = """
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
parameter = torch.nn.Parameter(torch.ones(3))
parameter.grad = torch.ones(3)
first, second = (torch.optim.SGD([parameter], lr=0.1) for _ in range(2))
for _ in range(3):
    first.step()
    second.step()
    second.step()
(hook,) = hooks.values()
print(hook.__self__._num_steps)
"""

    result = run_python(code, HOOK, library=recorder)

    assert result.stdout == "3\n", result.stderr


def test_a_job_without_cuda_leaves_nothing(recorder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    code = """
import torch
parameter = torch.nn.Parameter(torch.ones(3))
parameter.grad = torch.ones(3)
torch.optim.SGD([parameter], lr=0.1).step()
"""

    result = run_python(code, HOOK, library=recorder, TRANSIT_RUN_DIR=str(run_dir))

    assert (result.returncode, result.stderr) == (0, "")
    assert list(run_dir.iterdir()) == []


def test_a_failure_in_the_hook_is_said_once_and_ends_nothing(recorder: Path) -> None:
    pytest.importorskip("torch")
    code = """
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
(hook,) = hooks.values()
hook.__self__._library = None
parameter = torch.nn.Parameter(torch.ones(3))
parameter.grad = torch.ones(3)
optimizer = torch.optim.SGD([parameter], lr=1.0)
for _ in range(3):
    optimizer.step()
print(parameter.tolist())
"""

    result = run_python(code, HOOK, library=recorder)

    assert result.stdout == "[-2.0, -2.0, -2.0]\n"
    assert result.stderr.count("transit: ") == 1


def test_a_forked_child_leaves_the_history_to_its_parent(recorder: Path) -> None:
    pytest.importorskip("torch")
    code = """
import os
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
(hook,) = hooks.values()
hook.__self__._history_begin_ns = 5
child = os.fork()
if child == 0:
    os._exit(hook.__self__._history_begin_ns)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(hook.__self__._history_begin_ns)
"""

    result = run_python(code, HOOK, library=recorder)

    assert result.stdout.split() == ["0", "5"], result.stderr
