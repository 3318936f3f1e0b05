"""What requests and answers look like. The OpenAPI document is made of these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from superarm.live.access import TokenScope
from superarm.live.ids import LONGEST_ID
from superarm.live.names import NAME

MOST_LEVELS = 64
"""Levels of JSON within JSON."""


def _require_flat(value: Any) -> Any:
    """A value of JSON, unless it nests too deeply."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return value
    raise ValueError(f"nests deeper than {MOST_LEVELS} levels")


def _children(value: Any) -> list[Any]:
    """The containers within a container."""
    if isinstance(value, dict):
        members = list(value.values())
    elif isinstance(value, list):
        members = value
    else:
        members = []
    return [member for member in members if isinstance(member, dict | list)]


FlatJson = Annotated[Any, AfterValidator(_require_flat)]
FlatTable = Annotated[dict[str, Any], AfterValidator(_require_flat)]
Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID, pattern="^[^/]+$")]
ArmId = str | int
Number = Annotated[float, Field(allow_inf_nan=False)]
Rewards = Annotated[dict[str, Number], Field(min_length=1)]
Row = list[Number] | FlatTable


class Body(BaseModel):
    """A body without further fields and with finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ArmsTable(Body):
    """Arms whose ids are numbers, or whose order matters."""

    ids: list[ArmId]
    features: list[Row]


Arms = ArmsTable | dict[str, Row] | list[ArmId] | list[Row]


class NewBandit(Body):
    """A bandit to create."""

    name: Name
    spec: FlatTable = Field(
        description="The policy by registry names; or `policy` with `encoding`, `id_column`, "
        "`seed`, `max_age` and `hash_columns`."
    )


class Spec(Body):
    """Another spec for a bandit."""

    spec: FlatTable


class BanditInfo(Body):
    """A bandit."""

    name: str
    created: float = Field(description="Seconds since 1970.")


class BanditDetails(BanditInfo):
    """A bandit: its spec, and how many events and pending decisions it has."""

    spec: dict[str, Any]
    events: int
    pending: int = Field(description="Decisions that await rewards.")


class PendingDecisions(Body):
    """Decisions that await rewards."""

    decisions: list[str]


class NamedArms(Body):
    """Arms to store once, so that later asks refer to them by id."""

    arms: Arms


class Ask(Body):
    """Arms on offer."""

    arms: Arms | None = Field(
        default=None,
        description="Features by id; rows of a table, where the bandit has an encoding; rows of "
        "numbers, numbered from 0; ids of named arms; or null for all named arms.",
    )
    structure: FlatJson = Field(
        default=None, description="The constraints of this round."
    )
    time: Number | None = None
    decision_id: Id | None = Field(
        default=None,
        description="An id of your own. A repeated ask with the same id returns the same decision.",
    )
    deferred: bool = Field(
        default=False,
        description="Whether the bandit waits for rewards only after you activate the decision.",
    )


class Guarantee(Body):
    """How close the oracle's choice is to the best super arm."""

    alpha: float
    probability: float


class Decision(Body):
    """What to do."""

    id: str
    bandit: str
    action: Any
    arms: list[ArmId]
    mean: dict[str, float]
    std: dict[str, float]
    propensity: float | None
    guarantee: Guarantee | None


class DecisionDetails(Decision):
    """A decision with its status."""

    status: str
    time: float = Field(description="When the bandit decided, in seconds since 1970.")
    awaiting: list[ArmId] = Field(description="Arms that still await rewards.")


class Tell(Body):
    """Rewards of a decision's arms."""

    rewards: Rewards
    noise_variance: dict[str, Number] | None = None
    observation_id: Id | None = Field(
        default=None,
        description="An id of your own; by default, the arms identify these rewards.",
    )


class BatchTell(Tell):
    """A line of a batch: rewards of one decision's arms."""

    decision: Id


class Observe(Body):
    """Rewards that did not come from the bandit's decisions."""

    arms: Arms | None = None
    rewards: Rewards
    noise_variance: dict[str, Number] | None = None
    time: Number | None = None
    observation_id: Id | None = None


class Told(Body):
    """Whether rewards are new. They are durable in either case."""

    new: bool


class Abandoned(Body):
    """Whether the decision awaited rewards until now."""

    awaited: bool


class Activated(Body):
    """Whether the decision was deferred until now."""

    deferred: bool


class Predict(Body):
    """Arms to predict."""

    arms: Arms | None = None
    time: Number | None = None


class Prediction(Body):
    """Mean and standard deviation of each arm, in the order of the request."""

    arms: list[ArmId]
    mean: list[float]
    std: list[float] | None


class Teacher(Body):
    """A reward that taught the bandit about an arm."""

    decision: str | None
    arm: ArmId
    reward: float
    share: float = Field(
        description="The share of the arm's prior variance that this reward alone explains."
    )


class ArmReasons(Body):
    """Why one arm was chosen, or would have been chosen in the runner-up."""

    arm: ArmId
    mean: float | None
    std: float | None
    index: float | None
    teachers: list[Teacher] = Field(
        description="The most influential rewards among the 10,000 events before the decision."
    )
    column: str | None = Field(
        description="The column that changes the mean most when replaced by its average."
    )
    effect: float | None


class Explanation(Body):
    """Why a bandit decided as it did."""

    decision: str
    arms: list[ArmReasons]
    runner_up: list[ArmReasons] = Field(
        description="The arms of the next best super arm; empty if there is no other."
    )
    margin: float | None = Field(
        description="How much lower the total index of the runner-up was."
    )
    teachers_refusal: str | None = Field(
        description="Why no arm has teachers; null if rewards are ranked."
    )


class Fitted(Body):
    """The result of a fit."""

    log_marginal_likelihood: float
    spec: dict[str, Any]


class Estimate(Body):
    """An estimate of the mean reward of a decision, with an interval."""

    value: float
    lower: float
    upper: float
    level: float = Field(description="Probability that the interval contains the mean.")
    interval: str = Field(
        description="`anytime`: it holds however often you look; `asymptotic`: only for many "
        "decisions."
    )


class ShadowReport(Body):
    """What a challenger would have earned, in rewards per decision."""

    since: int = Field(description="The event that started the challenger.")
    decisions: int
    rewarded: int = Field(
        description="Decisions with all rewards; the estimates use these."
    )
    partial: int
    pending: int
    abandoned: int
    agreement: float | None = Field(
        description="Share of the decisions in which the challenger chose the same arms."
    )
    effective_size: float | None
    current: Estimate | None = Field(description="What the bandit earned.")
    inverse_propensity: Estimate | None
    self_normalised: Estimate | None
    doubly_robust: Estimate | None
    refusal: str | None = Field(description="Why there is no estimate, and what to do.")
    assumptions: list[str]


class NewToken(Body):
    """A token to create, for the tenant of the caller."""

    name: Name
    scopes: list[TokenScope] = Field(min_length=1)


class Token(Body):
    """A token, shown once."""

    name: str
    scopes: list[str]
    token: str


class TokenInfo(Body):
    """A token without its secret."""

    name: str
    scopes: list[str]
    created: float


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: str
    title: str
    status: int
    detail: str


class Health(Body):
    """The state of the service."""

    status: str
