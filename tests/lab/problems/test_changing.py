"""Codependency, channels and films: offers, truths, rewards and optima by hand and by brute force."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Floats, Offer, registry
from superarm.core.errors import FileError, InputError, MissingDataError
from superarm.core.graphs import Pairs
from superarm.core.streams import Streams
from superarm.kernels import FeatureMap, Kernel, Matern, SquaredExponential
from superarm.lab.problems import Channels, Codependency, Movies
from superarm.lab.problems import movies as movies_module
from superarm.lab.problems.changing import arrivals, draws_of, most_arrivals
from superarm.lab.problems.movies import _catalogue_of, best_coverage, chance_to_watch
from superarm.lab.problems.sources import settle_source
from superarm.oracles import TIM, CallableOracle, GreedyCoverage, Matching
from superarm.rewards import Coverage


def codependency(**changes: Any) -> Codependency:
    options: dict[str, Any] = {"seed": 1, "horizon": 20, "pool": 400, "arrivals": 20}
    return Codependency(**{**options, **changes})


# --- joint draws ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [SquaredExponential(lengthscale=0.7), Matern(nu=0.5, lengthscale=0.3)]
)
def test_joint_draws_have_the_kernels_covariance(kernel: Any) -> None:
    """The mean of z zᵀ over 4,000 draws; five standard deviations of each entry."""
    contexts = np.random.default_rng(0).random((4, 3))
    rng = np.random.default_rng(1)
    drawn = draws_of(kernel, contexts)
    draws = np.array([drawn(rng.standard_normal(len(contexts))) for _ in range(4000)])
    expected = kernel(contexts)
    spread = np.sqrt(
        (np.outer(np.diag(expected), np.diag(expected)) + expected**2) / 4000
    )
    assert (np.abs(draws.T @ draws / 4000 - expected) <= 5.0 * spread).all()


def test_points_may_be_fewer_than_features() -> None:
    """Eigenvalues that are all rounding, some of them below zero, count for nothing."""
    points = np.repeat(np.random.default_rng(0).random((10, 2)), 12, axis=0)
    kernel = SquaredExponential(lengthscale=0.7)
    drawn = draws_of(kernel, points)
    root = np.array([drawn(unit) for unit in np.eye(len(points))])
    # Up to 1e-14 of the largest eigenvalue is truncated, and rounding adds about as much.
    tolerance = 2e-14 * np.trace(kernel(points))
    np.testing.assert_allclose(root.T @ root, kernel(points), rtol=0.0, atol=tolerance)


def test_draws_do_not_depend_on_how_features_are_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other processors flip the signs of features, and may drop one more of the smallest."""
    points = np.random.default_rng(0).random((300, 2))
    normals = np.random.default_rng(1).standard_normal(300)
    kernel = SquaredExponential(lengthscale=0.7)
    drawn = draws_of(kernel, points)
    root = np.array([drawn(unit) for unit in np.eye(300)])
    np.testing.assert_allclose(root @ root.T, kernel(points), rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(root, root.T, rtol=0.0, atol=1e-12)
    features = Kernel.features

    def rounded_otherwise(
        self: Kernel, *arguments: Any, **more: Any
    ) -> FeatureMap | None:
        feature_map = features(self, *arguments, **more)
        assert feature_map is not None
        order = np.delete(np.arange(feature_map.rank), feature_map.suprema.argmin())[
            ::-1
        ]
        signs = np.where(order % 2, 1.0, -1.0)[:, None]
        evaluate = feature_map.evaluate
        return dataclasses.replace(
            feature_map,
            suprema=feature_map.suprema[order],
            evaluate=lambda columns: signs * evaluate(columns)[order],
        )

    monkeypatch.setattr(Kernel, "features", rounded_otherwise)
    other_draws = draws_of(kernel, points)(normals)
    # Entries of A differ by at most the tolerance of features, and so its root by √(n · tolerance).
    limit = np.sqrt(300 * 1e-13) * np.linalg.norm(normals)
    np.testing.assert_allclose(other_draws, drawn(normals), rtol=0.0, atol=limit)


@pytest.mark.parametrize(("squared", "power"), [(True, 2), (False, 1)])
def test_the_truth_is_a_draw_with_the_stated_kernel(squared: bool, power: int) -> None:
    """With l = 0.2 the kernel is exp(−‖x − x′‖^power/(2·0.04)): its root is what was multiplied."""
    world = codependency(lengthscale=0.2, squared=squared, pool=200)
    distance = np.linalg.norm(world.contexts[:, None] - world.contexts[None], axis=2)
    covariance = np.exp(-(distance**power) / (2.0 * 0.2**2))
    # zᵀK⁻¹z of a draw is χ² with 200 degrees of freedom: mean 200, variance 400.
    weighed = float(
        world.truth @ np.linalg.solve(covariance + 1e-9 * np.eye(200), world.truth)
    )
    assert abs(weighed - 200.0) <= 5.0 * 20.0


def test_another_kernel_would_not_pass() -> None:
    world = codependency(lengthscale=0.2, pool=200)
    distance = np.linalg.norm(world.contexts[:, None] - world.contexts[None], axis=2)
    wrong = np.exp(-(distance**2) / (2.0 * 0.1**2))
    weighed = float(
        world.truth @ np.linalg.solve(wrong + 1e-9 * np.eye(200), world.truth)
    )
    assert abs(weighed - 200.0) > 5.0 * 20.0


# --- codependency --------------------------------------------------------------------------


def test_rounds_offer_different_contexts_of_the_pool() -> None:
    world = codependency()
    sizes = []
    for step in range(1, 21):
        offer = world.offer(step)
        numbers = np.array(offer.arms.ids)
        assert len(set(numbers.tolist())) == len(numbers)
        np.testing.assert_array_equal(offer.arms.features, world.contexts[numbers])
        np.testing.assert_array_equal(world.means(offer), world.truth[numbers])
        assert 5 < len(numbers) <= 43  # 20 + 5√20
        sizes.append(len(numbers))
    assert len(set(sizes)) > 5
    # A short run is the beginning of a long one, and seeds differ.
    longer, other = codependency(horizon=300), codependency(seed=2)
    assert longer.offer(7).arms.ids == world.offer(7).arms.ids
    assert not np.array_equal(other.truth, world.truth)


def test_the_learner_assumes_lengthscale_1() -> None:
    for lengthscale in (0.05, 0.5):
        model = codependency(lengthscale=lengthscale).model
        assert registry.spec_of(model.kernel) == {
            **registry.spec_of(SquaredExponential())
        }
        assert model.noise_variance == pytest.approx(0.01)
        assert model.most_arms == 43


def test_value_and_best_by_hand() -> None:
    world, offer = codependency(k=2), codependency(k=2).offer(3)
    means = world.means(offer)
    decision = Decision(step=3, action=None, positions=np.array([4, 0]))
    assert world.value(offer, decision) == pytest.approx(means[0] + means[4])
    assert world.best(offer).value == pytest.approx(np.sort(means)[-2:].sum())
    noise = world.noise(offer, np.random.default_rng(0))
    feedback = world.feedback(offer, decision, noise)
    np.testing.assert_allclose(feedback.rewards, (means + noise)[[4, 0]])
    assert world.metrics(offer, decision, feedback) == {
        "reward": pytest.approx(feedback.rewards.sum())
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": 30}, "up to 43 different arms"),
        ({"lengthscale": 0.0}, "lengthscale"),
        ({"arrivals": 5}, "arrivals"),
        ({"pool": 20_000}, "pool"),
        ({"squared": 1}, "squared"),
        ({"noise_std": -1.0}, "noise_std"),
        (
            {"noise_std": 1e200},
            "noise_std must be a number from 1e-50 to 1e.50, got 1e.200",
        ),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        codependency(**options)


# --- channels ------------------------------------------------------------------------------


def test_channels_by_hand() -> None:
    world = Channels(seed=0, horizon=9, channels=3, users=5)
    assert world.model.oracle == Matching(pairs=3)
    barred, offered = 0, 0
    for step in range(1, 40):
        offer = world.offer(step)
        pairs = offer.structure
        assert isinstance(pairs, Pairs)
        users = pairs.left.max() + 1
        offered += len(pairs)
        barred += 3 * users - len(pairs)
        features = offer.arms.features
        assert (features >= 0.0).all()
        assert (features <= 1.0).all()
        for channel in range(3):  # how busy a channel is does not depend on the user
            assert len(np.unique(features[pairs.right == channel, 1])) <= 1
        x = features[0]
        expected = (1 - x[0] ** 2) * (1 - 0.8 * x[1]) * math.sqrt(x[2])
        assert world.means(offer)[0] == pytest.approx(expected)
    share = barred / (barred + offered)
    assert abs(share - 0.3) <= 5.0 * math.sqrt(0.3 * 0.7 / (barred + offered))


def test_no_channel_serves_two_users() -> None:
    world = Channels(seed=0, horizon=9)
    policy = registry.build("policy", {"name": "oclok-ucb"}, model=world.model)
    offer = world.offer(1)
    chosen = policy.decide(offer, np.random.default_rng(0)).positions
    assert isinstance(offer.structure, Pairs)
    for side in (offer.structure.left, offer.structure.right):
        assert len(set(side[chosen].tolist())) == len(chosen) == 5


# --- films ---------------------------------------------------------------------------------


def movies(**changes: Any) -> Movies:
    options: dict[str, Any] = {
        "seed": 1,
        "horizon": 5,
        "source": "synthetic",
        "films": 12,
        "viewers": 30,
    }
    return Movies(**{**options, **changes})


def test_contexts_by_hand() -> None:
    """Two viewers: one gave film 0 five stars and film 1 two, the other saw only film 1."""
    from superarm.lab.datasets import Ratings

    genres = np.array([[True, False, True], [False, True, True]])
    ratings = Ratings(
        np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([5.0, 2.0, 4.0]), genres
    )
    catalogue = _catalogue_of(ratings, 1, 0.5, "by hand", "ever")
    taste = np.array([5.0, 2.0, 7.0]) / 7.0
    np.testing.assert_array_equal(catalogue.films, [0, 1, 3])
    np.testing.assert_array_equal(catalogue.viewer, [0, 0, 1])
    np.testing.assert_allclose(
        catalogue.context,
        [(taste[0] + taste[2]) / 10, (taste[1] + taste[2]) / 10, 2.0 / 10],
    )
    assert (
        len(_catalogue_of(ratings, 2, 0.5, "by hand", "ever").viewer) == 2
    )  # the second viewer gave one rating
    with pytest.raises(InputError, match="lower least_ratings"):
        _catalogue_of(ratings, 3, 0.5, "by hand", "ever")
    # With three stars or more, the first viewer's second rating joins nothing, but counts as taste.
    loved = _catalogue_of(ratings, 1, 3.0, "by hand", "ever")
    np.testing.assert_array_equal(loved.films, [0, 1, 2])
    np.testing.assert_array_equal(loved.viewer, [0, 1])
    # Sums of three terms in any order: two additions, each off by half an ulp at most, on both sides.
    rounding = 2.0 * np.finfo(np.float64).eps
    np.testing.assert_allclose(
        loved.context, catalogue.context[[0, 2]], rtol=rounding, atol=0.0
    )
    with pytest.raises(
        InputError, match="no rating has 5 stars or more; lower least_stars"
    ):
        _catalogue_of(ratings._replace(stars=np.ones(3)), 1, 5.0, "by hand", "ever")


def test_chances_by_hand() -> None:
    np.testing.assert_allclose(
        chance_to_watch(np.array([[0.0], [0.25], [1.0]])),
        [0.0, math.tanh(0.5), math.tanh(2.0)],
    )


def test_offers_join_films_and_viewers() -> None:
    world = movies()
    for step in range(1, 6):
        offer = world.offer(step)
        pairs = offer.structure
        assert isinstance(pairs, Pairs)
        assert offer.arms.ids == tuple(
            zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
        )
        assert 3 < len(np.unique(pairs.left)) <= 30
        assert len(np.unique(pairs.right)) <= 60
        assert len(pairs) <= (world.model.most_arms or 0)
    counts = [len(world.offer(step).arms) for step in range(1, 6)]
    assert world.model.most_arms == max(counts)


def test_outcomes_are_watched_or_not_with_the_right_chance() -> None:
    world = movies()
    offer = world.offer(1)
    everything = np.arange(len(offer.arms))
    decision, rng = (
        Decision(step=1, action=None, positions=everything),
        np.random.default_rng(0),
    )
    draws = np.array(
        [
            world.feedback(offer, decision, world.noise(offer, rng)).rewards
            for _ in range(2000)
        ]
    )
    assert set(np.unique(draws)) <= {0.0, 1.0}
    means = world.means(offer)
    assert (
        np.abs(draws.mean(axis=0) - means) <= 5.5 * np.sqrt(means * (1 - means) / 2000)
    ).all()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_optimum_is_the_best_of_all_sets(k: int) -> None:
    world = movies(films=8, k=k)
    offer = world.offer(2)
    means, pairs = world.means(offer), offer.structure
    assert isinstance(pairs, Pairs)

    def reached(films: Any) -> float:
        positions = np.flatnonzero(np.isin(pairs.left, films))
        return Coverage().worth(means[positions], positions, pairs)

    best = max(
        reached(films) for films in combinations(np.unique(pairs.left).tolist(), k)
    )
    assert best_coverage(means, offer, k) == pytest.approx(best)
    optimum = world.best(offer)
    assert optimum.optimum == pytest.approx(best)
    assert optimum.value <= best + 1e-9
    assert best_coverage(means, offer, 4) is None


def test_either_oracle() -> None:
    assert movies(oracle="greedy").model.oracle == GreedyCoverage(k=3)
    assert movies().model.oracle == TIM(k=3, epsilon=0.1, ell=1.0)
    with pytest.raises(InputError, match="oracle"):
        movies(oracle="best")
    with pytest.raises(InputError, match="films are known"):
        movies(films=9000)


def test_nearly_impossible_rounds_are_rejected() -> None:
    with pytest.raises(
        InputError,
        match="never did more than k = 70 films have a viewer; raise viewers",
    ):
        movies(films=75, viewers=2, k=70)
    with pytest.raises(
        InputError, match="horizon must be at most 100,000, got 1000000000"
    ):
        movies(horizon=10**9)


@pytest.mark.parametrize("make", [codependency, movies, Channels])
def test_numbers_of_numpy_become_plain(make: Any) -> None:
    parameters = {
        "arrivals": 20,
        "films": 12,
        "users": 20,
        "k": 3,
        "channels": 3,
        "viewers": 30,
        "pool": 300,
    }
    fields = getattr(make, "__dataclass_fields__", None) or make().__dataclass_fields__
    known = {name: np.int64(parameters[name]) for name in parameters if name in fields}
    world = make(seed=1, horizon=np.int64(5), **known)
    assert all(type(getattr(world, name)) is int for name in ("horizon", *known))


# --- the data ------------------------------------------------------------------------------


def _write(folder: Path, ratings: str, films: str) -> None:
    (folder / "movielens").mkdir(exist_ok=True)
    import lzma

    for name, text in (("ratings", ratings), ("movies", films)):
        (folder / "movielens" / f"{name}.csv.xz").write_bytes(
            lzma.compress(text.encode())
        )


FILMS = 'movieId,title,genres\n7,"Film, the",Drama|Noir\n9,Other,Comedy\n'


def test_ratings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from superarm.lab.datasets import load_movielens

    monkeypatch.setenv("SUPERARM_DATA", str(tmp_path))
    _write(
        tmp_path,
        "userId,movieId,rating,timestamp\n3,9,4.5,1\n3,7,0.5,2\n1,9,5.0,3\n",
        FILMS,
    )
    film, viewer, stars, genres = load_movielens()
    assert (film.tolist(), viewer.tolist(), stars.tolist()) == (
        [1, 0, 1],
        [0, 0, 1],
        [4.5, 0.5, 5.0],
    )
    assert genres.tolist() == [
        [False, True, True],
        [True, False, False],
    ]  # Comedy, Drama, Noir


@pytest.mark.parametrize(
    ("ratings", "message"),
    [
        (
            "userId,movieId,rating\n3,9,4\n1,9,4\n3,9,5\n",
            "line 4: viewer 3 has rated film 9 already",
        ),
        ("userId,movieId,rating\n3,8,4.5\n", "line 2: movies.csv.xz has no film 8"),
        ("userId,movieId,rating\n3,9,six\n", "line 2: could not convert"),
        (
            "userId,movieId,rating\n3,9,6\n",
            "line 2: stars must be above 0 and at most 5, got 6",
        ),
        (
            "userId,movieId,rating\n3,9,0\n",
            "line 2: stars must be above 0 and at most 5, got 0",
        ),
        ("userId,movieId,rating\n3,9\n", "line 2: 2 of 3 entries"),
        ("userId,movieId\n3,9\n", "the header has no rating"),
        ("userId,movieId,rating\n", "no ratings"),
    ],
)
def test_damaged_ratings(
    ratings: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from superarm.lab.datasets import load_movielens

    monkeypatch.setenv("SUPERARM_DATA", str(tmp_path))
    _write(tmp_path, ratings, FILMS)
    with pytest.raises(FileError, match=message):
        load_movielens()


def test_films_that_come_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from superarm.lab.datasets import load_movielens

    monkeypatch.setenv("SUPERARM_DATA", str(tmp_path))
    _write(tmp_path, "userId,movieId,rating\n3,9,4\n", FILMS + "7,Again,Noir\n")
    with pytest.raises(
        FileError, match=r"movies\.csv\.xz, line 4: film 7 is listed twice"
    ):
        load_movielens()


def test_both_files_come_from_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders with only one of the files are skipped, by the loader and when resolving "auto"."""
    from superarm.core import data_files
    from superarm.lab import datasets

    half, complete, remainder = (tmp_path / name for name in ("half", "whole", "rest"))
    for folder, only in ((half, "ratings"), (complete, None), (remainder, "movies")):
        folder.mkdir()
        _write(folder, "userId,movieId,rating\n3,9,4\n", FILMS)
        for other in {"ratings", "movies"} - {only} if only else ():
            (folder / "movielens" / f"{other}.csv.xz").unlink()
    monkeypatch.setattr(data_files, "search_path", lambda: [half, complete, remainder])
    for ending in ("", "movies.csv.xz"):
        assert data_files.find("movielens", ending=ending).is_relative_to(complete)
    assert settle_source({"name": "movies"})["source"] == "real"
    monkeypatch.setattr(data_files, "search_path", lambda: [half, remainder])
    with pytest.raises(
        MissingDataError, match=r"movielens was not found in .*movies\.csv\.xz"
    ):
        datasets.load_movielens()
    assert settle_source({"name": "movies"})["source"] == "synthetic"
    assert "synthetic" in movies(source="auto").interpretations["data"]


# --- MovieLens 25M -------------------------------------------------------------------------

EARLY, LATE = (
    1_451_606_399,
    1_451_606_400,
)  # the last second of 2015 and the first of 2016, UTC
HEADER = "userId,movieId,rating,timestamp\n"


def _write_25m(folder: Path, ratings: str, films: str = FILMS) -> None:
    (folder / "ml-25m").mkdir(exist_ok=True)
    (folder / "ml-25m" / "ratings.csv").write_text(ratings, encoding="utf-8")
    (folder / "ml-25m" / "movies.csv").write_text(films, encoding="utf-8")


@pytest.fixture
def only_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the only one searched for data."""
    from superarm.core import data_files

    monkeypatch.setattr(data_files, "search_path", lambda: [tmp_path])
    movies_module._catalogue_25m.cache_clear()
    return tmp_path


def test_ratings_of_25m_are_read_by_year(
    only_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from superarm.lab import datasets

    lines = [f"3,9,4.5,{LATE}", f"3,7,0.5,{EARLY}", f"1,9,5.0,{LATE + 9}", "8,7,3.0,0"]
    _write_25m(only_here, HEADER + "\n".join(lines) + "\n")
    for block in (1, 2, 500_000):
        monkeypatch.setattr(datasets.movielens_25m, "_BLOCK", block)
        film, viewer, stars, genres = datasets.load_movielens_25m(2016)
        assert film.tolist() == [1, 1]
        assert viewer.tolist() == [1, 0]  # numbered by userId
        assert stars.tolist() == [4.5, 5.0]
        assert genres.tolist() == [[False, True, True], [True, False, False]]
        assert len(datasets.load_movielens_25m(2015).film) == 3
        assert len(datasets.load_movielens_25m(1970).film) == 4


def test_films_of_25m_are_in_the_order_of_their_file(only_here: Path) -> None:
    from superarm.lab import datasets

    films = "movieId,title,genres\n9,A,Drama\n2,B,Comedy\n7,C,Drama|Comedy\n"
    lines = [f"3,7,4.5,{LATE}", f"3,9,0.5,{LATE}", f"1,2,5.0,{LATE}"]
    _write_25m(only_here, HEADER + "\n".join(lines) + "\n", films)
    ratings = datasets.load_movielens_25m(2016)
    assert ratings.film.tolist() == [2, 0, 1]
    assert ratings.genres.tolist() == [
        [False, True],
        [True, False],
        [True, True],
    ]  # Comedy, Drama


@pytest.mark.parametrize(
    ("ratings", "message"),
    [
        (f"3,9,4,{LATE}\n3,9,5,{LATE}\n", "viewer 3 has rated a film twice"),
        (f"3,8,4.5,{LATE}\n", r"movies\.csv has no film 8"),
        (f"3,99,4.5,{LATE}\n", r"movies\.csv has no film 99"),
        (
            f"3,9,six,{LATE}\n",
            r"ratings\.csv, line 2: userId,.* must be four numbers, got '3,9,six,",
        ),
        (
            f"3,9,4,{LATE}\n3,7,6,{LATE}\n",
            "line 3: stars must be above 0 and at most 5, got 6",
        ),
        (f"3,9,nan,{LATE}\n", "line 2: stars must be above 0 and at most 5, got nan"),
        ("3,9,4\n", "line 2: "),
        (f"3,9,4,{LATE}\n" * 6 + f"1,9\n2,9,4,{LATE}\n", "line 8: .* got '1,9'"),
        (f"99999999999,9,4,{LATE}\n", "line 2: .* got '99999999999,9,4,"),
        (f"3,9,4,{LATE}\n\n1,9,4,{LATE}\n", "line 3: it is empty; download it again"),
        (f"3,9,4,{LATE}\n1,9,4,15", "line 3: cut off, as no new line follows"),
        (f"3,9,4,{EARLY}\n", "no ratings from 2016 on; lower first_year"),
        ("", "no ratings from 2016 on"),
    ],
)
def test_damaged_ratings_of_25m(ratings: str, message: str, only_here: Path) -> None:
    from superarm.lab.datasets import load_movielens_25m

    _write_25m(only_here, HEADER + ratings)
    with pytest.raises(FileError, match=message):
        load_movielens_25m(2016)


def test_marks_and_line_ends_of_other_systems(only_here: Path) -> None:
    """A byte order mark, as spreadsheets write it, and CRLF."""
    from superarm.lab.datasets import load_movielens_25m

    plain = [HEADER + f"3,9,4.5,{LATE}\n1,7,3,{LATE}\n", FILMS]
    _write_25m(only_here, *plain)
    expected = load_movielens_25m(2016)
    _write_25m(only_here, *(f"\ufeff{text}".replace("\n", "\r\n") for text in plain))
    for column, wanted in zip(load_movielens_25m(2016), expected, strict=True):
        np.testing.assert_array_equal(column, wanted)


def test_damaged_heads_and_films_of_25m(only_here: Path) -> None:
    from superarm.lab.datasets import load_movielens_25m

    _write_25m(only_here, "userId,movieId,rating\n")
    with pytest.raises(
        FileError, match=r"line 1: the header must be userId,movieId,rating,timestamp"
    ):
        load_movielens_25m()
    _write_25m(only_here, HEADER, "movieId,title,genres\nseven,Film,Drama\n")
    with pytest.raises(FileError, match="a movieId is not a whole number"):
        load_movielens_25m()
    _write_25m(only_here, HEADER, f"movieId,title,genres\n{10**20},Film,Drama\n")
    with pytest.raises(FileError, match="too large"):
        load_movielens_25m()
    _write_25m(only_here, HEADER, "movieId,title,genres\n7,Film,Drama\n07,Film,Drama\n")
    with pytest.raises(FileError, match="a film is there twice"):
        load_movielens_25m()
    _write_25m(only_here, HEADER, "movieId,title,genres\n")
    with pytest.raises(FileError, match="no films"):
        load_movielens_25m()
    with pytest.raises(
        InputError, match="first_year must lie between 1970 and 2100, got 3"
    ):
        load_movielens_25m(3)


def _many_ratings(viewers: int, per_viewer: int, films: int) -> tuple[str, str]:
    """The same films for every second viewer; half of the ratings are from before 2016."""
    lines = [
        f"{viewer},{1 + (viewer + film) % films},{0.5 * (1 + film % 10)},{LATE if film % 2 else EARLY}"
        for viewer in range(1, viewers + 1)
        for film in range(per_viewer)
    ]
    names = [
        f'{film},"Film, the {film}",{"Drama|War" if film % 3 else "Comedy"}'
        for film in range(1, films + 1)
    ]
    return HEADER + "\n".join(lines) + "\n", "movieId,title,genres\n" + "\n".join(
        names
    ) + "\n"


def test_the_25m_edition_has_the_papers_filter(only_here: Path) -> None:
    """Viewers have 420 ratings, 210 of them from 2016 on; viewers with fewer than 200 are dropped."""
    _write_25m(only_here, *_many_ratings(6, 420, 450))
    world = movies(source="auto", films=10, viewers=4)
    assert "MovieLens 25M: " in world.interpretations["data"]
    assert (
        "1,260 ratings from 2016 on by viewers with at least 200"
        in world.interpretations["data"]
    )
    with pytest.raises(InputError, match="no viewer has given 211 ratings"):
        movies(source="auto", films=10, viewers=4, least_ratings=211)
    earlier = movies(
        source="auto", films=10, viewers=4, first_year=2015, least_ratings=420
    )
    assert (
        "2,520 ratings from 2015 on by viewers with at least 420"
        in earlier.interpretations["data"]
    )


def test_editions_are_settled(only_here: Path) -> None:
    """ "auto" is 25M where it is found, then the small set, then synthetic data."""
    assert settle_source({"name": "movies"}) == {
        "name": "movies",
        "source": "synthetic",
    }
    _write(only_here, "userId,movieId,rating\n3,9,4\n", FILMS)
    small = {"name": "movies", "source": "real", "edition": "small"}
    assert settle_source({"name": "movies"}) == small
    _write_25m(only_here, *_many_ratings(6, 420, 450))
    assert settle_source({"name": "movies"}) == {**small, "edition": "25m"}
    assert settle_source({"name": "movies", "edition": "small"}) == small
    synthetic = {"name": "movies", "source": "synthetic"}
    assert settle_source(synthetic) == synthetic
    with pytest.raises(InputError, match="edition is 'large'; choose"):
        movies(edition="large", source="real")


def test_a_missing_edition_is_named_with_its_command(only_here: Path) -> None:
    with pytest.raises(
        MissingDataError, match=r"movielens-25m was not found in .*then run: curl"
    ):
        movies(edition="25m", source="real")
    with pytest.raises(InputError, match="first_year needs edition 25m"):
        movies(edition="small", source="real", first_year=2016)


def test_swept_editions_are_named_in_settings(only_here: Path) -> None:
    from superarm.lab.experiments import Experiment, Plan

    _write_25m(only_here, *_many_ratings(6, 420, 450))
    spec: dict[str, Any] = {
        "id": "mine",
        "rounds": 3,
        "seeds": 1,
        "policies": {"random": {}},
    }
    problem = {"name": "movies", "films": 10, "viewers": 4}
    experiment = Experiment.from_mapping({**spec, "problem": problem}, "here")
    plan = Plan.make(experiment, out=only_here / "out")
    assert plan.experiment.problem["edition"] == "25m"


# --- stars ---------------------------------------------------------------------------------


def test_ratings_with_few_stars_join_no_film(only_here: Path) -> None:
    """Tastes are of all ratings: contexts of the pairs that stay are as before."""
    everything = movies_module._synthetic_catalogue(20, 0.5)
    loved = movies_module._synthetic_catalogue(20, 4.5)
    assert 0 < len(loved.viewer) < len(everything.viewer)

    def contexts(catalogue: Any) -> list[float]:
        return sorted(set(catalogue.context.tolist()))

    assert set(contexts(loved)) <= set(contexts(everything))
    world = movies(least_stars=4.5)
    assert ", of 4.5 stars or more" in world.interpretations["data"]
    assert "stars or more" not in movies().interpretations["data"]
    with pytest.raises(InputError, match="least_stars"):
        movies(least_stars=5.5)


def test_synthetic_films_are_labelled(tmp_path: Path) -> None:
    """The suffix by which reports and claims recognise synthetic data."""
    assert (
        movies(source="synthetic").interpretations["data"].endswith(", synthetic data")
    )


def test_truncated_ratings_are_a_file_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from superarm.cli.commands import superarm

    monkeypatch.setenv("SUPERARM_DATA", str(tmp_path))
    _write(tmp_path, "userId,movieId,rating\n3,9,4\n3", FILMS)
    with pytest.raises(SystemExit) as ended:
        superarm(
            [
                "run",
                "combinatorial/movies",
                "--rounds",
                "2",
                "--out",
                str(tmp_path / "out"),
            ]
        )
    assert ended.value.code == 1
    assert "ratings.csv.xz, line 3: 1 of 3 entries" in capsys.readouterr().err


def test_offer_structures_reach_the_reward() -> None:
    """A viewer whom two films reach counts once."""
    pairs = Pairs(left=np.array([0, 1]), right=np.array([5, 5]))
    offer = Offer(step=1, arms=Arms.numbered(np.array([[1.0], [1.0]])), structure=pairs)
    world, p = movies(), math.tanh(2.0)
    decision = Decision(step=1, action=None, positions=np.array([0, 1]))
    assert world.value(offer, decision) == pytest.approx(1.0 - (1.0 - p) ** 2)
    both: Floats = np.array([1.0, 1.0])
    feedback = world.feedback(offer, decision, both * 0.0)
    assert world.metrics(offer, decision, feedback) == {"reward": 1.0}


def test_ratio_to_zero_is_not_drawn(tmp_path: Path) -> None:
    """With a viewer a round no film is watched at first; warnings are errors here."""
    from superarm.cli.commands import superarm

    size = "--rounds 4 --seeds 5 --jobs 1 --set viewers=1 --set oracle=greedy --set source=synthetic"
    with pytest.raises(SystemExit) as ended:
        superarm(
            [
                "run",
                "combinatorial/movies",
                *size.split(),
                "--quiet",
                "--out",
                str(tmp_path / "out"),
            ]
        )
    assert ended.value.code == 0


# --- information given to the learner, and arrivals ----------------------------------------


@pytest.mark.parametrize(
    ("world", "noise", "bound", "dimension"),
    [
        (codependency(noise_std=0.25), 0.0625, 0.25, 3),
        (Channels(seed=0, horizon=20, noise_std=0.25), 0.0625, 0.25, 3),
        (movies(), 0.01, None, 1),
    ],
    ids=["codependency", "channels", "movies"],
)
def test_information_given_to_the_learner(
    world: Any, noise: float, bound: float | None, dimension: int
) -> None:
    model = world.model
    assert registry.spec_of(model.kernel) == registry.spec_of(
        SquaredExponential(lengthscale=1.0, variance=1.0)
    )
    assert (model.noise_variance, model.noise_bound, model.horizon) == (
        noise,
        bound,
        world.horizon,
    )
    assert model.gain == {"name": "squared-exponential", "dimension": dimension}


class Numbers:
    """Poisson numbers that are known before."""

    def __init__(self, *numbers: int) -> None:
        self.left = list(numbers)

    def poisson(self, mean: float) -> int:
        return self.left.pop(0)


def test_arrivals_outside_their_limits_are_redrawn() -> None:
    """Above 5, and at most ⌈20 + 5√20⌉ = 43."""
    assert most_arrivals(20) == 43
    assert most_arrivals(100) == 150
    assert arrivals(Numbers(5, 44, 6, 7), 20, 5) == 6  # type: ignore[arg-type]
    assert arrivals(Numbers(3, 90, 43), 20, 5) == 43  # type: ignore[arg-type]


def test_benchmark_redraws_every_round() -> None:
    world = codependency(k=1)

    def one(
        desirability: Floats, structure: object, chance: np.random.Generator
    ) -> Any:
        return [int(chance.integers(len(desirability)))]

    oracle = CallableOracle(function=one, deterministic=False)
    object.__setattr__(world, "model", replace(world.model, oracle=oracle))
    for step in range(1, 9):
        offer = world.offer(step)
        chosen = Streams(1, "benchmark").at(step).integers(len(offer.arms))
        assert world.best(offer).value == world.means(offer)[chosen]


def test_channels_and_users_arrive_as_configured() -> None:
    """Users are uniform on a disc, so that their squared distance is uniform: mean ½, variance 1/12."""
    world = Channels(seed=0, horizon=200, channels=1, users=20, barred=0.0)
    assert world.model.most_arms == 1 * 43
    assert Channels(seed=0, horizon=9).model.most_arms == 5 * 43
    squares = np.concatenate(
        [world.offer(step).arms.features[:, 0] ** 2 for step in range(1, 201)]
    )
    assert abs(squares.mean() - 0.5) <= 5.0 * math.sqrt(1.0 / 12.0 / len(squares))
    few = Channels(seed=0, horizon=200, channels=1, users=2, barred=0.95)
    assert min(len(few.offer(step).arms) for step in range(1, 201)) == 1


def test_contexts_end_at_1() -> None:
    """A viewer of one film of 8 genres, and another of one of 12: 8/10 and no more than 1."""
    from superarm.lab.datasets import Ratings

    genres = np.arange(20) < np.array([[8], [12]])
    ratings = Ratings(np.array([0, 1]), np.array([0, 1]), np.array([5.0, 5.0]), genres)
    np.testing.assert_allclose(
        _catalogue_of(ratings, 1, 0.5, "by hand", "ever").context, [0.8, 1.0]
    )


def test_more_films_than_are_shown_have_a_viewer() -> None:
    world = movies(films=5, viewers=1, k=1, horizon=60)
    counts = [
        len(set(world.offer(step).structure.left.tolist())) for step in range(1, 61)
    ]  # type: ignore[attr-defined]
    assert min(counts) == 2


def test_the_best_films_may_be_the_last() -> None:
    """Film 0 reaches no viewer, the other three reach one viewer each with chance tanh 2."""
    pairs = Pairs(left=np.arange(4), right=np.arange(4))
    offer = Offer(
        step=1,
        arms=Arms.numbered(np.array([[0.0], [1.0], [1.0], [1.0]])),
        structure=pairs,
    )
    assert best_coverage(movies().means(offer), offer, 3) == pytest.approx(
        3.0 * math.tanh(2.0)
    )
