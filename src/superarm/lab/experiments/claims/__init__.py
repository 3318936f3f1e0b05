"""A paper's claims about its experiments, as data, and whether a run confirms them.

A claim is a table in an experiment's TOML: its ``text``, the ``check`` by name, and the check's
parameters. A check turns a claim into *margins*: by how much it is true, one number per seed (seeds are
shared by all policies). A claim holds if the mean of every margin is decidedly above zero; it does not
hold if one is decidedly below zero; otherwise it is undecided.
:mod:`superarm.lab.results.verdicts` defines "decidedly": chance, skewness, seeds unlike these and
records that seeds share must be excluded. Fewer than four seeds decide nothing. Where a margin is zero
in every seed, but for rounding, the claim does not hold: a tie is not "below".

================  ==============================================================================
``tables``        the fields of a claim's table
``totals``        what a claim compares, one number per seed
``margins``       by how much a claim is true, and the checks within one setting
``sweeps``        the checks over the values of a swept parameter
``gaps``          the check ``widens``
``checks``        the checks by name, and which claims they can judge
``evidence``      the verdict on a claim in one place, with its numbers
``judging``       which claims a run can judge, and where
================  ==============================================================================

==================  ============================================================================
``below``           every ``policy`` has less than ``ratio`` (1) times the total of every ``versus``
``above``           … more than …
``between``         more than ``least`` and less than ``most`` times the total of ``versus``
``similar``         the totals differ by less than ``tolerance`` of the larger
``rises``           the total rises from each value of the swept number ``key`` to the next
``falls``           … falls …
``upward-trend``    the least-squares slope of the total over the ranks of ``key`` is above zero;
                    single steps may go down
``downward-trend``  … below zero; single steps may go up
``flat``            at every value of ``key`` the total is within ``tolerance`` of the mean over them
``alike``           between any two values of ``key``, texts or numbers, the totals differ by less
                    than ``tolerance`` of the larger
``steadier``        the total of every ``policy`` changes less over the values of ``key`` than that of
                    every ``versus``: the largest mean over the least, by the jackknife over seeds
``crosses``         below ``versus`` at the least value of ``key`` and above it at the greatest
``under``           the total of every ``policy`` is less than the number ``limit``
``over``            … more than …
``widens``          the gap between the running totals of ``versus`` and ``policy`` has an upward trend
                    over ten evenly spaced rounds: its least-squares slope is above zero
==================  ============================================================================

In any claim, ``metric`` (regret) names the total, or mean per round; ``seconds`` is the time of a
round. ``relative_to`` divides it by that of another policy; ``where`` picks the settings that the claim
is about, by a value or a list of them, and ``among`` the values of ``key``. ``of = "spread"`` compares
the seeds' distances from their median (Brown and Forsythe) in place of the totals. ``of = "swing"``
compares how far the mean over rounds 1 to t moves, up and down, while t goes from the middle of the run
to its end: little where a curve is steady.
``of = "growth"`` compares exponents: p where the running total grows like t^p over the last half of
the rounds, and with ``metric = "seconds"`` where the time of a round does. ``rounds = [first, last]``
restricts a claim to these rounds, both included; a shorter run does not judge it.
A claim about policies, settings or metrics that a run does not have is not judged; the summary lists it.
"""

from .checks import check_claim as check_claim
from .judging import judge as judge
from .judging import judge_checked as judge_checked
from .judging import not_judged as not_judged
from .margins import Margin as Margin
from .tables import policies_of as policies_of
from .verdict import Verdict as Verdict
from .verdict import Word as Word
