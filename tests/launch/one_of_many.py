"""One process of several: `python one_of_many.py SETTING` trains a row and prints what it ended with, as JSON.

SETTING: stem, overrides, who ("NUMBER/COUNT@HOST:PORT" or ""), folder, sharding (the fields of a `Sharding`), and
pause, seconds to wait after each step.
"""

import dataclasses
import hashlib
import json
import pathlib
import sys
import time

setting = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(("tensorflow", "seqio", "clu")))  # not needed, and slow to import
sys.path[:0] = [str(pathlib.Path(__file__).parents[2]), str(pathlib.Path(__file__).parent)]

from launch import processes  # noqa: E402
from launch.errors import UserError  # noqa: E402

try:
    processes.join(setting["who"])
    import jax
    import numpy as np
    from stand_ins import Silent

    from launch import composition, config
    from launch.evaluate import evaluate
    from launch.sharding import Sharding
    from launch.train import train

    made = config.build(composition.compose(setting["stem"], "tiny", overrides=setting["overrides"]))
    made = dataclasses.replace(made, sharding=Sharding(**setting["sharding"]))
    folder = pathlib.Path(setting["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    with processes.together("start all again"):
        done = train(made, folder, Silent(), [lambda step: time.sleep(setting["pause"])])
        whole = (
            processes.everywhere(done.params)
            if jax.process_count() == 1
            else jax.tree.map(lambda x: np.stack([part.data for part in x.addressable_shards]), done.params)
        )
        evaluation = dataclasses.replace(next(iter(made.evaluations.values())), batch_size=32)
        scores = evaluate(done.params, evaluation, seed=0)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in jax.tree.leaves(whole))).hexdigest()
    answer = {"curve": done.curve, "params": digest, "value": scores["metrics"]["nats_per_token"]["value"],
              "examples": scores["examples"], "devices": jax.device_count()}  # fmt: skip
    print(json.dumps(answer), flush=True)
    processes.leave()
except UserError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    processes.leave(error)
    sys.exit(error.code)
