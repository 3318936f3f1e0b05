"""Networks that were read once, cached beside their files.

Reading a network takes as long as all else that a route needs, and converting a map from OpenStreetMap
far longer. So the network of ``town.net.xml`` is cached in ``.town.net.xml.superarm.npz`` in the same
folder, and used as long as file, options and version are the same.

- *By content*: the key is the SHA-256 of the file, with the reader's options and the version of
  superarm. A file that changes while it is read is not cached.
- *Never trusted*: plain arrays without pickle, none larger than the cache's own file, which may have at
  most 100 times the size of the network's. They go through all checks of a network. Only a regular
  file is opened, and only one that belongs to the user or to the owner of the network. What is damaged,
  old or strange is ignored, and written anew.
- *Never in the way*: the cache is written completely or not at all; where it cannot be written, there
  is none.

``SUPERARM_CACHE=0`` in the environment, or ``read_network(…, cache=False)``, neither reads nor writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from superarm._version import __version__
from superarm.core.compressed import read_npz
from superarm.core.errors import InputError

from .network_arrays import pack_network, unpack_network, unpack_text
from .records import set_fields
from .road import RoadNetwork
from .trusted_files import open_trusted, write_whole

# Raise it when readers read differently, or arrays mean something else.
_FORMAT = 1
# Bytes of a network's file, 8 GiB, beyond which its content is not compared.
_LARGEST = 1 << 33
# A network of fewer edges is read in no time.
_LEAST_EDGES = 1000
_CHUNK = 1 << 20


def read_cached(
    path: Path,
    read: Callable[[], RoadNetwork],
    *,
    name: str,
    options: Mapping[str, Any],
    variant: str = "",
    least_edges: int = _LEAST_EDGES,
    enabled: bool | None = None,
) -> RoadNetwork:
    """Return the network in a file: from its cache, or else read and then cached.

    Args:
        path: The network's file.
        read: Reads the file.
        name: The network's name, which a cache does not hold.
        options: All that reading depends on beside the file, as JSON.
        variant: Part of the cache's name where one file is read in several ways.
        least_edges: Networks of fewer edges are not cached.
        enabled: Whether a cache is read and written; by default unless ``SUPERARM_CACHE`` is 0.
    """
    if enabled is None:
        enabled = os.environ.get("SUPERARM_CACHE", "1") != "0"
    if not enabled or not path.is_file() or path.stat().st_size > _LARGEST:
        return read()
    content = _digest(path)
    key_parts = {
        "format": _FORMAT,
        "superarm": __version__,
        "content": content,
        "options": dict(options),
    }
    key = json.dumps(key_parts, sort_keys=True)
    cache = cache_path(path, variant)
    cached_network = _read_cache(cache, path, key, name)
    if cached_network is not None:
        set_fields(cached_network, source=path)
        return cached_network
    network = read()
    set_fields(network, source=path)
    is_large = len(network.edge_ids) >= least_edges
    if is_large and os.access(path.parent, os.W_OK):
        # A full disk, or an id that is no text: then there is no cache.
        with suppress(OSError, ValueError):
            if _digest(path) == content:
                data = pack_network(network, key)
                write_whole(cache, data)
    return network


def cache_path(path: Path, variant: str = "") -> Path:
    """Return the file in which a network is cached.

    Args:
        path: The network's file.
        variant: Part of the name where one file is read in several ways.
    """
    suffix = f".{variant}" if variant else ""
    return path.with_name(f".{path.name}{suffix}.superarm.npz")


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _read_cache(cache: Path, path: Path, key: str, name: str) -> RoadNetwork | None:
    """Return the network that is cached for this key, if there is one."""
    try:
        with open_trusted(cache, path) as file:
            arrays = read_npz(file)
            if unpack_text(arrays, "key") != key:
                return None
            return unpack_network(arrays, name)
    except (InputError, OSError):
        return None
