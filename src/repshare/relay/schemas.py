"""The shapes of the API's JSON, and how its answers are described in /openapi.json."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from repshare.aggregation import Aggregation
from repshare.relay.names import PATTERN
from repshare.relay.problems import KINDS, MEDIA_TYPE
from repshare.relay.tasks import LONGEST_AGE_SECONDS, MOST_CLASSES, MOST_NUMBERS

BYTES = "application/octet-stream"
DIGITS = {"classes": 10, "dimension": 84}


def _example(**values: int) -> dict[str, Any]:
    return {"examples": [values]}


class TaskFields(BaseModel):
    """A task: what its clients agree on. See `repshare.Task`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra=_example(**DIGITS))

    classes: int = Field(ge=2, le=MOST_CLASSES)
    dimension: int = Field(ge=1, le=MOST_NUMBERS)
    norm_bound: float = Field(1000.0, gt=0)
    minimum_count: int = Field(1, ge=1, lt=2**31)
    weighted: bool = True
    aggregation: Aggregation = "mean"
    max_age: float | None = Field(None, gt=0, le=LONGEST_AGE_SECONDS, description="seconds")


class NamedTask(TaskFields):
    """A task with its name."""

    name: str


class TaskList(BaseModel):
    """All tasks of a relay."""

    tasks: list[NamedTask]


class Version(BaseModel):
    """A number that grows with every change to a task's board."""

    model_config = ConfigDict(json_schema_extra=_example(version=7))
    version: int


class Me(BaseModel):
    """Who a token is, and its task's fields if it has a task."""

    role: str
    client: str | None
    task: str | None
    classes: int | None = None
    dimension: int | None = None
    norm_bound: float | None = None
    minimum_count: int | None = None
    weighted: bool | None = None
    aggregation: Aggregation | None = None
    max_age: float | None = None


class Member(BaseModel):
    """A client that has published."""

    name: str
    round: int
    published: float = Field(description="seconds since 1970")
    bytes: int
    samples: dict[str, int] = Field(description="by class, behind its means")
    strangeness: float | None = Field(description="how many times farther from the others' means than is usual")
    outlier: bool


class Refusal(BaseModel):
    """A request that was refused."""

    time: float = Field(description="seconds since 1970")
    client: str
    kind: str
    reason: str


class Status(BaseModel):
    """How a task stands."""

    name: str
    task: TaskFields
    version: int
    clients: int
    shown: list[Member]
    refusals: list[Refusal] | None = Field(None, description="the last ones at this relay; for viewers and admins")


class ProblemDetails(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Health(BaseModel):
    """Whether the store could be written to and read from."""

    status: str


def name(place: str, what: str, *, required: bool = True, inside: str = "path") -> dict[str, Any]:
    """The description of a parameter that is a name."""
    schema = {"type": "string", "pattern": PATTERN}
    return {"name": place, "in": inside, "required": required, "description": what, "schema": schema}


TASK = name("task", "the task's name")
CLIENT = name("client", "the client's name")


def answers(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """The descriptions of these problems."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in (*kinds, "store-away"):
        status, title = KINDS[kind]
        title = f"{found[status]['description']}; or: {title}" if status in found else title
        example = {"type": f"urn:repshare:problem:{kind}", "title": title, "status": status, "detail": "…"}
        schema = {"$ref": "#/components/schemas/ProblemDetails"}
        found[status] = {"description": title, "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}
    for status in (401, 429, 503):
        if status in found:
            found[status]["headers"] = {"WWW-Authenticate" if status == 401 else "Retry-After": _TEXT}
    return found


_TEXT = {"schema": {"type": "string"}}
GUARDED = ("unauthorised", "forbidden", "unknown", "too-fast")  # what any endpoint behind a token may answer
