"""Run the user's command and wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from transit.errors import CommandNotExecutableError, CommandNotFoundError

FORWARDED_SIGNALS = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
SENT_BY_KERNEL = 0x80  # si_code SI_KERNEL: the terminal sent it to the job as well


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end, passing on the signals that reach this process.

    Parameters
    ----------
    command
        The program, found on the ``PATH`` of `environment`, and its arguments.
    environment
        All variables of the new process.

    Returns
    -------
    int
        The command's exit code, or 128 + N when signal N ended it.

    Raises
    ------
    CommandNotFoundError, CommandNotExecutableError
        The command could not be started.
    """
    # An ignored SIGCHLD, inherited from the parent, would never wake the wait below.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    watched = FORWARDED_SIGNALS | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        process = _start(command, environment, mask)
        while process.poll() is None:
            received = signal.sigwaitinfo(watched)
            if _is_for_the_job(received):
                process.send_signal(received.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    code = process.returncode
    return 128 - code if code < 0 else code


def _start(
    command: Sequence[str],
    environment: Mapping[str, str],
    mask: set[int | signal.Signals],
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environment,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )
    except FileNotFoundError as error:
        raise CommandNotFoundError(
            f"{command[0]}: command not found; check the spelling and PATH"
        ) from error
    except OSError as error:
        raise CommandNotExecutableError(
            f"{command[0]}: cannot be executed: {error.strerror}; "
            "check its permissions and its first line"
        ) from error


def _is_for_the_job(received: signal.struct_siginfo) -> bool:
    return received.si_signo in FORWARDED_SIGNALS and received.si_code != SENT_BY_KERNEL


def describe_exit(code: int) -> str:
    """Words for an exit code as `run` returns it."""
    if code > 128 and code - 128 in {int(s) for s in signal.Signals}:
        return f"was ended by {signal.Signals(code - 128).name}"
    return "completed" if code == 0 else f"ended with exit code {code}"


def full_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `variables` on top."""
    return {**os.environ, **variables}
