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
_MOST_ROUNDS = 10**5
_MOST_DRAWS = 1000  # of a round
_LARGEST_SEARCH = 3  # films up to which the best set is found by trying all
_LEAST_RATINGS = {"small": 20, "25m": 200}
_FIRST_YEAR = 2016  # of the 25M edition: the paper's "after 2015"
_BLOCK = 2**20  # ratings whose contexts are computed at a time
_FEWEST_STARS = 0.5
# The size of the synthetic catalogue.
_SYNTHETIC_FILMS = 9000
_SYNTHETIC_VIEWERS = 600
_SYNTHETIC_GENRES = 20
_SYNTHETIC_RATINGS = 100_000


def chance_to_watch(contexts: Floats) -> Floats:
    """f(x) = 2/(1 + e^{−4x}) − 1, (n,).

    Args:
        contexts: (n, 1).
    """
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
        """The number of films."""
        return len(self.films) - 1

    def pairs_of(self, films: Ints) -> _Pairs:
        """All ratings of some films, film by film.

        Args:
            films: Numbers of the films.
        """
        lengths = np.diff(self.films)  # ratings of every film
        counts = lengths[films]
        ends = np.cumsum(counts)  # of the films' ratings among the pairs
        starts = ends - counts
        # From a position among the pairs to one in the catalogue.
        shifts = np.repeat(self.films[films] - starts, counts)
        ratings = shifts + np.arange(ends[-1])
        return _Pairs(
            film=np.repeat(films, counts),
            viewer=self.viewer[ratings],
            context=self.context[ratings],
        )


class _Pairs(NamedTuple):
    """Films and viewers of a round's arms."""

    film: Ints  # (n,)
    viewer: Ints  # (n,)
    context: Floats  # (n,)


@register("problem", "movies")
@dataclass(frozen=True, kw_only=True, eq=False)
class Movies(ChangingArms):
    """Films and viewers change every round; a viewer counts once, however many films reach them.

    Args:
        films: Mean of the Poisson number of films in a round.
        viewers: Mean of the Poisson number of viewers in a round.
        k: Number of films shown.
        oracle: Greedy coverage, or TIM+ with ε = 0.1 and ℓ = 1.
        least_ratings: Ratings that a viewer must have given; 200 in the 25M edition, as in the
            paper, else 20.
        least_stars: Stars from which a rating joins a film and a viewer; 0.5, the fewest, keeps
            them all.
        edition: Which MovieLens data: ml-latest-small, or 25M; auto takes 25M if you have it.
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
        self._check_parameters()
        catalogue = from_source(
            self.source, self._real_catalogue, self._synthetic_catalogue
        )
        if catalogue.size < most_arrivals(self.films):
            raise InputError(
                f"{catalogue.size} films are known, but up to {most_arrivals(self.films)} may arrive "
                "in a round; lower films, least_ratings or least_stars"
            )
        oracle: Oracle = GreedyCoverage(k=self.k)
        if self.oracle == "tim":
            oracle = TIM(k=self.k)
        store(self, _catalogue=catalogue, _streams=Streams(self.seed, "offer"))
        steps = range(1, self.horizon + 1)
        most_arms = max(len(self._pairs(step).film) for step in steps)
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

    def _check_parameters(self) -> None:
        k = as_count(self.k, "k")
        horizon = as_count(self.horizon, "horizon")
        films = as_count(self.films, "films", k + 1, 10**5)
        viewers = as_count(self.viewers, "viewers", 1, 10**6)
        least_stars = as_number(self.least_stars, "least_stars", _FEWEST_STARS, 5.0)
        store(
            self,
            k=k,
            horizon=horizon,
            films=films,
            viewers=viewers,
            least_stars=least_stars,
        )
        if self.least_ratings is not None:
            least_ratings = as_count(self.least_ratings, "least_ratings")
            store(self, least_ratings=least_ratings)
        if self.first_year is not None:
            first_year = as_count(self.first_year, "first_year", 1995, 2100)
            store(self, first_year=first_year)
        if self.horizon > _MOST_ROUNDS:
            raise InputError(
                f"horizon must be at most {_MOST_ROUNDS:,}, got {self.horizon}: all rounds are drawn "
                "beforehand, since the learner needs the largest number of pairs in any of them"
            )
        require_choice(self.oracle, "oracle", ("greedy", "tim"))

    def _least_ratings(self, edition: str) -> int:
        """Ratings that a viewer must have given in an edition."""
        if self.least_ratings is None:
            return _LEAST_RATINGS[edition]
        return self.least_ratings

    def _real_catalogue(self) -> _Catalogue:
        edition = edition_of(self.edition)
        least = self._least_ratings(edition)
        if edition == "25m":
            first_year = _FIRST_YEAR if self.first_year is None else self.first_year
            return _catalogue_25m(least, self.least_stars, first_year)
        if self.first_year is not None:
            raise InputError(
                "first_year needs edition 25m; the small edition is read for all years"
            )
        return _small_catalogue(least, self.least_stars)

    def _synthetic_catalogue(self) -> _Catalogue:
        """Like the small edition, for any edition."""
        least = self._least_ratings("small")
        return _synthetic_catalogue(least, self.least_stars)

    def _pairs(self, step: int) -> _Pairs:
        """Film, viewer and context of every arm, drawn until enough films have viewers."""
        rng = self._streams.at(step)
        for _ in range(_MOST_DRAWS):
            pairs = self._draw_pairs(rng)
            if len(np.unique(pairs.film)) > self.k:
                return pairs
        raise InputError(
            f"round {step} was drawn {_MOST_DRAWS:,} times, and never did more than k = {self.k} films "
            "have a viewer; raise viewers, or lower k"
        )

    def _draw_pairs(self, rng: Rng) -> _Pairs:
        catalogue = self._catalogue
        count = arrivals(rng, self.films, self.k)
        films = rng.choice(catalogue.size, size=count, replace=False)
        pairs = catalogue.pairs_of(films)
        candidates = np.unique(pairs.viewer)
        viewers = int(rng.poisson(self.viewers))
        if viewers >= len(candidates):
            return pairs
        audience = rng.choice(candidates, size=viewers, replace=False)
        present = np.isin(pairs.viewer, audience)
        return _Pairs(
            film=pairs.film[present],
            viewer=pairs.viewer[present],
            context=pairs.context[present],
        )

    def offer(self, step: int) -> Offer:
        film, viewer, context = self._pairs(step)
        films = film.tolist()
        viewers = viewer.tolist()
        ids = list(zip(films, viewers, strict=True))
        arms = Arms(ids=ids, features=context[:, None])
        structure = Pairs(left=film, right=viewer)
        return Offer(step=step, arms=arms, structure=structure)

    def means(self, offer: Offer) -> Floats:
        return chance_to_watch(offer.arms.features)

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        """Uniform numbers: an arm works where its number is below its chance."""
        return rng.random(len(offer.arms))

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        positions = decision.positions
        chances = self.means(offer)
        watched = noise[positions] < chances[positions]
        rewards = watched.astype(np.float64)
        return Feedback(positions=positions, rewards=rewards)

    def best(self, offer: Offer) -> Best:
        best = super().best(offer)
        chances = self.means(offer)
        optimum = best_coverage(chances, offer, self.k)
        return best._replace(optimum=optimum)


def best_coverage(means: Floats, offer: Offer, k: int) -> float | None:
    """The most viewers that any ``k`` films reach on average, by trying all.

    ``None`` if ``k`` is too large for that. With Q (films, viewers) the chance that a film does
    not reach a viewer, films a, b and c reach Σ (1 − Q_a Q_b Q_c) of them: for one a, a product
    of two matrices.

    Args:
        means: The chance of each arm that the viewer watches the film, (n,).
        offer: The offer, whose structure joins films and viewers.
        k: Number of films shown.
    """
    pairs = offer.structure
    if k > _LARGEST_SEARCH or not isinstance(pairs, Pairs):
        return None
    films, film = renumbered(pairs.left)
    viewers, viewer = renumbered(pairs.right)
    Q = np.ones((len(films), len(viewers)))
    Q[film, viewer] = 1.0 - means
    if k == 1:
        missed = Q.sum(axis=1).min()
    elif k == 2:
        QQ = Q @ Q.T
        two_films = combinations(range(len(films)), 2)
        missed = min(QQ[a, b] for a, b in two_films)
    else:
        missed = _fewest_missed_by_three(Q)
    return float(len(viewers) - missed)


def _fewest_missed_by_three(Q: Floats) -> float:
    """Min over films a < b < c of Σ Q_a Q_b Q_c, the viewers that they do not reach."""
    missed = np.inf
    for a in range(len(Q) - 2):
        later = Q[a + 1 :]
        QQQ = (Q[a] * later) @ later.T
        np.fill_diagonal(QQQ, np.inf)
        missed = min(missed, float(QQQ.min()))
    return missed


@lru_cache(maxsize=4)
def _small_catalogue(least: int, least_stars: float) -> _Catalogue:
    origin = "MovieLens, ml-latest-small"
    return _catalogue_of(load_movielens(), least, least_stars, origin, "from all years")


@lru_cache(maxsize=1)  # hundreds of MB
def _catalogue_25m(least: int, least_stars: float, first_year: int) -> _Catalogue:
    ratings = load_movielens_25m(first_year)
    years = f"from {first_year} on"
    return _catalogue_of(ratings, least, least_stars, "MovieLens 25M", years)


@lru_cache(maxsize=4)
def _synthetic_catalogue(least: int, least_stars: float) -> _Catalogue:
    ratings = _synthetic_ratings()
    origin = "a made-up catalogue"
    catalogue = _catalogue_of(ratings, least, least_stars, origin, "from all years")
    return catalogue._replace(ending=", synthetic data")


def _catalogue_of(
    ratings: Ratings, least: int, least_stars: float, origin: str, years: str
) -> _Catalogue:
    """Films joined with viewers who rated them.

    Args:
        ratings: All ratings.
        least: The least number of ratings of a viewer.
        least_stars: The fewest stars with which a rating joins film and viewer. A viewer's
            taste depends on all ratings, also on those with fewer stars.
        origin: Where the ratings come from, in words.
        years: The years of the ratings, in words.
    """
    counts = np.bincount(ratings.viewer)
    diligent = counts[ratings.viewer] >= least
    film = ratings.film[diligent]
    viewer = ratings.viewer[diligent]
    stars = ratings.stars[diligent]
    if not len(film):
        raise InputError(f"no viewer has given {least} ratings; lower least_ratings")
    taste = _tastes(film, viewer, stars, ratings.genres)
    joined = stars >= least_stars
    if not joined.any():
        raise InputError(
            f"no rating has {least_stars:g} stars or more; lower least_stars"
        )
    film = film[joined]
    viewer = viewer[joined]
    context = _contexts(film, viewer, taste, ratings.genres)
    order = np.lexsort((viewer, film))
    _, starts = np.unique(film[order], return_index=True)
    selection = f"{years} by viewers with at least {least}"
    if least_stars > _FEWEST_STARS:
        selection += f", of {least_stars:g} stars or more"
    return _Catalogue(
        films=np.append(starts, len(film)),
        viewer=viewer[order],
        context=context[order],
        origin=origin,
        selection=selection,
    )


def _contexts(film: Ints, viewer: Ints, taste: Floats, genres: Bools) -> Floats:
    """⟨u, g⟩/10 of every rating, at most 1."""
    contexts = np.empty(len(film))
    for start in range(0, len(film), _BLOCK):
        block = slice(start, start + _BLOCK)
        u = taste[viewer[block]]  # (block, genres)
        g = genres[film[block]]
        products = np.einsum("ij,ij->i", u, g)
        contexts[block] = products / _MOST_GENRES
    return np.minimum(contexts, 1.0)


def _tastes(film: Ints, viewer: Ints, stars: Floats, genres: Bools) -> Floats:
    """u of every viewer, (viewers, genres): the mean genres they rated, weighted by stars."""
    weights = np.bincount(viewer, stars)
    weights = np.maximum(weights, 1e-300)
    columns = []
    for has_genre in genres.T:  # of every film
        weighted = stars * has_genre[film]
        columns.append(np.bincount(viewer, weighted))
    return np.stack(columns, axis=1) / weights[:, None]


def _synthetic_ratings() -> Ratings:
    """As many films, viewers, ratings and genres as the small MovieLens set, with like tails."""
    rng = stream(0, "synthetic-films", 0)
    films = _SYNTHETIC_FILMS
    popularity = 1.0 / (np.arange(films) + 20.0)
    popularity /= popularity.sum()
    eagerness = rng.lognormal(0.0, 1.1, _SYNTHETIC_VIEWERS)
    expected = _SYNTHETIC_RATINGS * eagerness / eagerness.sum()
    counts = np.maximum(20, np.round(expected)).astype(int)  # ratings of each viewer
    counts = np.minimum(counts, films // 3)
    by_viewer = [
        rng.choice(films, size=count, replace=False, p=popularity) for count in counts
    ]
    film = np.concatenate(by_viewer)
    viewer = np.repeat(np.arange(_SYNTHETIC_VIEWERS), counts)
    genres = _synthetic_genres(rng)
    opinions = rng.normal(3.5, 1.0, len(film))
    stars = np.round(2.0 * opinions) / 2.0  # in halves
    stars = np.clip(stars, _FEWEST_STARS, 5.0)
    return Ratings(film, viewer, stars, genres)


def _synthetic_genres(rng: Rng) -> Bools:
    """One to ten genres for every film, (films, genres)."""
    genres = _SYNTHETIC_GENRES
    frequencies = rng.dirichlet(np.full(genres, 0.6))
    table = np.zeros((_SYNTHETIC_FILMS, genres), dtype=np.bool_)
    further = rng.poisson(1.3, _SYNTHETIC_FILMS)
    counts = 1 + np.minimum(further, 9)
    for film, count in enumerate(counts):
        chosen = rng.choice(genres, size=count, replace=False, p=frequencies)
        table[film, chosen] = True
    return table
