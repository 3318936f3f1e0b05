"""Arrays in numpy's file format, read without Python's parser."""

from __future__ import annotations

import ast
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from superarm.core.errors import InputError
from superarm.core.npy_headers import read_array, read_array_header


def saved(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version, allow_pickle=False)
    return file.getvalue()


DTYPES = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?"),
    arrays.complex_number_dtypes(endianness="?"),
    arrays.unicode_string_dtypes(endianness="?", min_len=1),
)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@given(
    arrays.arrays(DTYPES, SHAPES),
    st.sampled_from([(1, 0), (2, 0)]),
    st.booleans(),
)
def test_arrays_are_read_as_numpy_reads_them(
    array: Any, version: tuple[int, int], is_transposed: bool
) -> None:
    data = saved(array.T if is_transposed else array, version)
    expected = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    found = read_array(io.BytesIO(data))
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.flags.f_contiguous == expected.flags.f_contiguous
    assert found.flags.writeable
    assert found.tobytes() == expected.tobytes()


def test_python_s_parser_is_never_called(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(np.arange(6.0).reshape(2, 3))

    def parse(*_: Any, **__: Any) -> Any:
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(ast, "parse", parse)
    with pytest.raises(SystemError):
        np.lib.format.read_array(io.BytesIO(data))
    assert read_array(io.BytesIO(data)).sum() == 15.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("'<f8'", "'|O8'", "header that is not valid"),
        ("'<f8'", "'<f3'", "an array of '<f3'"),
        ("'<f8'", "'<f0'", "header that is not valid"),
        ("(2, 3)", "(2,-3)", "header that is not valid"),
        ("(2, 3)", "__import__", "header that is not valid"),
        ("False", "Maybe", "header that is not valid"),
        ("NUMPY\x01", "NUMPY\x03", "version"),
        ("(2, 3)", "(2, 4)", "cut off"),
    ],
)
def test_other_headers_are_refused(old: str, new: str, message: str) -> None:
    data = saved(np.arange(6.0).reshape(2, 3))
    changed = data.replace(old.encode(), new.encode())
    assert changed != data
    with pytest.raises(InputError, match=message):
        read_array(io.BytesIO(changed))


def test_a_header_that_ends_early_is_refused() -> None:
    data = saved(np.arange(6.0))
    for length in range(8, 40):
        with pytest.raises(InputError):
            read_array_header(io.BytesIO(data[:length]))
