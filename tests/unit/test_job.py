from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from transit.errors import CommandNotExecutableError, CommandNotFoundError
from transit.runtime import job


@pytest.mark.parametrize("code", [0, 3, 127])
def test_exit_code_is_the_jobs(code: int) -> None:
    command = [sys.executable, "-c", f"raise SystemExit({code})"]
    assert job.run(command, os.environ) == code


def test_exit_code_of_a_killed_job() -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert job.run([sys.executable, "-c", script], os.environ) == 128 + 9


def test_job_gets_the_environment_and_no_blocked_signals() -> None:
    script = (
        "import os, signal, sys; sys.exit(os.environ['COLOUR'] != 'blue'"
        " or bool(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    )
    environment = job.full_environment({"COLOUR": "blue"})
    assert job.run([sys.executable, "-c", script], environment) == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_command_not_found() -> None:
    with pytest.raises(CommandNotFoundError, match="no-such-command") as caught:
        job.run(["no-such-command"], os.environ)
    assert caught.value.exit_code == 127


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_command_not_executable(tmp_path: Path, mode: int) -> None:
    script = tmp_path / "train"
    script.write_bytes(b"\x00 no program")
    script.chmod(mode)
    with pytest.raises(CommandNotExecutableError, match="train") as caught:
        job.run([str(script)], os.environ)
    assert caught.value.exit_code == 126


@pytest.mark.parametrize("number", sorted(job.FORWARDED_SIGNALS))
def test_signals_are_passed_on(number: signal.Signals) -> None:
    child = textwrap.dedent(f"""
        import os, signal, sys
        signal.signal({int(number)}, lambda *_: os._exit(42))
        print("ready", flush=True)
        while True:
            signal.pause()
    """)
    launcher = (
        "import os, sys; from transit.runtime import job;"
        f"sys.exit(job.run([sys.executable, '-c', {child!r}], os.environ))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", launcher], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(timeout=30) == 42


def test_an_ignored_sigchld_does_not_hang() -> None:
    launcher = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "from transit.runtime import job; sys.exit(job.run(['true'], os.environ))"
    )
    subprocess.run([sys.executable, "-c", launcher], check=True, timeout=30)


# A thread that was there before the signals were blocked, and long pauses in which the
# launcher does not wait for them: the thread takes what comes then.
DISTRACTED = """
import os, sys, threading, time
from transit.runtime import job

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
code = job.run(
    [sys.executable, "-c", sys.argv[1]], os.environ, watch=lambda: time.sleep(1.5)
)
os._exit(code)
"""


def test_the_end_is_seen_though_another_thread_takes_the_signal() -> None:
    child = "import time; time.sleep(0.8); raise SystemExit(7)"
    done = subprocess.run([sys.executable, "-c", DISTRACTED, child], timeout=30)
    assert done.returncode == 7


def test_a_signal_that_another_thread_takes_is_passed_on() -> None:
    child = "print('ready', flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", DISTRACTED, child], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.8)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "completed"),
        (3, "ended with exit code 3"),
        (128 + 15, "was ended by SIGTERM"),
        (255, "ended with exit code 255"),
    ],
)
def test_exit_in_words(code: int, words: str) -> None:
    assert job.describe_exit(code) == words
