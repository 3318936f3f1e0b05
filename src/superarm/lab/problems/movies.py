"""Three films for an audience, to reach as many viewers as possible: Simulation III.

Of *Contextual Combinatorial Bandits with Changing Action Sets via Gaussian Processes* (2022). An arm
joins a film and a viewer who has rated it. Its context is ⟨u, g⟩/10, where g marks the film's genres
and u is the mean of the viewer's genres, weighted by rating; the viewer watches the film with
probability f(x) = 2/(1 + e^{−4x}) − 1. Films are chosen; all their arms are seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from superarm.core import (
    Arms,
    Best,
    Bools,
    Decision,
    Feedback,
    Floats,
    Ints,
    Offer,
    Oracle,
    Rng,
)
from superarm.core.errors import InputError
from superarm.core.graphs import Pairs, renumbered
from superarm.core.inputs import as_count, as_number, require_choice
from superarm.core.registry import register
from superarm.core.streams import Streams, stream
from superarm.kernels import SquaredExponential
from superarm.lab.datasets import Ratings, load_movielens, load_movielens_25m
from superarm.models import Model
from superarm.models.worlds import store
from superarm.oracles import TIM, GreedyCoverage
from superarm.rewards import Coverage

from .changing import ChangingArms, arrivals, most_arrivals
from .sources import edition_of, from_source

_MOST_GENRES = 10.0  # what contexts are divided by: the most genres that a film has
_MOST_ROUNDS, _MOST_DRAWS = 10**5, 1000
_LARGEST_SEARCH = 3  # films up to which the best set is found by trying all
_LEAST_RATINGS = {"small": 20, "25m": 200}
_FIRST_YEAR = 2016  # of the 25M edition: the paper's "after 2015"
_BLOCK = 2**20  # ratings whose contexts are computed at a time


def chance_to_watch(contexts: Floats) -> Floats:
    """f(x) = 2/(1 + e^{−4x}) − 1, (n, 1) → (n,)."""
    return 2.0 / (1.0 + np.exp(-4.0 * contexts[:, 0])) - 1.0


class _Catalogue(NamedTuple):
    """Films by the viewers who rated them."""

    films: Ints  # (f + 1,): where the ratings of each film begin
    viewer: Ints  # (r,)
    context: Floats  # (r,)
    origin: str
    selection: str  # which of the ratings, in words
    ending: str = ""  # by which reports know synthetic data

    @property
    def size(self) -> int:
        return len(self.films) - 1


@register("problem", "movies")
@dataclass(frozen=True, kw_only=True, eq=False)
class Movies(ChangingArms):
    """Films and viewers change every round; a viewer counts once, however many films reach them.

    Args:
        films: Mean of the Poisson number of films in a round.
        viewers: Mean of the Poisson number of viewers in a round.
        k: How many films are shown.
        oracle: Greedy coverage, or TIM+ with ε = 0.1 and ℓ = 1.
        least_ratings: Ratings that a viewer must have given; 200 in the 25M edition, as in the
            paper, else 20.
        least_stars: Stars from which a rating joins a film and a viewer; 0.5, the fewest, keeps
            them all.
        edition: Which MovieLens data: ml-latest-small, or 25M; auto takes 25M where it is found.
        first_year: First year whose ratings count, in the 25M edition; 2016, the paper's "after
            2015".
        source: Real data, synthetic data of the same shape, or auto: real where available.
    """

    films: int = 75
    viewers: int = 200
    k: int = 3
    oracle: Literal["greedy", "tim"] = "tim"
    least_ratings: int | None = None
    least_stars: float = 0.5
    edition: Literal["auto", "small", "25m"] = "auto"
    first_year: int | None = None
    source: str = "auto"
    _catalogue: _Catalogue = field(init=False, repr=False)
    _streams: Streams = field(init=False, repr=False)

    def __post_init__(self) -> None:
        store(self, horizon=as_count(self.horizon, "horizon"), k=as_count(self.k, "k"))
        store(self, films=as_count(self.films, "films", self.k + 1, 10**5))
        store(self, viewers=as_count(self.viewers, "viewers", 1, 10**6))
        store(self, least_stars=as_number(self.least_stars, "least_stars", 0.5, 5.0))
        if self.least_ratings is not None:
            store(self, least_ratings=as_count(self.least_ratings, "least_ratings"))
        if self.first_year is not None:
            store(self, first_year=as_count(self.first_year, "first_year", 1995, 2100))
        if self.horizon > _MOST_ROUNDS:
            raise InputError(
                f"horizon is {self.horizon}; it must be at most {_MOST_ROUNDS:,}, since all rounds are "
                "drawn beforehand to tell the learner the most pairs in any of them"
            )
        require_choice(self.oracle, "oracle", ("greedy", "tim"))
        catalogue = from_source(
            self.source, self._real_catalogue, self._synthetic_catalogue
        )
        if catalogue.size < most_arrivals(self.films):
            raise InputError(
                f"{catalogue.size} films are known, but up to {most_arrivals(self.films)} may arrive "
                "in a round; lower films, least_ratings or least_stars"
            )
        oracle: Oracle = (
            TIM(k=self.k) if self.oracle == "tim" else GreedyCoverage(k=self.k)
        )
        store(self, _catalogue=catalogue, _streams=Streams(self.seed, "offer"))
        most_arms = max(
            len(self._pairs(step)[0]) for step in range(1, self.horizon + 1)
        )
        model = Model(
            kernel=SquaredExponential(lengthscale=1.0, variance=1.0),
            noise_variance=0.01,
            oracle=oracle,
            horizon=self.horizon,
            reward=Coverage(),
            gain={"name": "squared-exponential", "dimension": 1},
            most_arms=most_arms,
        )
        interpretations = {
            "data": f"{catalogue.origin}: {catalogue.size:,} films, {len(catalogue.viewer):,} ratings "
            f"{catalogue.selection} (the paper: the 25M set, ratings after 2015, viewers with at least "
            f"200){catalogue.ending}",
            "viewers": "a Poisson number of those who have rated a film of the round, or all of them "
            "if they are fewer; drawn again until more than k films have a viewer",
            "most arms": f"M = {most_arms}, the most pairs in a round",
            "noise": "a film is watched or not; the learner assumes Gaussian noise of variance 0.01",
            "regret": "of the expected number of viewers, against the oracle under the truth; "
            "alpha_regret against its promised share of the optimum, found by trying all sets",
        }
        store(self, model=model, interpretations=interpretations)

    def _real_catalogue(self) -> _Catalogue:
        edition = edition_of(self.edition)
        least = (
            _LEAST_RATINGS[edition]
            if self.least_ratings is None
            else self.least_ratings
        )
        if edition == "25m":
            first_year = _FIRST_YEAR if self.first_year is None else self.first_year
            return _catalogue_25m(least, self.least_stars, first_year)
        if self.first_year is not None:
            raise InputError(
                "first_year needs edition 25m; the small edition is read for all years"
            )
        return _small_catalogue(least, self.least_stars)

    def _synthetic_catalogue(self) -> _Catalogue:
        """Like the small edition, whatever edition is asked for."""
        least = (
            _LEAST_RATINGS["small"]
            if self.least_ratings is None
            else self.least_ratings
        )
        return _synthetic_catalogue(least, self.least_stars)

    def _pairs(self, step: int) -> tuple[Ints, Ints, Floats]:
        """Film, viewer and context of every arm."""
        rng, catalogue = self._streams.at(step), self._catalogue
        for _ in range(_MOST_DRAWS):
            films = rng.choice(
                catalogue.size, size=arrivals(rng, self.films, self.k), replace=False
            )
            starts, counts = catalogue.films[films], np.diff(catalogue.films)[films]
            ends = np.cumsum(counts)
            ratings = np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1])
            film, viewer = np.repeat(films, counts), catalogue.viewer[ratings]
            known = np.unique(viewer)
            wanted = int(rng.poisson(self.viewers))
            if wanted < len(known):
                kept = np.isin(viewer, rng.choice(known, size=wanted, replace=False))
                film, viewer, ratings = film[kept], viewer[kept], ratings[kept]
            if len(np.unique(film)) > self.k:
                return film, viewer, catalogue.context[ratings]
        raise InputError(
            f"round {step} was drawn {_MOST_DRAWS:,} times, and never did more than k = {self.k} films "
            "have a viewer; raise viewers, or lower k"
        )

    def offer(self, step: int) -> Offer:
        film, viewer, context = self._pairs(step)
        ids = list(zip(film.tolist(), viewer.tolist(), strict=True))
        arms = Arms(ids=ids, features=context[:, None])
        return Offer(step=step, arms=arms, structure=Pairs(left=film, right=viewer))

    def means(self, offer: Offer) -> Floats:
        return chance_to_watch(offer.arms.features)

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        """Uniform numbers: an arm works where its number is below its chance."""
        return rng.random(len(offer.arms))

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        positions = decision.positions
        watched = noise[positions] < self.means(offer)[positions]
        return Feedback(positions=positions, rewards=watched.astype(np.float64))

    def best(self, offer: Offer) -> Best:
        return (
            super()
            .best(offer)
            ._replace(optimum=best_coverage(self.means(offer), offer, self.k))
        )


def best_coverage(means: Floats, offer: Offer, k: int) -> float | None:
    """The most viewers that any ``k`` films reach on average, by trying all; ``None`` for many films.

    With Q (films, viewers) the chance that a film does not reach a viewer, films a, b and c reach
    Σ (1 − Q_a Q_b Q_c) of them: for one a a product of two matrices.
    """
    pairs = offer.structure
    if k > _LARGEST_SEARCH or not isinstance(pairs, Pairs):
        return None
    (films, film), (viewers, viewer) = renumbered(pairs.left), renumbered(pairs.right)
    missed = np.ones((len(films), len(viewers)))
    missed[film, viewer] = 1.0 - means
    if k == 1:
        return float(len(viewers) - missed.sum(axis=1).min())
    if k == 2:
        together = missed @ missed.T
        return float(
            len(viewers)
            - min(together[a, b] for a, b in combinations(range(len(films)), 2))
        )
    least = np.inf
    for first in range(len(films) - 2):
        together = (missed[first] * missed[first + 1 :]) @ missed[first + 1 :].T
        np.fill_diagonal(together, np.inf)
        least = min(least, float(together.min()))
    return float(len(viewers) - least)


@lru_cache(maxsize=4)
def _small_catalogue(least: int, least_stars: float) -> _Catalogue:
    origin = "MovieLens, ml-latest-small"
    return _of_ratings(load_movielens(), least, least_stars, origin, "from all years")


@lru_cache(maxsize=1)  # hundreds of MB
def _catalogue_25m(least: int, least_stars: float, first_year: int) -> _Catalogue:
    ratings = load_movielens_25m(first_year)
    return _of_ratings(
        ratings, least, least_stars, "MovieLens 25M", f"from {first_year} on"
    )


@lru_cache(maxsize=4)
def _synthetic_catalogue(least: int, least_stars: float) -> _Catalogue:
    ratings = _synthetic_ratings()
    found = _of_ratings(
        ratings, least, least_stars, "a made-up catalogue", "from all years"
    )
    return found._replace(ending=", synthetic data")


def _of_ratings(
    ratings: Ratings, least: int, least_stars: float, origin: str, years: str
) -> _Catalogue:
    """Films by viewers with at least ``least`` ratings, joined where one gave ``least_stars`` or more.

    Tastes are of all their ratings, also of those with fewer stars.
    """
    kept = np.bincount(ratings.viewer)[ratings.viewer] >= least
    film, viewer, stars = ratings.film[kept], ratings.viewer[kept], ratings.stars[kept]
    if not len(film):
        raise InputError(f"no viewer has given {least} ratings; lower least_ratings")
    taste = _tastes(film, viewer, stars, ratings.genres)
    joined = stars >= least_stars
    if not joined.any():
        raise InputError(
            f"no rating has {least_stars:g} stars or more; lower least_stars"
        )
    film, viewer = film[joined], viewer[joined]
    context = np.empty(len(film))
    for start in range(0, len(film), _BLOCK):
        block = slice(start, start + _BLOCK)
        genres = ratings.genres[film[block]]
        context[block] = (
            np.einsum("ij,ij->i", taste[viewer[block]], genres) / _MOST_GENRES
        )
    context = np.minimum(context, 1.0)
    order = np.lexsort((viewer, film))
    _, starts = np.unique(film[order], return_index=True)
    selection = f"{years} by viewers with at least {least}"
    if least_stars > 0.5:
        selection += f", of {least_stars:g} stars or more"
    films = np.append(starts, len(film))
    return _Catalogue(films, viewer[order], context[order], origin, selection)


def _tastes(film: Ints, viewer: Ints, stars: Floats, genres: Bools) -> Floats:
    """u of every viewer, (viewers, genres): the mean of the genres they rated, weighted by stars."""
    weights = np.bincount(viewer, stars)
    columns = [np.bincount(viewer, stars * marked[film]) for marked in genres.T]
    return np.stack(columns, axis=1) / np.maximum(weights, 1e-300)[:, None]


def _synthetic_ratings() -> Ratings:
    """As many films, viewers, ratings and genres as the small MovieLens set, with like tails."""
    rng, films, viewers, genres = stream(0, "synthetic-films", 0), 9000, 600, 20
    popular = 1.0 / (np.arange(films) + 20.0)
    popular /= popular.sum()
    eager = rng.lognormal(0.0, 1.1, viewers)
    counts = np.maximum(20, np.round(100_000 * eager / eager.sum())).astype(int)
    counts = np.minimum(counts, films // 3)
    film = np.concatenate(
        [rng.choice(films, size=count, replace=False, p=popular) for count in counts]
    )
    viewer = np.repeat(np.arange(viewers), counts)
    common = rng.dirichlet(np.full(genres, 0.6))
    table = np.zeros((films, genres), dtype=np.bool_)
    for each, count in enumerate(1 + np.minimum(rng.poisson(1.3, films), 9)):
        table[each, rng.choice(genres, size=count, replace=False, p=common)] = True
    stars = np.clip(np.round(2.0 * rng.normal(3.5, 1.0, len(film))) / 2.0, 0.5, 5.0)
    return Ratings(film, viewer, stars, table)
