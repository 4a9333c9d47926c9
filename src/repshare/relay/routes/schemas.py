"""What requests may hold: queries, and bodies of JSON."""

from typing import Annotated, Any, Literal, TypeVar, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from repshare.config import Precision
from repshare.relay.auth import is_client_name
from repshare.relay.problems import Problem
from repshare.secure import MOST_MEMBERS, STEPS

MOST_NUMBER = 2**53  # of a meeting
Model = TypeVar("Model", bound=BaseModel)
LARGEST = 1e9  # the largest number that a client may report


class JsonBody(BaseModel):
    """A body of JSON. Values must have the right type: no number is read from text."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class ReportedPrivacy(JsonBody):
    """The privacy budget that a client reports as spent."""

    epsilon: float = Field(ge=0, le=LARGEST)
    delta: float | None = Field(None, ge=0, le=1)
    mode: str | None = Field(None, max_length=40)


Share = Annotated[float, Field(ge=0, le=1)]


class RoundReport(JsonBody):
    """A client's report of a round, as far as it chooses. What is not named here is not stored."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"round": 7, "test_accuracy": 0.91}]})

    round: int = Field(ge=1, le=2**24)
    train_accuracy: Share | None = None
    test_accuracy: Share | None = None
    held_out: Share | None = Field(None, description="of the common classifier on the client's held-out samples")
    held_out_alone: Share | None = Field(None, description="there, of a classifier of the client's own samples")
    in_use: Literal["together", "alone"] | None = Field(None, description="whose classifier the client uses")
    gap: float | None = Field(None, ge=0, le=LARGEST, description="duality gap of the client's samples, a sample")
    privacy: ReportedPrivacy | None = None
    model: str | None = Field(None, max_length=100, description="what it is, in some words")


def _check_client(name: str) -> str:
    if not is_client_name(name):
        raise ValueError(f"{name[:80]!r} cannot name a client")
    return name


ClientName = Annotated[str, AfterValidator(_check_client)]


class Query(BaseModel):
    """What a request asks for after the `?`, and with numbers in its path."""

    model_config = ConfigDict(allow_inf_nan=False)


class CallerQuery(Query):
    """Who asks."""

    client: ClientName = Field("", description="who asks; known by the token, needed only without one")


class TeacherQuery(CallerQuery):
    """What a teacher should have."""

    observations: int = Field(1, ge=0, le=1000, description="M↓: observations of each class")
    seed: int = Field(0, ge=0, le=2**64 - 1, description="of the draw: the same one draws the same")
    precision: Precision = Field("fp32", description="number format of the answer")


class NewsQuery(CallerQuery):
    """The change that is waited for."""

    since: int = Field(0, ge=0, le=2**63 - 1, description="the version that is known already")
    wait: float = Field(20, ge=0, le=60, description="seconds")


class CallQuery(Query):
    """A member of a masked group that is ready for a meeting."""

    key: str = Field(pattern="^[0-9a-f]{64}$", description="its public key (Ed25519), always the same")
    call: str = Field(pattern="^[0-9a-f]{1,32}$", description="any word, another one for each meeting")
    company: int = Field(1, ge=1, le=MOST_MEMBERS, description="newcomers, with it, that it joins others with")
    base: str = Field("", pattern="^[0-9a-f]{0,64}$", description="the last total that it knows; empty: none")
    fault: str = Field(
        "", pattern=r"^[^\x00-\x1f\x7f]{0,300}$", description="why it leaves itself out; empty: it does not"
    )
    patience: float = Field(60, ge=0, le=600, description="seconds to wait for those who are missing, once enough wait")


class StepQuery(Query):
    """A step of a group's meeting."""

    number: int = Field(ge=0, le=MOST_NUMBER, description="the meeting's")
    step: int = Field(ge=0, le=STEPS - 1, description="of the meeting")


def parse_report(body: bytes) -> RoundReport:
    """A report from its JSON, or a Problem that says where it does not fit."""
    try:
        return RoundReport.model_validate_json(body)
    except ValidationError as error:
        raise _explain(error) from None


def parse_query(model: type[Model], request: Request) -> Model:
    """A request's query, and the numbers in its path, as this model. Of a field given twice, the last counts."""
    given, values = request.query_params, dict[str, Any](request.path_params)
    for name, field in model.model_fields.items():
        if name in given:
            values[name] = given.getlist(name) if get_origin(field.annotation) is tuple else given[name]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> Problem:
    told = [(each["type"], ".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
    if told[0][0] == "json_invalid":
        return Problem("malformed", told[0][2][:500])
    return Problem("invalid", "; ".join(f"{where}: {what}" for _, where, what in told)[:1000])
