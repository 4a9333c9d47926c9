"""Every error the package raises on purpose.

* RepshareError
  x ConfigError            a run was described wrongly; nothing has started
  x DataError              a data set is unavailable, or is not what it should be
  x ModelError             a model cannot be used as features followed by a linear head
  x ExchangeError
    + Unreachable          the exchange is unavailable: try again later; nothing was lost
    + Refused              the exchange refused: see the reason
      . Outdated           a newer release of the same client was published already
      . LeftOut            other clients' parts vote against this client's: see the reason
    + Malformed            the bytes are not what they should be
  x BudgetExhausted        releasing would exceed a privacy budget; nothing was released, and training continues
  x StoreError             a store is unavailable or cannot write: try again later
    + Damaged              a stored value is not what was written
  x CheckpointError        a checkpoint is damaged, of another run, or could not be written
  x WorkerFailed           a worker process died, or met an unexpected error
"""


class RepshareError(Exception):
    """Base of all errors that the package raises on purpose."""


class ConfigError(RepshareError):
    """A run was described wrongly; nothing has started."""


class DataError(RepshareError):
    """A data set is unavailable, or is not what it should be."""


class ModelError(RepshareError):
    """A model cannot be used as features followed by a linear head."""


class ExchangeError(RepshareError):
    """An exchange with other clients failed; local work is unharmed."""


class Unreachable(ExchangeError):
    """The exchange is unavailable: try again later; nothing was lost."""


class Refused(ExchangeError):
    """The exchange refused: see the reason."""


class Outdated(Refused):
    """A newer release of the same client was published already."""


class LeftOut(Refused):
    """Other clients' parts vote against this client's. It is left out until it comes with another one."""


class Malformed(ExchangeError):
    """The bytes are not what they should be."""


class BudgetExhausted(RepshareError):
    """Releasing would exceed a privacy budget; nothing was released, and training continues."""


class StoreError(RepshareError):
    """A store is unavailable or cannot write: try again later."""


class Damaged(StoreError):
    """A stored value is not what was written. It is the store's fault, never the caller's."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"the stored value {key} is damaged: {reason}")
        self.key, self.reason = key, reason


class CheckpointError(RepshareError):
    """A checkpoint is damaged, of another run, or could not be written."""


class WorkerFailed(RepshareError):
    """A worker process died, or met an unexpected error."""
