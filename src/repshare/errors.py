"""Every error the package raises on purpose.

* RepshareError
  x ConfigError            a run was described wrongly; nothing has started
  x DataError              a data set could not be had, or is not what it should be
  x ModelError             a model cannot be used as features followed by a linear head
  x ExchangeError
    + Unreachable          the exchange is away: try again later; nothing was lost
    + Refused              the exchange understood and said no: see the reason
      . Outdated           a newer release of the same client is there already
    + Malformed            the bytes are not what they should be
  x BudgetExhausted        releasing would exceed a privacy budget; nothing was released, and training goes on
  x StoreError             a store is away or cannot write; do the same again later
    + Damaged              a stored value is not what was written
  x CheckpointError        a checkpoint is damaged, of another run, or could not be written
  x WorkerFailed           a worker process died, or met an error nobody foresaw
"""


class RepshareError(Exception):
    """Anything the package raises on purpose."""


class ConfigError(RepshareError):
    """A run was described wrongly; nothing has started."""


class DataError(RepshareError):
    """A data set could not be had, or is not what it should be."""


class ModelError(RepshareError):
    """A model cannot be used as features followed by a linear head."""


class ExchangeError(RepshareError):
    """Something between a client and the others went wrong; local work is unharmed."""


class Unreachable(ExchangeError):
    """The exchange is away: try again later; nothing was lost."""


class Refused(ExchangeError):
    """The exchange understood and said no: see the reason."""


class Outdated(Refused):
    """A newer release of the same client is there already."""


class Malformed(ExchangeError):
    """The bytes are not what they should be."""


class BudgetExhausted(RepshareError):
    """Releasing would exceed a privacy budget; nothing was released, and training goes on."""


class StoreError(RepshareError):
    """A store is away or cannot write; do the same again later."""


class Damaged(StoreError):
    """A stored value is not what was written: the store's fault, never that of whoever asks."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"the stored value {key} is damaged: {reason}")
        self.key, self.reason = key, reason


class CheckpointError(RepshareError):
    """A checkpoint is damaged, of another run, or could not be written."""


class WorkerFailed(RepshareError):
    """A worker process died, or met an error nobody foresaw."""
