"""The examples run unchanged and show what they claim."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", EXAMPLES / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_accounting_for_movement_pays() -> None:
    regrets = load("moving").main(rounds=60)
    assert regrets["counts the cost of moving"] < regrets["ignores it"]


def test_a_server_that_walks_comes_near_the_optimum() -> None:
    paid = load("regions").main(days=5, trees=10)
    total = {name: cost.service + cost.movement for name, cost in paid.items()}
    assert total["optimum"] <= total["walks"] < total["chases"] < total["stays"]
    assert paid["stays"].movement == 0.0
    assert paid["chases"].service == min(cost.service for cost in paid.values())


def test_forgetting_pays_where_rewards_drift() -> None:
    regrets = load("drifting").main(rounds=120)
    assert regrets["forgets"] < 0.5 * regrets["remembers"]


def test_counting_pending_arms_pays() -> None:
    regrets = load("late").main(rounds=40, seeds=2)
    assert regrets["counts what is pending"] < regrets["does not"]


def test_learning_reaches_more_than_is_promised() -> None:
    regrets = load("covering").main(rounds=40)
    assert regrets["oclok-ucb"] < 0.0 < regrets["random"]


def test_policy_from_json_resumes_after_loading() -> None:
    chosen, chosen_after_loading = load("json_policy").main(rounds=10)
    assert chosen == chosen_after_loading
    assert len(chosen) == 3


def test_own_data_go_from_a_fit_to_good_menus() -> None:
    menus = load("own_data").main()
    assert [len(menu) for menu in menus.values()] == [3, 3, 3]
    assert all(name.startswith(day) for day, menu in menus.items() for name in menu)


def test_a_live_bandit_continues_after_a_restart() -> None:
    example = load("live_bandit")
    first_day, second_day = example.main()
    appeals = [example.appeal(article) for article in example.ARTICLES]
    at_random = sum(appeals) / len(appeals)
    best = sum(sorted(appeals)[-3:]) / 3
    assert at_random < first_day < second_day <= best
