"""When the scales of a fleet are fitted: often at first, then every so many trips."""

from __future__ import annotations

from .forms import FormName

_FIRST_FIT = 4  # trips before the scales are first fitted
# Of a log, by which it grows at most before a fit in the sparse form.
_FIT_SHARE = 1 / 16


def is_time_to_fit(trips: int, refit: int, form: FormName) -> bool:
    """Whether scales are fitted after so many trips: 4, 8, 16, …, then every ``refit``.

    Args:
        trips: How many trips were learned.
        refit: After how many trips scales are fitted; 0 never fits them.
        form: The form of the posterior.
    """
    if not refit:
        return False
    if trips >= refit:
        return trips % trips_between_fits(trips, refit, form) == 0
    is_power_of_two = trips & (trips - 1) == 0
    return trips >= _FIRST_FIT and is_power_of_two


def trips_between_fits(trips: int, refit: int, form: FormName) -> int:
    """``refit``; in the sparse form doubled as long as that is at most a share of the log.

    Each fit has everything computed anew, in time that grows with the log.

    Args:
        trips: How many trips were learned.
        refit: After how many trips scales are fitted.
        form: The form of the posterior.
    """
    between = refit
    if form == "sparse":
        while 2 * between <= _FIT_SHARE * trips:
            between *= 2
    return between
