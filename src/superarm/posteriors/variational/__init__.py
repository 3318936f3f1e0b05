"""Long histories, summed up at inducing arms."""

from .posterior import SparseVariational as SparseVariational
