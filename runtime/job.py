"""Run the user's command and wait for it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence, Set

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
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
WATCH_PERIOD_S = 0.5
SENT_BY_KERNEL = 0x80  # si_code SI_KERNEL: the terminal sent it to the job as well


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    watch: Callable[[], bool] = lambda: False,
) -> int:
    """Run a command to its end, passing on the signals that reach this process.

    Parameters
    ----------
    command
        The program, found on the ``PATH``, and its arguments.
    environment
        All variables of the new process.
    watch
        Called now and then while the command runs; when it returns true, the command
        is asked to end (SIGTERM).

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
    handlers = {number: signal.getsignal(number) for number in FORWARDED_SIGNALS}
    try:
        pid = _start(command, environment, mask)
        _forward_from_other_threads(pid)
        return _wait(pid, watched, watch)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(pid: int, watched: Set[int], watch: Callable[[], bool]) -> int:
    while True:
        received = signal.sigtimedwait(watched, WATCH_PERIOD_S)
        if received is not None and received.si_signo != signal.SIGCHLD:
            if received.si_code != SENT_BY_KERNEL:
                os.kill(pid, received.si_signo)
            continue
        # Asked in any case: between two waits, another thread can take the SIGCHLD.
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        if received is None and watch():
            os.kill(pid, signal.SIGTERM)


def _forward_from_other_threads(pid: int) -> None:
    """Let no signal end this process that a library's thread takes between two waits.

    Such threads, NumPy's for instance, were there before the signals were blocked.
    """

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)

    for number in FORWARDED_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)


def _start(
    command: Sequence[str], environment: Mapping[str, str], mask: set[int]
) -> int:
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            environment,
            setsigmask=mask,
            setsigdef=IGNORED_BY_PYTHON,
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


def describe_exit(code: int) -> str:
    """Words for an exit code as `run` returns it."""
    if code > 128 and code - 128 in {int(s) for s in signal.Signals}:
        return f"was ended by {signal.Signals(code - 128).name}"
    return "completed" if code == 0 else f"ended with exit code {code}"


def full_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `variables` on top."""
    return {**os.environ, **variables}
