"""Cities that exist nowhere: seeded streets, rivers, hills and motorways of any size.

From plan to network: ``terrain`` (where it is high and where water flows), ``blocks`` (districts
and their cells), ``fabric`` (streets along the cells' borders), ``motorway`` (rings and ramps),
``assembly`` (junctions, heights, turns), ``generator`` (the steps in order).
"""

from .generator import generate_city as generate_city
from .terrain import CityPlan as CityPlan
from .terrain import plan_city as plan_city
