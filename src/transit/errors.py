"""The failures a user can act on; ``transit.cli.main`` alone prints them."""

from __future__ import annotations


class TransitError(Exception):
    """Base class. The message says what was wrong, where, and what to do."""

    exit_code = 1


class TraceError(TransitError):
    """A spool or trace is missing, damaged, foreign, or of a newer version."""


class PlanError(TransitError):
    """A plan is missing, damaged, contradictory, or not for this job or GPU."""


class MachineError(TransitError):
    """A machine profile is missing, damaged, or holds impossible rates."""


class BudgetError(TransitError):
    """No plan of the chosen policy fits the memory asked for."""


class JobError(TransitError):
    """The job could not be started or watched."""


class CommandNotFoundError(JobError):
    """The job's command does not exist."""

    exit_code = 127


class CommandNotExecutableError(JobError):
    """The job's command exists and cannot be executed."""

    exit_code = 126
