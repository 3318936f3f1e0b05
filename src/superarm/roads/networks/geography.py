"""From the map to the ellipsoid: the Universal Transverse Mercator projection, inverted; and back.

====================  ==============================================================
``a``, ``f``          semi-major axis in metres and flattening of WGS 84
``n``                 third flattening f/(2 − f), about 1/595
``A``                 rectifying radius: 2πA is the length of a meridian
``β``                 coefficients of Krüger's inverse series
``χ``                 conformal latitude; τ = tan φ, τ′ = tan χ
``ξ + iη``            normalised northing and easting
====================  ==============================================================

Krüger's series in n to the fourth order, as C. F. F. Karney gives them in "Transverse Mercator
with an accuracy of a few nanometers" (Journal of Geodesy 85, 2011), eq. 36: far below a
millimetre within a zone.

Places are looked up on Mercator's own map, λ + iψ with sinh ψ = τ′. It needs no zone, and is conformal
like UTM: a road keeps its shape from one map to the other, and is only turned and scaled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats
from superarm.core.errors import InputError

Points = NDArray[np.complex128]
COMPLEX = np.array([1.0, 1.0j])
"""Pairs (…, 2) times this are points; :func:`pairs` is the way back."""

_AXIS = 6_378_137.0
_FLATTENING = 1.0 / 298.257_223_563
_SCALE = 0.9996
_FALSE_EASTING = 500_000.0
_FALSE_NORTHING_SOUTH = 10_000_000.0
# Metres from the middle of a zone: 30°, five times as far as it is used.
_FARTHEST_EAST = 3_500_000.0
# Metres from the equator to a pole, and a little more.
_FARTHEST_NORTH = 10_002_000.0
# τ of τ′ by Newton's method: it doubles the digits, and begins with two.
_NEWTON_STEPS = 4

_n = _FLATTENING / (2.0 - _FLATTENING)
_ECCENTRICITY = np.sqrt(_FLATTENING * (2.0 - _FLATTENING))
_RADIUS = _AXIS / (1.0 + _n) * (1.0 + _n**2 / 4.0 + _n**4 / 64.0)  # A
_BETA = (  # eq. 36
    _n / 2.0 - 2.0 * _n**2 / 3.0 + 37.0 * _n**3 / 96.0 - _n**4 / 360.0,
    _n**2 / 48.0 + _n**3 / 15.0 - 437.0 * _n**4 / 1440.0,
    17.0 * _n**3 / 480.0 - 37.0 * _n**4 / 840.0,
    4397.0 * _n**4 / 161280.0,
)


def from_utm(east_north: Any, zone: int, *, south: bool = False) -> Floats:
    """Return longitude and latitude in degrees, (k, 2).

    Args:
        east_north: Eastings and northings in metres, (k, 2).
        zone: Zone of UTM, 1 to 60.
        south: Whether northings are those of the southern hemisphere.

    >>> from_utm([[500_000.0, 0.0]], zone=32).tolist()
    [[9.0, 0.0]]
    """
    places: Floats = np.asarray(east_north, dtype=np.float64)
    if not 1 <= zone <= 60:
        raise InputError(f"zone is {zone!r}; UTM has the zones 1 … 60")
    eastings, northings = places.T
    false_northing = _FALSE_NORTHING_SOUTH if south else 0.0
    east = eastings - _FALSE_EASTING
    north = northings - false_northing
    is_near = np.abs(east) <= _FARTHEST_EAST
    is_near &= np.abs(north) <= _FARTHEST_NORTH
    if not is_near.all():
        easting, northing = places[int(np.argmin(is_near))]
        raise InputError(f"easting {easting}, northing {northing} is outside UTM")
    zeta = (north + 1j * east) / (_SCALE * _RADIUS)  # ξ + iη
    sphere = zeta - _inverse_series(zeta)
    xi = sphere.real
    eta = sphere.imag
    sinh_eta = np.sinh(eta)
    cos_xi = np.cos(xi)
    conformal = np.sin(xi) / np.hypot(sinh_eta, cos_xi)  # τ′
    longitude = np.arctan2(sinh_eta, cos_xi)
    latitude = np.arctan(_tangent(conformal))
    middle = 6.0 * zone - 183.0  # of the zone
    east_degrees = middle + np.degrees(longitude)
    north_degrees = np.degrees(latitude)
    return np.stack([east_degrees, north_degrees], axis=1)


def _inverse_series(zeta: Points) -> Any:
    """Return Σ β_j sin(2jζ) of Krüger's inverse series."""
    series: Any = 0
    for order, beta in enumerate(_BETA, start=1):
        series = series + beta * np.sin(2.0 * order * zeta)
    return series


def pairs(points: Any) -> Floats:
    """Return real and imaginary parts, (…, 2)."""
    return np.stack([np.real(points), np.imag(points)], axis=-1)


def mercator(lon_lat: Any) -> Points:
    """Return λ + iψ in radians, (k,).

    Args:
        lon_lat: Longitudes and latitudes in degrees, (k, 2).

    >>> mercator([[180.0, 0.0]])
    array([3.14159265+0.j])
    """
    degrees = np.asarray(lon_lat, dtype=np.float64)
    longitude, latitude = np.radians(degrees).T
    conformal = _conformal(np.tan(latitude))  # τ′
    psi = np.arcsinh(conformal)
    places: Points = longitude + 1j * psi
    return places


def metres_per_radian(latitude: Any) -> Floats:
    """Return metres on Earth for a radian on Mercator's map, of small steps.

    Args:
        latitude: Degrees.
    """
    phi = np.radians(latitude)
    from_axis = _ECCENTRICITY * np.sin(phi)
    flattening = np.sqrt(1.0 - from_axis**2)
    metres: Floats = _AXIS * np.cos(phi) / flattening
    return metres


def great_circle(place: Any, other: Any) -> float:
    """Return metres between two places on a sphere.

    Args:
        place: Longitude and latitude in degrees.
        other: The same of the other place.

    >>> round(great_circle((0.0, 0.0), (0.0, 90.0)) / 1000.0)
    10019
    """
    east, north = np.radians(place)
    other_east, other_north = np.radians(other)
    # The haversine formula.
    half_east = (other_east - east) / 2.0
    half_north = (other_north - north) / 2.0
    east_sine = np.sin(half_east)
    north_sine = np.sin(half_north)
    shrinkage = np.cos(north) * np.cos(other_north)
    across = shrinkage * east_sine**2
    half_chord = np.sqrt(north_sine**2 + across)
    half_angle = np.arcsin(min(half_chord, 1.0))
    return float(2.0 * _AXIS * half_angle)


def _conformal(tangent: Floats) -> Floats:
    """Return τ′ of τ."""
    e = _ECCENTRICITY
    secant = np.hypot(1.0, tangent)
    sigma = np.sinh(e * np.arctanh(e * tangent / secant))
    conformal: Floats = tangent * np.hypot(1.0, sigma) - sigma * secant
    return conformal


def _tangent(conformal: Floats) -> Floats:
    """Return τ of τ′, the inverse of :func:`_conformal`."""
    below = 1.0 - _ECCENTRICITY**2
    tangent: Floats = conformal / below
    for _ in range(_NEWTON_STEPS):
        reached = _conformal(tangent)
        missing = conformal - reached
        slope = (1.0 + below * tangent**2) / (below * np.hypot(1.0, tangent))
        tangent = tangent + missing / np.hypot(1.0, reached) * slope
    return tangent
