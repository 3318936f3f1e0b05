"""Every setting of every shipped experiment, and every claim with its numbers, as literals.

A number that changes in a TOML, or a default that a TOML leaves to the code, changes what is run or
what is claimed: it must be changed here, too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import superarm
from superarm.core.registry import find, names, parameters_of

ROOT = Path(superarm.__file__).parent / "lab" / "experiments"
PROSE = {"id", "title", "paper", "figure"}
PAPER_002 = """
rounds 30000
policies igp-ucb: delta=0.1
policies gp-ucb: delta=0.1
policies gp-ts: delta=0.1
policies gp-ei: xi=0.01
policies gp-pi: xi=0.01
policies kernel-ucb: delta=0.1
policies random:
"""
FROM_A_PROCESS = """
seeds 25
chart band=std
claim below: policy=igp-ucb versus=gp-ucb ratio=0.1
claim below: policy=igp-ucb versus=gp-ucb,gp-ts,gp-ei,gp-pi
claim below: policy=gp-ts versus=gp-ucb
claim below: policy=gp-ts versus=gp-ei,gp-pi ratio=3.0
claim similar: policy=gp-ei versus=gp-pi tolerance=0.25
"""
STANDARD = """
seeds 25
claim below: policy=gp-ei,gp-pi versus=igp-ucb,gp-ucb,gp-ts
claim below: policy=igp-ucb versus=gp-ei,gp-pi ratio=3.0
claim below: policy=gp-ts versus=gp-ei,gp-pi ratio=3.0
claim similar: policy=gp-ei versus=gp-pi tolerance=0.25
"""
MISMATCH = """
rounds 200
seeds 200
problem name=drifting-function
problem epsilon=0.01
policies tv-gp-ucb:
policies gp-ucb-static: policy=composed rule=(name=ucb schedule=(name=logarithmic))
policies random:
policies genie:
derived name=average_regret metric=regret per_round=True
chart band=std
"""
PANELS = (
    ("energy", 4.0),
    ("service_cost", 4.0),
    ("movement_cost", 4.0),
    ("movement_cost", 1.0),
)
WIND_CURVES = ",".join(f"(metric={metric} where=(rho={rho}))" for metric, rho in PANELS)
SIX_HOURS = "told=(drift=(name=temporal epsilon=0.2))"
NO_TERMS = ",".join(["0.0001"] * 5)
WITHOUT_TERMS = f"(name=roads fleet={NO_TERMS} vehicle={NO_TERMS})"
EXPERIMENTS = {
    "movement/routes": """
rounds 200
seeds 10
problem name=navigation
problem network=city
problem edges=1000
problem switch_cost=5
sweep switch_cost=1,5,20,80
policies gp-ts: policy=route-ts
policies gp-ts-penalised: policy=route-ts penalty=1.0
policies gp-ts-tenth: policy=route-ts penalty=0.1
policies prior:
policies benchmark:
claim below: metric=route_changes policy=gp-ts-penalised,gp-ts-tenth versus=gp-ts
claim below: metric=total_cost policy=gp-ts-penalised versus=gp-ts
claim below: metric=total_cost policy=gp-ts-tenth versus=gp-ts
claim below: metric=true_energy policy=gp-ts-penalised versus=gp-ts ratio=1.05
claim below: metric=true_energy policy=gp-ts-tenth versus=gp-ts ratio=1.05
claim below: metric=total_cost policy=gp-ts-tenth versus=gp-ts-penalised where=(switch_cost=5,20,80)
claim below: metric=total_cost policy=gp-ts-tenth versus=prior
claim downward-trend: metric=route_changes policy=gp-ts-penalised,gp-ts-tenth key=switch_cost
""",
    "movement/synthetic": """
rounds 800
seeds 5
problem name=movement-field
sweep rho=0.05,0.1,0.2,0.5,1.0,2.0,5.0
policies gp-md: trees=8
policies cgp-lcb:
policies stationary:
policies minc-known:
policies md-known: trees=8
policies offline:
claim below: metric=total_cost policy=gp-md versus=cgp-lcb
claim similar: metric=total_cost policy=gp-md versus=md-known tolerance=0.25
claim below: metric=total_cost policy=md-known versus=gp-md,cgp-lcb,stationary,minc-known
claim similar: metric=total_cost policy=stationary versus=gp-md tolerance=0.25 where=(rho=0.05,0.1)
claim upward-trend: metric=total_cost policy=stationary relative_to=gp-md key=rho
claim above: metric=total_cost policy=minc-known,cgp-lcb versus=gp-md where=(rho=0.05,0.1,0.2,0.5,1.0)
claim downward-trend: metric=total_cost policy=minc-known,cgp-lcb relative_to=gp-md key=rho
claim similar: metric=total_cost policy=gp-md versus=cgp-lcb tolerance=0.1 where=(rho=2.0,5.0)
claim crosses: metric=total_cost policy=gp-md versus=cgp-lcb key=rho
chart curves=(metric=total_cost where=(rho=0.5)),(metric=total_cost where=(rho=5.0))
""",
    "movement/sizes": """
rounds 800
seeds 10
problem name=movement-field
problem rho=1.0
problem alpha=theorem-1
sweep side=5,10,20,30
policies gp-md: trees=8
policies md-known: trees=8
policies cgp-lcb:
claim under: metric=approximate_regret policy=gp-md limit=0.0
claim under: policy=gp-md of=growth limit=1.0
claim under: policy=md-known of=growth limit=1.0
claim flat: metric=total_cost policy=gp-md relative_to=md-known key=side tolerance=0.1
claim flat: policy=gp-md key=side tolerance=0.25
""",
    "movement/wind-warm": """
rounds 960
seeds 5
problem name=wind
sweep rho=1.0,4.0,16.0
policies gp-md: trees=8
policies gp-md-warm: policy=gp-md first_episode=step trees=8
policies gp-md-step: policy=gp-md update=step trees=8
policies cgp-lcb:
policies stationary:
policies md-known: trees=8
claim similar: metric=movement_cost policy=gp-md versus=stationary tolerance=1e-09 rounds=1,24
claim below: metric=service_cost policy=gp-md-warm versus=gp-md ratio=0.8 rounds=1,24
claim above: metric=energy policy=gp-md-warm versus=gp-md
""",
    "movement/wind": f"""
chart tree=True
chart curves={WIND_CURVES}
rounds 960
seeds 5
problem name=wind
sweep rho=0.5,1.0,2.0,4.0,8.0,16.0
policies gp-md: trees=8
policies cgp-lcb:
policies stationary:
policies minc-known:
policies md-known: trees=8
policies offline:
derived name=mean_energy metric=energy per_round=True
derived name=energy_ratio metric=energy versus=offline
claim above: metric=energy policy=gp-md versus=cgp-lcb
claim crosses: metric=energy policy=cgp-lcb versus=gp-md key=rho
claim upward-trend: metric=energy policy=minc-known relative_to=md-known key=rho
claim upward-trend: metric=energy policy=cgp-lcb relative_to=gp-md key=rho
claim above: metric=energy policy=gp-md versus=cgp-lcb,stationary where=(rho=4.0)
claim below: metric=service_cost policy=gp-md,cgp-lcb versus=stationary where=(rho=4.0)
claim below: metric=service_cost policy=minc-known versus=stationary ratio=1e-09 where=(rho=4.0)
claim rises: metric=movement_cost policy=gp-md key=rho among=1.0,4.0
claim flat: metric=movement_cost policy=gp-md key=rho among=1.0,4.0 tolerance=0.333
claim above: metric=energy policy=md-known versus=gp-md
claim above: metric=energy policy=minc-known versus=cgp-lcb
""",
    "movement/wind-lidar": """
extends movement/wind
problem profile=lidar
""",
    "movement/wind-hourly": f"""
rounds 960
seeds 5
problem name=wind
problem readings=hourly
sweep rho=1.0,4.0,16.0
policies gp-md-drifting: policy=gp-md update=step trees=8 posterior=drifting {SIX_HOURS}
policies gp-md-step: policy=gp-md update=step trees=8
policies gp-md: trees=8
policies cgp-lcb:
policies stationary:
policies minc-known:
policies md-known: trees=8
policies offline:
derived name=energy_ratio metric=energy versus=offline
claim above: metric=energy policy=gp-md-drifting versus=gp-md-step
claim above: metric=energy policy=gp-md-step versus=gp-md
claim above: metric=energy policy=gp-md versus=cgp-lcb
claim above: metric=energy policy=gp-md-drifting versus=cgp-lcb
""",
    "timevarying/functions": """
rounds 200
seeds 1
problem name=drifting-function
problem dimension=1
problem side=126
problem nu=1.5
problem epsilon=0.01
sweep kernel=squared-exponential,matern
policies tv-gp-ucb:
policies gp-ucb-static: policy=tv-gp-ucb epsilon=0.0
policies random:
chart truth=functions
""",
    "timevarying/matched-se": """
rounds 500
seeds 200
problem name=drifting-function
sweep epsilon=0.001,0.01,0.03
policies tv-gp-ucb:
policies r-gp-ucb:
policies gp-ucb-static: policy=tv-gp-ucb epsilon=0.0
policies random:
policies genie:
on_request tv-gp-ucb-cholesky: policy=tv-gp-ucb form=cholesky
derived name=average_regret metric=regret per_round=True
claim below: policy=tv-gp-ucb versus=r-gp-ucb
claim below: of=swing policy=tv-gp-ucb versus=r-gp-ucb
claim below: policy=tv-gp-ucb versus=gp-ucb-static
claim below: policy=r-gp-ucb versus=gp-ucb-static
claim below: policy=genie versus=tv-gp-ucb,r-gp-ucb,gp-ucb-static,random
claim under: metric=seconds of=growth policy=tv-gp-ucb limit=2.0
claim under: metric=seconds of=growth policy=r-gp-ucb limit=0.5
claim below: metric=seconds policy=r-gp-ucb versus=tv-gp-ucb
""",
    "timevarying/matched-matern": """
extends timevarying/matched-se
problem kernel=matern
""",
    "timevarying/mismatch-epsilon": MISMATCH
    + """
sweep assumed_epsilon=0.0,0.001,0.003,0.005,0.01,0.02,0.03,0.05,0.1
chart marks=(the true ε=0.01)
claim flat: policy=tv-gp-ucb key=assumed_epsilon among=0.003,0.005,0.01,0.02,0.03 tolerance=0.25
claim rises: policy=tv-gp-ucb key=assumed_epsilon among=0.01,0.02,0.03,0.05,0.1
claim flat: policy=tv-gp-ucb key=assumed_epsilon among=0.01,0.1 tolerance=0.333
claim flat: policy=tv-gp-ucb key=assumed_epsilon among=0.005,0.01 tolerance=0.05
claim falls: policy=tv-gp-ucb key=assumed_epsilon among=0.0,0.001,0.003,0.005
claim similar: policy=tv-gp-ucb versus=gp-ucb-static where=(assumed_epsilon=0.0) tolerance=0.05
claim falls: policy=tv-gp-ucb key=assumed_epsilon among=0.0,0.001
claim falls: policy=tv-gp-ucb key=assumed_epsilon among=0.0,0.1
""",
    "timevarying/mismatch-block": MISMATCH
    + """
sweep block=5,10,20,30,40,60,80,100,150,200
chart marks=(N of section 5.1=38)
policies r-gp-ucb:
claim falls: policy=r-gp-ucb key=block among=5,10,20,30,40
claim flat: policy=r-gp-ucb key=block among=40,60,80,100,150,200 tolerance=0.25
claim rises: of=spread policy=r-gp-ucb key=block
claim rises: of=spread policy=r-gp-ucb key=block among=40,60,80,100,150,200
claim similar: policy=r-gp-ucb versus=gp-ucb-static where=(block=200) tolerance=0.05
claim below: policy=tv-gp-ucb versus=r-gp-ucb
""",
    "timevarying/slates": """
rounds 300
seeds 40
problem name=drifting-function
problem side=10
problem k=5
problem epsilon=0.03
policies tv-gp-ucb:
policies gp-ts: scaled=False posterior=drifting
policies gp-bucb: posterior=drifting
policies r-gp-ucb:
policies gp-ucb-static: policy=tv-gp-ucb epsilon=0.0
policies gp-ts-static: policy=gp-ts scaled=False
policies gp-bucb-static: policy=gp-bucb
policies random:
policies genie:
derived name=average_regret metric=regret per_round=True
claim below: policy=tv-gp-ucb versus=gp-ucb-static,r-gp-ucb
claim below: policy=gp-ts versus=gp-ts-static
claim below: policy=gp-bucb versus=gp-bucb-static
claim below: policy=tv-gp-ucb,gp-ts,gp-bucb versus=random ratio=0.5
claim below: policy=genie versus=tv-gp-ucb,gp-ts,gp-bucb,r-gp-ucb,random
""",
    "timevarying/temperature": """
rounds 288
seeds 52
problem name=temperature-series
policies tv-gp-ucb: c1=0.8 c2=0.4
policies r-gp-ucb: block=learned c1=0.8 c2=0.4
policies gp-ucb-static: policy=tv-gp-ucb epsilon=0.0 c1=0.8 c2=0.4
policies rexp3:
policies random:
chart truth=series
derived name=average_regret metric=regret per_round=True
claim below: policy=tv-gp-ucb versus=r-gp-ucb
claim below: policy=tv-gp-ucb,r-gp-ucb versus=gp-ucb-static
claim between: policy=gp-ucb-static versus=random least=0.8 most=1.0
claim similar: policy=rexp3 versus=gp-ucb-static tolerance=0.25
claim below: policy=gp-ucb-static versus=random ratio=0.5 rounds=1,20
claim below: policy=gp-ucb-static versus=tv-gp-ucb ratio=1.25 rounds=1,20
claim between: policy=gp-ucb-static versus=random least=0.8 most=1.0 rounds=145,288
claim widens: policy=tv-gp-ucb versus=r-gp-ucb
""",
    "timevarying/navigation": """
rounds 480
seeds 10
problem name=navigation
problem network=city
problem edges=400
problem rush_hours=4.0
policies gp-ts-periodic: policy=route-ts posterior=drifting
policies gp-ts-drift: policy=route-ts posterior=drifting told=(drift=(name=temporal epsilon=0.056))
policies gp-ts-resetting: policy=route-ts wrapped=(name=resetting block=24)
policies gp-ts-static: policy=route-ts
policies prior:
policies fastest: policy=known-cost cost=travel_time
claim below: policy=gp-ts-periodic versus=gp-ts-static
claim below: policy=gp-ts-drift versus=gp-ts-static
claim below: policy=gp-ts-drift versus=gp-ts-resetting
claim below: metric=true_energy policy=gp-ts-periodic versus=gp-ts-static
claim below: metric=true_energy policy=gp-ts-periodic versus=prior
""",
    "timevarying/traffic": """
rounds 60
seeds 20
problem name=traffic-series
sweep day=6,7
policies tv-gp-ucb: c1=0.2 c2=0.4
policies gp-ucb-static: policy=tv-gp-ucb epsilon=0.0 c1=0.2 c2=0.4
policies rexp3:
policies random:
policies r-gp-ucb: block=learned c1=0.2 c2=0.4
chart truth=series
derived name=average_regret metric=regret per_round=True
claim below: policy=tv-gp-ucb versus=gp-ucb-static
claim below: policy=gp-ucb-static versus=random ratio=0.5
claim above: policy=r-gp-ucb versus=gp-ucb-static
""",
    "combinatorial/codependency": """
rounds 300
seeds 5
horizons \
10,20,30,40,50,60,70,80,90,100,110,120,130,140,150,160,170,180,190,200,210,220,230,240,250,260,270,280,290
rerun acc-ucb,cc-mab
problem name=codependency
sweep lengthscale=0.01,0.05,0.1,0.5,1.0
policies oclok-ucb: delta=0.05
policies soclok-ucb-100: policy=soclok-ucb inducing=100
policies soclok-ucb-50: policy=soclok-ucb inducing=50
policies soclok-ucb-20: policy=soclok-ucb inducing=20
policies acc-ucb:
policies cc-mab:
policies random:
policies benchmark:
on_request oclok-ucb-stepwise: policy=oclok-ucb stepwise=True
on_request oclok-ucb-cholesky: policy=oclok-ucb form=cholesky
derived name=reward_ratio metric=reward versus=benchmark
chart band=std
derived name=mean_reward metric=reward per_round=True
claim below: metric=reward \
policy=oclok-ucb,soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,acc-ucb,cc-mab versus=benchmark \
ratio=0.2 where=(lengthscale=0.01)
claim downward-trend: relative_to=random \
policy=oclok-ucb,soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,acc-ucb,cc-mab key=lengthscale
claim below: policy=oclok-ucb,soclok-ucb-100,soclok-ucb-50,soclok-ucb-20 versus=random ratio=0.2 \
where=(lengthscale=1.0)
claim above: policy=acc-ucb,cc-mab versus=random ratio=0.2 where=(lengthscale=1.0)
claim above: policy=soclok-ucb-20 versus=oclok-ucb,soclok-ucb-50,soclok-ucb-100
claim similar: metric=reward policy=soclok-ucb-50,soclok-ucb-100 versus=oclok-ucb tolerance=0.05 \
where=(lengthscale=1.0)
claim below: policy=oclok-ucb versus=random ratio=0.05 where=(lengthscale=0.5)
claim below: policy=oclok-ucb versus=random ratio=0.05 where=(lengthscale=1.0)
claim above: policy=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20 versus=random ratio=0.05 \
where=(lengthscale=0.5)
claim above: policy=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20 versus=random ratio=0.05 \
where=(lengthscale=1.0)
claim falls: relative_to=random policy=oclok-ucb key=lengthscale among=0.5,1.0
claim rises: relative_to=random policy=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20 key=lengthscale \
among=0.5,1.0
claim between: metric=reward policy=soclok-ucb-100 versus=oclok-ucb least=0.925 most=0.975 \
where=(lengthscale=1.0)
claim between: metric=reward policy=soclok-ucb-100 versus=oclok-ucb least=0.98 most=1.0 \
where=(lengthscale=0.5)
""",
    "combinatorial/crowdsourcing": """
rounds 250
seeds 5
horizons 50,100,150,200
rerun acc-ucb,cc-mab
problem name=crowdsourcing
policies oclok-ucb: delta=0.05
policies oclok-ucb-cholesky: policy=oclok-ucb form=cholesky
policies soclok-ucb-100: policy=soclok-ucb inducing=100
policies soclok-ucb-50: policy=soclok-ucb inducing=50
policies soclok-ucb-20: policy=soclok-ucb inducing=20
policies soclok-ucb-10: policy=soclok-ucb inducing=10
policies acc-ucb:
policies cc-mab:
policies random:
policies benchmark:
on_request oclok-ucb-stepwise: policy=oclok-ucb stepwise=True
chart band=std
derived name=reward_ratio metric=reward versus=benchmark
derived name=mean_reward metric=reward per_round=True
claim above: metric=reward policy=oclok-ucb versus=benchmark ratio=0.95
claim similar: metric=reward policy=soclok-ucb-100 versus=oclok-ucb tolerance=0.05
claim above: metric=reward policy=oclok-ucb versus=soclok-ucb-100
claim above: metric=reward policy=soclok-ucb-100 versus=soclok-ucb-50
claim above: metric=reward policy=soclok-ucb-50 versus=soclok-ucb-20
claim above: metric=reward policy=soclok-ucb-20 versus=soclok-ucb-10
claim similar: metric=reward policy=acc-ucb versus=cc-mab tolerance=0.1
claim similar: metric=reward policy=soclok-ucb-10 versus=acc-ucb,cc-mab tolerance=0.1
claim between: metric=reward policy=soclok-ucb-20 versus=acc-ucb,cc-mab least=1.2 most=1.4
claim above: metric=reward policy=oclok-ucb,soclok-ucb-100,soclok-ucb-50 versus=acc-ucb,cc-mab \
ratio=1.2
claim between: metric=reward policy=random versus=benchmark least=0.4 most=0.6
claim similar: metric=reward policy=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,soclok-ucb-10 \
versus=oclok-ucb tolerance=0.05
claim between: metric=seconds policy=oclok-ucb \
versus=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,soclok-ucb-10 least=3.5 most=5.5
claim above: metric=seconds policy=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,soclok-ucb-10 \
versus=acc-ucb,cc-mab
claim similar: metric=seconds policy=acc-ucb versus=cc-mab tolerance=0.5
claim over: metric=seconds of=growth policy=oclok-ucb-cholesky limit=1.25
claim over: metric=seconds policy=oclok-ucb-cholesky rounds=250,250 limit=1200.0
claim under: metric=seconds of=growth \
policy=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,soclok-ucb-10 limit=1.25
claim over: metric=seconds of=growth \
policy=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,soclok-ucb-10 limit=0.75
claim between: metric=seconds policy=oclok-ucb-cholesky \
versus=soclok-ucb-100,soclok-ucb-50,soclok-ucb-20,soclok-ucb-10 least=3.5 most=5.5
""",
    "combinatorial/matching": """
rounds 250
seeds 5
problem name=channels
policies oclok-ucb: delta=0.05
policies soclok-ucb-50: policy=soclok-ucb inducing=50
policies gp-ts: scaled=False
policies acc-ucb:
policies cc-mab:
policies random:
policies benchmark:
derived name=reward_ratio metric=reward versus=benchmark
derived name=mean_reward metric=reward per_round=True
claim above: metric=reward policy=oclok-ucb versus=benchmark ratio=0.9
claim above: metric=reward policy=oclok-ucb versus=acc-ucb,cc-mab
""",
    "combinatorial/movies": """
rounds 400
seeds 5
problem name=movies
sweep oracle=tim,greedy
policies oclok-ucb: delta=0.05
policies soclok-ucb-4: policy=soclok-ucb inducing=4
policies soclok-ucb-2: policy=soclok-ucb inducing=2
policies soclok-ucb-1: policy=soclok-ucb inducing=1
policies acc-ucb:
policies random:
policies benchmark:
on_request acc-ucb-scaled: policy=acc-ucb scaled=True
on_request oclok-ucb-stepwise: policy=oclok-ucb stepwise=True
derived name=reward_ratio metric=reward versus=benchmark
derived name=mean_reward metric=reward per_round=True
claim between: metric=reward policy=soclok-ucb-2 versus=acc-ucb least=1.025 most=1.075
claim above: metric=reward policy=soclok-ucb-4 versus=benchmark ratio=0.995
claim above: metric=reward policy=soclok-ucb-4 versus=acc-ucb ratio=1.08
""",
    "combinatorial/movies-threshold": """
rounds 400
seeds 30
problem name=movies
problem edition=small
problem oracle=greedy
sweep least_ratings=20,200,500
policies oclok-ucb: delta=0.05
policies soclok-ucb-4: policy=soclok-ucb inducing=4
policies soclok-ucb-2: policy=soclok-ucb inducing=2
policies soclok-ucb-1: policy=soclok-ucb inducing=1
policies acc-ucb:
policies random:
policies benchmark:
derived name=reward_ratio metric=reward versus=benchmark
derived name=mean_reward metric=reward per_round=True
claim below: metric=reward policy=random versus=benchmark ratio=0.95
claim falls: metric=reward relative_to=benchmark policy=random key=least_ratings
claim between: metric=reward policy=soclok-ucb-2 versus=acc-ucb least=1.025 most=1.075
claim above: metric=reward policy=soclok-ucb-4 versus=benchmark ratio=0.995
claim above: metric=reward policy=soclok-ucb-4 versus=acc-ucb ratio=1.08
""",
    "demo/city": """
rounds 50
seeds 10
problem name=navigation
problem network=city
problem edges=1200
problem city_seed=5
policies gp-ts: policy=route-ts
policies bi-ts: policy=route-ts posterior=independent
policies prior:
policies fastest: policy=known-cost cost=travel_time
policies shortest: policy=known-cost cost=length
claim below: policy=gp-ts versus=bi-ts
claim below: metric=true_energy policy=gp-ts versus=prior
claim below: metric=true_energy policy=gp-ts versus=fastest
""",
    **{
        f"kernelized/cross-validation-{name}": f"""
rounds 3000
seeds 60
problem name={name}-sensors
problem rows=held-out
problem gamma=1.0
sweep gamma=0.01,0.1,1.0,10.0,100.0
policies igp-ucb: delta=0.1
policies gp-ucb: delta=0.1
policies gp-ts: delta=0.1
"""
        + "\n".join(
            f"claim {check}: policy={policy} key=gamma among={among}"
            for policy in ("igp-ucb", "gp-ucb", "gp-ts")
            for check, among in (("falls", "0.01,0.1,1.0"), ("rises", "1.0,10.0,100.0"))
        )
        for name in ("temperature", "light")
    },
    "kernelized/relative": """
rounds 30000
seeds 25
problem name=rkhs-function
problem kernel=squared-exponential
problem nu=2.5
problem lengthscale=0.2
sweep problem.name=rkhs-function,gp-function
sweep kernel=squared-exponential,matern
policies igp-ucb: delta=0.1
policies gp-ucb: delta=0.1
policies gp-ts: delta=0.1
policies gp-ei: xi=0.01
policies gp-pi: xi=0.01
policies random:
chart band=std
"""
    + "\n".join(
        f"claim alike: policy={policy} relative_to=random key=problem.name tolerance=0.25"
        for policy in ("igp-ucb", "gp-ucb", "gp-ts", "gp-ei", "gp-pi")
    ),
    "kernelized/robustness": """
rounds 3000
seeds 30
problem name=benchmark-function
problem function=rosenbrock
problem kernel=squared-exponential
problem nu=2.5
problem lengthscale=0.2
sweep function=rosenbrock,hartmann3
sweep kernel=squared-exponential,matern
sweep lengthscale=0.05,0.1,0.2,0.4,0.8
policies igp-ucb: delta=0.1
policies gp-ucb: delta=0.1
policies gp-ts: delta=0.1
policies gp-ei: xi=0.01
policies gp-pi: xi=0.01
policies random:
"""
    + "\n".join(
        f"claim steadier: policy=gp-ei,gp-pi versus={rival} key=lengthscale"
        for rival in ("igp-ucb", "gp-ts", "gp-ucb")
    ),
    "kernelized/theorems": """
rounds 1000
seeds 100
problem name=rkhs-function
problem kernel=squared-exponential
problem nu=2.5
problem lengthscale=0.2
problem regularisation=theory
sweep kernel=squared-exponential,matern
policies igp-ucb: delta=0.1 gain=greedy
policies gp-ts: delta=0.1 gain=greedy
policies random:
""",
    "kernelized/gp-matern": PAPER_002
    + FROM_A_PROCESS
    + """
problem name=gp-function
problem kernel=matern
problem nu=2.5
problem lengthscale=0.2
""",
    "kernelized/gp-se": PAPER_002
    + FROM_A_PROCESS
    + """
problem name=gp-function
problem kernel=squared-exponential
problem lengthscale=0.2
""",
    "kernelized/hartmann3": PAPER_002
    + STANDARD
    + """
problem name=benchmark-function
problem function=hartmann3
problem lengthscale=0.2
""",
    "kernelized/light": PAPER_002
    + """
seeds 192
problem name=light-sensors
claim similar: policy=igp-ucb versus=gp-ucb tolerance=0.1
claim below: policy=gp-ts versus=igp-ucb,gp-ucb,gp-ei,gp-pi
claim below: policy=igp-ucb versus=gp-ei,gp-pi
claim similar: policy=gp-ei versus=gp-pi tolerance=0.25
""",
    "kernelized/rkhs-matern": PAPER_002
    + FROM_A_PROCESS
    + """
problem name=rkhs-function
problem kernel=matern
problem nu=2.5
problem lengthscale=0.2
""",
    "kernelized/rkhs-se": PAPER_002
    + FROM_A_PROCESS
    + """
problem name=rkhs-function
problem kernel=squared-exponential
problem lengthscale=0.2
""",
    "kernelized/rosenbrock": PAPER_002
    + STANDARD
    + """
problem name=benchmark-function
problem function=rosenbrock
problem lengthscale=0.2
""",
    "kernelized/temperature": PAPER_002
    + """
seeds 240
problem name=temperature-sensors
claim similar: policy=igp-ucb versus=gp-ucb tolerance=0.1
claim below: policy=gp-ts versus=igp-ucb,gp-ucb,gp-ei,gp-pi
claim similar: policy=gp-ei versus=gp-pi tolerance=0.25
""",
    "navigation/_route": """
rounds 500
seeds 5
problem name=navigation
policies gp-ucb: policy=route-ucb
policies gp-bucb: policy=route-bucb
policies gp-ts: policy=route-ts
policies gp-ts-joint: policy=route-ts mode=joint
policies bi-ucb: policy=route-ucb posterior=independent
policies bi-bucb: policy=route-bucb posterior=independent
policies bi-ts: policy=route-ts posterior=independent
policies gp-greedy: policy=route-greedy
policies prior:
policies fastest: policy=known-cost cost=travel_time
policies shortest: policy=known-cost cost=length
policies gp-ts-potential: policy=route-ts routing=potential
policies prior-potential: policy=prior routing=potential spread=none
on_request svgp-ucb: policy=route-ucb posterior=variational
on_request svgp-bucb: policy=route-bucb posterior=variational
on_request svgp-ts: policy=route-ts posterior=variational
claim below: policy=gp-ts versus=gp-ucb,gp-bucb
claim below: policy=bi-ts versus=bi-ucb,bi-bucb
claim below: policy=gp-bucb versus=gp-ucb
claim below: policy=gp-ucb versus=bi-ucb
claim below: policy=gp-bucb versus=bi-bucb
claim below: policy=gp-ts versus=bi-ts
claim below: policy=gp-ts versus=gp-ucb,gp-bucb,bi-ucb,bi-bucb,bi-ts
claim below: metric=distinct_edges policy=gp-ts versus=gp-ucb,gp-bucb
claim below: metric=distinct_edges policy=bi-ts versus=bi-ucb,bi-bucb
""",
    "navigation/betas": """
rounds 500
seeds 5
problem name=navigation
sweep route=luxembourg-a,luxembourg-b,monaco-a,monaco-b
policies gp-ucb: policy=route-ucb
policies gp-ucb-half: policy=route-ucb scale=0.5
policies gp-bucb: policy=route-bucb
policies gp-bucb-half: policy=route-bucb xi=0.5
claim below: policy=gp-ucb-half versus=gp-ucb
claim below: policy=gp-bucb-half versus=gp-bucb
claim below: policy=gp-bucb versus=gp-ucb
""",
    "navigation/city": """
extends navigation/_route
rounds 200
problem network=city
problem edges=1500
""",
    "navigation/conditions": """
rounds 100
seeds 3
problem name=navigation
problem network=city
problem edges=600
problem conditions=congestion,temperature,load
policies svgp-ts: policy=route-ts posterior=variational
policies gp-ts: policy=route-ts posterior=streaming
policies prior:
policies fastest: policy=known-cost cost=travel_time
policies shortest: policy=known-cost cost=length
claim below: metric=true_energy policy=gp-ts,svgp-ts versus=prior,fastest,shortest
""",
    "navigation/lengthscale": """
rounds 500
seeds 5
problem name=navigation
sweep route=luxembourg-a,luxembourg-b,monaco-a,monaco-b
sweep lengthscale=0.1,0.25,0.5,1.0,2.0
policies gp-bucb: policy=route-bucb
policies bi-bucb: policy=route-bucb posterior=independent
policies gp-ts: policy=route-ts
policies bi-ts: policy=route-ts posterior=independent
claim upward-trend: policy=gp-bucb key=lengthscale
claim upward-trend: policy=gp-ts key=lengthscale
claim flat: policy=bi-bucb key=lengthscale tolerance=0.25
claim flat: policy=bi-ts key=lengthscale tolerance=0.25
""",
    "navigation/luxembourg-a": """
extends navigation/_route
problem route=luxembourg-a
""",
    "navigation/luxembourg-b": """
extends navigation/_route
problem route=luxembourg-b
""",
    "navigation/luxembourg-c": """
extends navigation/_route
problem route=luxembourg-c
""",
    "navigation/luxembourg-d": """
extends navigation/_route
problem route=luxembourg-d
""",
    "navigation/monaco-a": """
extends navigation/_route
problem route=monaco-a
""",
    "navigation/monaco-b": """
extends navigation/_route
problem route=monaco-b
""",
    "navigation/network": """
rounds 200
seeds 3
problem name=navigation
policies gp-ts: policy=route-ts
policies gp-ts-potential: policy=route-ts routing=potential
policies bi-ts: policy=route-ts posterior=independent
policies prior:
policies prior-potential: policy=prior routing=potential spread=none
policies fastest: policy=known-cost cost=travel_time
policies shortest: policy=known-cost cost=length
""",
    "navigation/svgp": """
rounds 500
seeds 5
problem name=navigation
sweep route=luxembourg-a,luxembourg-b,luxembourg-c,luxembourg-d,monaco-a,monaco-b
policies svgp-ucb: policy=route-ucb posterior=variational
policies svgp-bucb: policy=route-bucb posterior=variational
policies svgp-ts: policy=route-ts posterior=variational
policies gp-ucb: policy=route-ucb
policies gp-bucb: policy=route-bucb
policies gp-ts: policy=route-ts
policies bi-ucb: policy=route-ucb posterior=independent
policies bi-bucb: policy=route-bucb posterior=independent
policies bi-ts: policy=route-ts posterior=independent
claim below: policy=svgp-ts versus=svgp-ucb,svgp-bucb
claim below: policy=svgp-bucb versus=svgp-ucb
claim below: policy=svgp-ucb versus=bi-ucb
claim below: policy=svgp-bucb versus=bi-bucb
claim below: policy=svgp-ts versus=bi-ts
claim below: policy=svgp-ts versus=svgp-ucb,svgp-bucb,bi-ucb,bi-bucb,bi-ts
claim below: metric=distinct_edges policy=svgp-ts versus=svgp-ucb,svgp-bucb
claim below: policy=gp-ucb versus=svgp-ucb
claim below: policy=gp-bucb versus=svgp-bucb
claim below: policy=gp-ts versus=svgp-ts
""",
    "navigation/sumo-traffic": """
rounds 100
seeds 3
problem name=sumo-navigation
problem route=monaco-a
problem mass=2200.0
problem auxiliary_power=2000.0
problem rolling_resistance=0.012
problem air_density=1.29
problem traffic=400.0
problem moments=4
policies gp-ts: policy=route-ts routing=potential
policies bi-ts: policy=route-ts posterior=independent routing=potential
policies gp-greedy: policy=route-greedy routing=potential
policies prior:
policies prior-potential: policy=prior routing=potential spread=none
policies fastest: policy=known-cost cost=travel_time
policies shortest: policy=known-cost cost=length
claim below: metric=true_energy policy=gp-ts versus=prior,prior-potential
claim below: metric=true_energy policy=gp-ts versus=fastest
claim below: metric=true_energy policy=gp-ts versus=bi-ts
claim below: metric=true_energy policy=prior-potential versus=prior
""",
    "navigation/sumo": """
rounds 150
seeds 3
problem name=sumo-navigation
problem route=monaco-a
problem mass=2200.0
problem auxiliary_power=2000.0
problem rolling_resistance=0.012
problem air_density=1.29
policies gp-ts: policy=route-ts routing=potential
policies bi-ts: policy=route-ts posterior=independent routing=potential
policies gp-greedy: policy=route-greedy routing=potential
policies prior:
policies prior-potential: policy=prior routing=potential spread=none
policies fastest: policy=known-cost cost=travel_time
policies shortest: policy=known-cost cost=length
claim below: metric=true_energy policy=gp-ts versus=prior,prior-potential
claim below: metric=true_energy policy=gp-ts versus=fastest
claim below: metric=true_energy policy=gp-ts versus=bi-ts
claim below: metric=true_energy policy=prior-potential versus=prior
""",
    "navigation/fleet": f"""
rounds 100
seeds 5
problem name=fleet
problem late=0.0
policies cautious: policy=route-cautious
policies greedy: policy=route-greedy spread=none
policies thompson: policy=route-ts mode=joint spread=none
policies bayes-ucb: policy=route-bucb spread=none
policies informed:
policies prior: spread=none
policies fastest: policy=known-cost cost=travel_time
on_request cautious-alone: policy=route-cautious wrapped=(name=separate column=8)
on_request greedy-without-terms: policy=route-greedy spread=none told=(scales={WITHOUT_TERMS})
claim below: metric=true_energy policy=cautious versus=informed
claim below: metric=true_energy policy=informed versus=prior
claim below: metric=true_energy policy=cautious versus=fastest
""",
    "navigation/volatile": """
extends navigation/_route
rounds 100
problem network=city
problem edges=1000
problem closed_roads=0.03
problem closed_turns=0.03
""",
}
DEFAULTS = """
problem movement-field: rho=1.0 side=20 contexts=40 lengthscale=0.2 noise_std=0.1 episode=20 scaled=True
problem movement-field: alpha=1.0 beta=0.0
policy cgp-lcb: width=2.0 delta=0.1 gain=realised posterior=auto
policy gp-md: width=2.0 delta=0.1 gain=realised update=episode clip=False trees=1 tau=2.0 kappa=1.0
policy gp-md: posterior=auto first_episode=episode
policy md-known: trees=1 tau=2.0 kappa=1.0
policy tree-index: direction=minimize update=episode first_episode=episode clip=False
policy tree-index: trees=1 tau=2.0 kappa=1.0
policy tree-score: trees=1 tau=2.0 kappa=1.0
schedule ridge-ucb: delta=0.1
problem wind: profile=era5 rho=1.0 readings=daily move_cost=0.5 cut_in=3.0 rated=12.0 cut_out=25.0
problem wind: days=40 source=auto alpha=1.0 beta=0.0
problem channels: channels=5 users=20 barred=0.3 noise_std=0.1
problem codependency: arrivals=100 k=5 pool=6000 lengthscale=0.1 squared=True noise_std=0.1
problem movies: films=75 viewers=200 k=3 oracle=tim least_stars=0.5 edition=auto source=auto
policy acc-ucb: v2=1.0 rho=0.5 scaled=False
policy adaptive-tree: direction=maximize v2=1.0 rho=0.5 scaled=False most_cells=1000000
policy hypercubes: direction=maximize
policy oclok-ucb: stepwise=False
policy soclok-ucb: inducing=50 delta=0.05
problem benchmark-function: function=rosenbrock lengthscale=0.2 noise_fraction=0.01
problem benchmark-function: regularisation=noise kernel=squared-exponential nu=2.5
problem crowdsourcing: workers=100 k=5 noise_std=0.1 counting=in_reach source=auto
problem fleet: edges=2000 city_seed=0 flat=False uturns=dead-ends trips=10 least_metres=1500.0
problem fleet: most_metres=8000.0 vehicles=20 informed=True variety=0.2 wear=0.05 payload=200.0
problem fleet: weather=5.0 seen=edges headway=120.0 traffic=0.0 moments=8 traffic_reach=300.0
policy cautious: direction=minimize caution=1.0 most_pending=256
policy route-cautious: caution=1.0
problem gp-function: arms=100 dimension=1 kernel=squared-exponential lengthscale=0.2 nu=2.5
problem gp-function: noise_fraction=0.01 regularisation=noise
problem landscape: side=32 k=3 hills=7 lengthscale=0.15 noise_std=0.1
problem light-sensors: source=auto noise_fraction=0.05 prior_mean=learned norm=mean units=raw
problem light-sensors: regularisation=noise gamma=1.0 rows=test
problem navigation: edges=2000 city_seed=0 lengthscale=1.0 normalisation=mean prior_scale=0.25
problem navigation: noise_scale=0.1 mass=1830.0 auxiliary_power=0.0 rolling_resistance=0.01
problem navigation: air_drag=0.35 air_density=1.2 recuperation=multiply uturns=True closed_roads=0.0
problem navigation: closed_turns=0.0 on_no_path=error rush_hours=0.0 day_to_day=0.002
problem navigation: switch_per=edge flat=False graph_share=0.5
problem rkhs-function: arms=100 dimension=1 kernel=squared-exponential lengthscale=0.2 nu=2.5
problem rkhs-function: noise_fraction=0.01 regularisation=noise
problem sumo-navigation: traffic=0.0 traffic_reach=500.0 moments=8 mass=1830.0 auxiliary_power=0.0
problem sumo-navigation: rolling_resistance=0.01 air_drag=0.35 air_density=1.2 motion=stored
problem sumo-navigation: step=0.25 lengthscale=1.0 normalisation=mean prior_scale=0.25
problem sumo-navigation: noise_scale=0.02 uturns=True flat=False
problem temperature-sensors: source=auto start_minute=50 noise_fraction=0.05 prior_mean=learned
problem temperature-sensors: norm=mean units=raw regularisation=noise gamma=1.0 rows=test
problem drifting-function: side=50 dimension=2 kernel=squared-exponential lengthscale=0.2 nu=2.5
problem drifting-function: epsilon=0.01 k=1 noise_std=0.1
policy exp3: direction=maximize
policy rexp3: variation=1.0
problem temperature-series: source=auto k=1 noise_fraction=0.05
problem traffic-series: source=auto day=6 k=1 noise_fraction=0.05
policy r-gp-ucb: in_block=False c1=0.8 c2=4.0
policy tv-gp-ucb: c1=0.8 c2=4.0 form=auto
policy composed: posterior=auto stepwise=False most_pending=256
policy gp-bucb: omega=1.0 xi=1.0 posterior=auto
policy gp-ei: xi=0.01 posterior=auto
policy gp-greedy: posterior=auto
policy gp-pi: xi=0.01 posterior=auto
policy gp-ts: delta=0.1 gain=growth mode=joint scaled=True decision_set=all posterior=auto
policy gp-ucb: delta=0.1 gain=growth posterior=auto
policy gp-ucb-bayesian: scale=1.0 posterior=auto
policy igp-ucb: delta=0.1 gain=growth posterior=auto
policy index: direction=maximize stepwise=False most_pending=256 repeats=False
policy kernel-ucb: delta=0.1 posterior=auto
policy oclok-ucb: delta=0.05 posterior=auto form=auto
policy prior: routing=rectified spread=noise
policy route-bucb: omega=1.0 xi=1.0 posterior=auto routing=rectified spread=noise penalty=0.0
policy route-greedy: posterior=auto routing=rectified spread=noise penalty=0.0
policy route-rule: posterior=auto routing=rectified spread=noise penalty=0.0
policy route-ts: mode=independent posterior=auto routing=rectified spread=noise penalty=0.0
policy route-ucb: scale=1.0 posterior=auto routing=rectified spread=noise penalty=0.0
schedule bayes-ucb: omega=1.0 xi=1.0
schedule bayes-ucb-compact: tau_exponent=2.0 omega=1.0 xi=1.0
schedule gp-ts: delta=0.1
schedule gp-ucb-agnostic: delta=0.1
schedule gp-ucb-bayesian: scale=1.0
schedule gp-ucb-bayesian-compact: tau_exponent=2.0 scale=1.0
schedule gp-ucb-finite: delta=0.1
schedule igp-ucb: delta=0.1
schedule kernel-ucb: regularisation=1.0
schedule logarithmic: c1=0.8 c2=4.0
schedule oclok-ucb: delta=0.05
schedule r-gp-ucb: side=1.0 a=1.0 b=1.0 delta=0.1
schedule tv-gp-ucb: side=1.0 a=1.0 b=1.0 delta=0.1
rule expected-improvement: xi=0.01 scale=log
rule probability-of-improvement: xi=0.01 scale=score
rule rectified: spread=noise
rule thompson: mode=joint
"""


def settings(table: Mapping[str, Any]) -> Iterator[str]:
    """One line for each setting, policy and claim; prose is left out."""
    for key, value in table.items():
        if key == "claims":
            for claim in value:
                rest = {
                    name: each
                    for name, each in claim.items()
                    if name not in ("text", "check")
                }
                yield f"claim {claim['check']}: {pairs(rest)}"
        elif key in ("policies", "on_request"):
            for name, options in value.items():
                yield f"{key} {name}: {pairs(options)}".rstrip()
        elif key == "derived":
            yield from (f"derived {pairs(each)}" for each in value)
        elif isinstance(value, Mapping):
            for name, each in value.items():
                yield f"{key} {name}={shown(each)}"
        elif key not in PROSE:
            yield f"{key} {shown(value)}"


def pairs(table: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={shown(value)}" for key, value in table.items())


def shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({pairs(value)})"
    return ",".join(map(shown, value)) if isinstance(value, list) else str(value)


def defaults(family: str) -> Iterator[str]:
    for name in names(family):
        if not find(family, name).__module__.startswith(
            "superarm."
        ):  # some test's own part
            continue
        for key, value in parameters_of(family, name).items():
            if isinstance(value, int | float | str):
                yield f"{family} {name}: {key}={'_'.join(str(value).split())}"


def test_defaults() -> None:
    expected = [
        f"{start}: {pair}"
        for start, _, pairs in (line.partition(": ") for line in DEFAULTS.split("\n"))
        for pair in pairs.split()
    ]
    found = [
        line
        for family in ("problem", "policy", "schedule", "rule")
        for line in defaults(family)
    ]
    assert sorted(found) == sorted(expected)


def test_every_experiment_is_in_the_table() -> None:
    shipped = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path in ROOT.rglob("*.toml")
    }
    assert shipped == set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_settings_and_claims(name: str) -> None:
    found = list(
        settings(tomllib.loads((ROOT / f"{name}.toml").read_text(encoding="utf-8")))
    )
    expected = EXPERIMENTS[name].split("\n")
    assert sorted(found) == sorted(line for line in expected if line)
    claims = [line for line in found if line.startswith("claim")]
    assert claims == [line for line in expected if line.startswith("claim")]


def test_margins_are_those_that_the_text_tells() -> None:
    """ "(2.5 to 7.5 %)" more is a ratio from 1.025 to 1.075, and less one from 0.925 to 0.975."""
    told = 0
    for name in EXPERIMENTS:
        for claim in tomllib.loads(
            (ROOT / f"{name}.toml").read_text(encoding="utf-8")
        ).get("claims", []):
            if found := re.search(r"\(([\d.]+) to ([\d.]+) %\)", claim["text"]):
                margins = sorted(abs(claim[key] - 1.0) for key in ("least", "most"))
                assert margins == pytest.approx(
                    [float(each) / 100.0 for each in found.groups()]
                )
                told += 1
    assert told == 5


@pytest.mark.parametrize(
    ("name", "figure"),
    [("codependency", ["6", "7"]), ("crowdsourcing", ["2", "3", "4"]), ("movies", "5")],
)
def test_figures_of_the_paper(name: str, figure: str | list[str]) -> None:
    text = (ROOT / "combinatorial" / f"{name}.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["figure"] == figure
