"""What one GPU of a deployment multiplies: model file and parallelism to grouped GEMMs, padding said."""

from pathlib import Path

from tileforge.workload import load_model

models = Path(__file__).parent / "models"
for name, form, parallel in (
    ("glm-5", "nvfp4", {"ep": 8}),
    ("glm-5", "nvfp4", {"tp": 8}),
    ("gpt-oss-120b", "mxfp4", {"tp": 4}),
):
    workload = load_model(models / f"{name}.yaml").problems(rows_per_group=(1, 16), format=form, **parallel)
    print(f"{name} {parallel}")
    for problem in workload.problems:
        intensity = problem.flops / problem.bytes()
        print(f"  {problem}: {problem.bytes() / 1e6:.0f} MB, {intensity:.1f} FLOP/byte")
    for note in workload.notes:
        print(f"  note: {note}")
