"""From a problem to a tactic in serving code: tune offline, then look it up. Predicts for an RTX PRO 6000."""

import tempfile
import time

import tileforge

# 256 experts on 8 expert-parallel GPUs: 32 are here, and 16 rows reach each of them.
problem = tileforge.GroupedGemm(m=16 * 32, n=4096, k=6144, groups=32, format="nvfp4")

with tempfile.TemporaryDirectory() as database:
    # Offline. timer="predict" ranks without a GPU; timer="gpu" builds, checks and times.
    [result] = tileforge.tune(problem, gpu="rtx_pro_6000", timer="predict", confirm=False, db=database)
    print(f"{problem}\n  {result.pruning}\n  {result.tactic} ({result.provenance})")

    # Serving: any M of the bucket. A Picker keeps what it read; tileforge.pick(problem) does so for your database.
    from tileforge.picking import Picker

    picker = Picker([("mine", tileforge.TuningDB(database, read_only=True))], gpu="rtx_pro_6000")
    for m in (24, 512, 4096):
        choice = picker.pick(problem.with_m(m))
        print(f"M={m}: {choice.tactic} ({choice.reason}){' extrapolated' if choice.extrapolated else ''}")
    began = time.perf_counter()
    for _ in range(10_000):
        picker.pick(problem)
    print(f"one pick: {(time.perf_counter() - began) * 100:.1f} us")

    missing = picker.pick(tileforge.GroupedGemm(m=8, n=1024, k=2048, groups=8, format="nvfp4"))
    print(f"a miss says what to do: {missing.reason}: {missing.command}")
