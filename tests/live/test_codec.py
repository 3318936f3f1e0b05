"""The bytes that journals store and hash: journals of earlier versions depend on every one."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.core import Arms, Feedback
from superarm.core.serialization import to_json
from superarm.live.codec import (
    arms_from_bytes,
    decode_body,
    digest,
    encode_arms,
    encode_body,
    readable_json,
)
from superarm.live.event_keys import history_key, observed_key

HASH = "c866f158be39776f2a9456118aa3293bbc86d920dbcc8f4c8f9ee37c3bb8cd3e"


def test_the_text_of_a_body() -> None:
    body = {"z": [1, -0.0, 0.1], "a": {"ü": None, "b": True}}
    text = encode_body(body)
    assert text == '{"a":{"b":true,"\\u00fc":null},"z":[1,-0.0,0.1]}'
    assert decode_body(text, "event 1") == body
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_body({"reward": float("nan")})


def test_the_bytes_of_arms() -> None:
    features = np.array([[0.1, 0.2], [0.3, -0.0]])
    encoded = encode_arms(Arms(ids=["mocha", 7], features=features))
    assert encoded.hash == digest(encoded.data) == HASH
    arms = arms_from_bytes(encoded.data)
    assert list(arms.ids) == ["mocha", 7]
    np.testing.assert_array_equal(arms.features, features)
    # The layout in memory does not matter.
    columns_first = Arms(ids=["mocha", 7], features=np.asfortranarray(features))
    assert encode_arms(columns_first).data == encoded.data


def test_the_keys_of_rewards() -> None:
    feedback = Feedback(positions=np.array([2, 0]), rewards=np.array([0.5, 1.0]))
    assert observed_key("d", feedback, "mine") == "observation/d/mine"
    assert observed_key("d", feedback, None) == f"rewards/d/{digest(b'0,2')}"
    assert history_key("2025") == "history/2025"


def test_the_text_of_an_exported_action() -> None:
    action = {"size": 2, "arms": ["a", 7]}
    assert readable_json(to_json(action)) == '{"arms": ["a", 7], "size": 2}'
