"""Records what the compiler says of the whole space, for tests/test_compiler_truth.py and ``make oracle-check``.

    python tests/data/record_compiler_truth.py [--cutlass 4.5.0] [--arch sm120] [--jobs 16] [--out DIR]

For each CUTLASS version and SM one file in ``compiler_truth/``: every tactic that ``space.enumerate_tactics`` lists,
with the first stage count that no longer fits, for every output type and epilogue; and seeded samples of what lies
outside: a C operand of another type than the output, tiles, clusters, stages and epilogue tiles that no menu has.
Then, asked with bodies (``oracle.ask_bodies``), what only a kernel's body asserts. Needs nvcc, the CUTLASS of each
version and FlashInfer's epilogue headers (``tileforge toolchain fetch-headers``); about 6,000 CPU-seconds in all.
Rows hold no opinion of ours: the tests compare.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tileforge import legality, smem, space
from tileforge.arch import ArchSpec, get_arch
from tileforge.tactic import Tactic
from tileforge.toolchain import KernelSpec, cutlass_of, find_compiler
from tileforge.toolchain.oracle import Found, OracleAnswer, Question, ask_all, ask_bodies
from tileforge.toolchain.oracle_cache import AnswerCache

HERE = Path(__file__).parent / "compiler_truth"
COLUMNS = ["format", "out", "c", "epilogue", "tactic", "stages", "smem_bytes", "mainloop_bytes", "epilogue_bytes"]
COLUMNS += ["threads", "epilogue_tile", "error"]
OUTS = ("bf16", "fp16", "fp32")
SEED = 20261201


def whole_space(arch: ArchSpec, cutlass: str) -> Iterator[Question]:
    """The space as it is enumerated, and one stage more than fits of each of its shapes."""
    if arch.sm == 90:
        asked = [(form, "bf16", None, "plain") for form in arch.formats]
    else:
        epilogues = ((False, "plain"), (True, "plain"), (False, "finalize"))
        asked = [(f, o, o if c else None, e) for f in arch.formats for o in OUTS for c, e in epilogues]
    for form, out, c, epilogue in asked:
        over: list[Tactic] = []
        for tactic in space.enumerate_tactics(arch, form, cutlass, out=out, epilogue=epilogue, c=c):
            if tactic.stages is None:
                yield from (Question(KernelSpec(arch.name, form, out, each), c, epilogue) for each in over)
                ask = smem.context(arch, form, out, cutlass, epilogue, c)
                verdict = legality.check(
                    tactic, arch=arch, format=form, out=out, cutlass=cutlass, epilogue=epilogue, c=c
                )
                known = verdict.kind in ("fits", "over")
                more = smem.storage(tactic, ask).most_stages(arch.smem_per_block) + 1 if known else 0
                over = [Tactic(**{**fields(tactic), "stages": more})] if more > 1 else []
            yield Question(KernelSpec(arch.name, form, out, tactic), c, epilogue)
        yield from (Question(KernelSpec(arch.name, form, out, each), c, epilogue) for each in over)


def inside(arch: ArchSpec, cutlass: str, every: int = 1) -> list[Question]:
    """What is asked of the space: all that the rules keep or find over; of what they refuse, bf16 and plain.

    A refusal costs 1.5 CPU-seconds, ten times an answer, and does not depend on the output or on C, but for the number
    of stages and the epilogue tile, of which the sample has some. ``every``: one in so many only.
    """
    whole = list(dict.fromkeys(whole_space(arch, cutlass)))[::every]
    return [e for e in whole if expected(e, cutlass) or (e.spec.out, e.c, e.epilogue) == ("bf16", None, "plain")]


def fields(tactic: Tactic) -> dict[str, object]:
    return {name: getattr(tactic, name) for name in Tactic.__dataclass_fields__}


def sample(arch: ArchSpec, cutlass: str, amount: int) -> Iterator[Question]:
    """Seeded: C operands of every type, and what no menu holds."""
    pick = random.Random(SEED)
    if arch.sm == 90:
        tiles = list(itertools.product((64, 128, 192, 256), (8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256),
                                       (32, 64, 128, 256)))  # fmt: skip
        clusters = [(1, 1), (1, 1), (2, 1), (1, 2)]
        epilogue_tiles = [None, None, None, (64, 16), (64, 32), (64, 64), (128, 16), (128, 32), (128, 64)]
    else:
        tiles = list(itertools.product((128, 256), (32, 64, 128, 256), (64, 128, 256))) * 3
        tiles += list(itertools.product((64, 128, 192, 256, 384), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384),
                                        (32, 64, 96, 128, 192, 256, 384, 512)))  # fmt: skip
        clusters = [(1, 1)] * 24 + [(2, 1)]
        epilogue_tiles = [None, None, None, (64, 16), (64, 32), (64, 64), (128, 32), (128, 64), (128, 16), (64, 128)]
        epilogue_tiles += [(32, 32), (32, 16), (64, 8), (256, 32), (48, 32)]
    for _ in range(amount):
        tactic = Tactic(
            pick.choice(tiles),
            pick.choice(clusters),
            pick.choice(("cooperative", "pingpong")),
            pick.choice((None, None, 1, 2, 3, 4, 5, 6, 7, 9, 12)),
            pick.choice(epilogue_tiles),
            pick.random() < 0.5,
        )
        finalize = arch.sm != 90 and pick.random() < 0.2
        c = None if finalize else pick.choice((None, *OUTS))
        spec = KernelSpec(arch.name, pick.choice(arch.formats), pick.choice(OUTS), tactic)
        yield Question(spec, c, "finalize" if finalize else "plain")


def bodies(arch: ArchSpec, cutlass: str) -> Iterator[Question]:
    """SM120: what store() asserts of schedule and epilogue tile, twice, with another output, C and order for 4.5.0.

    SM90: cooperative with 64 rows, and N tiles that are not multiples of 16.
    """
    if arch.sm == 90:
        for text in ("64x64x64_coop", "128x24x64_coop", "64x24x64_pp"):
            yield Question(KernelSpec(arch.name, "bf16", "bf16", Tactic.parse(text)))
        return
    own = [None, (64, 16), (64, 64), (128, 32), (32, 32), (32, 16), (64, 8)]
    kinds = [(False, "bf16", None)] if cutlass == "4.2.0" else [(False, "bf16", None), (True, "fp32", "bf16")]
    for (swap, out, c), schedule, epilogue_tile in itertools.product(kinds, ("cooperative", "pingpong"), own):
        tactic = Tactic((128, 128, 128), (1, 1), schedule, None, epilogue_tile, swap)
        yield Question(KernelSpec(arch.name, "nvfp4", out, tactic), c)


def write(path: Path, facts: dict[str, str], rows: list[list[str]]) -> None:
    """Gzip without a date, so that the same answers make the same file."""
    lines = [json.dumps({**facts, "columns": COLUMNS}), *("\t".join(row) for row in rows)]
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(("\n".join(lines) + "\n").encode())


def expected(question: Question, cutlass: str) -> bool:
    """Only decides what is asked together."""
    spec = question.spec
    asked = {"format": spec.format, "out": spec.out, "epilogue": question.epilogue, "c": question.c}
    return legality.check(spec.tactic, arch=get_arch(spec.arch), cutlass=cutlass, **asked).kind != "illegal"


def beyond(
    answers: dict[Question, OracleAnswer], cache: Path | None, arch: ArchSpec, toolchain: Found
) -> dict[Question, OracleAnswer]:
    """What ``--cache`` holds of earlier, wider runs is written as well, at the end."""
    found: dict[Question, OracleAnswer] = {}
    for finalize in ((), ("-DTF_ORACLE_FINALIZE",)) if cache is not None else ():
        file = AnswerCache(toolchain.cutlass, toolchain.compiler, arch.name, cache, ("TF_ORACLE", *finalize)).path
        for name, fields in json.loads(file.read_text()).items() if file.exists() else ():
            spec, *more = name.split("+")
            c = next((part[2:] for part in more if part.startswith("c_")), None)
            question = Question(KernelSpec.parse(spec), c, "finalize" if finalize else "plain")
            if question not in answers:
                found[question] = OracleAnswer.from_dict(fields)
    return dict(sorted(found.items(), key=lambda item: item[0].id))


@contextlib.contextmanager
def kept(cache: Path | None) -> Iterator[Path]:
    """Where answers are kept until the file is written: in ``cache``, from which a run that was stopped goes on."""
    if cache is not None:
        yield cache
        return
    with tempfile.TemporaryDirectory() as empty:
        yield Path(empty)


def record(arch: ArchSpec, toolchain: Found, jobs: int, out: Path, cache: Path | None, every: int, amount: int) -> None:
    version = toolchain.cutlass.version
    facts = {
        "made_by": "python tests/data/record_compiler_truth.py",
        "date": time.strftime("%Y-%m-%d"),
        "compiler": f"nvcc {toolchain.compiler.build}",
        "cutlass": version,
        "headers": toolchain.cutlass.digest,
        "arch": arch.name,
    }
    asked = inside(arch, version, every)
    outside = sorted(set(sample(arch, version, amount)) - set(asked), key=lambda each: each.id)
    began, done = time.time(), 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        if sys.stderr.isatty() or done % 2048 < count:
            print(
                f"{version} {arch.name}: {done} of {len(asked) + len(outside)}, {time.time() - began:.0f} s",
                flush=True,
            )

    with kept(cache) as cache_dir:
        # What is likely to be refused goes apart, in small files: a file is asked again until nothing of it is refused.
        likely = [each for each in asked if not expected(each, version)]
        refused = set(likely)
        answers = ask_all([e for e in asked if e not in refused], toolchain, cache_dir=cache_dir, jobs=jobs,
                          progress=progress)  # fmt: skip
        for at in range(0, len(rest := [*likely, *outside]), 32 * jobs):
            answers |= ask_all(rest[at : at + 32 * jobs], toolchain, cache_dir=cache_dir, jobs=jobs, progress=progress)
        answers = {each: answers[each] for each in [*asked, *outside]} | beyond(answers, cache, arch, toolchain)
        rows = []
        for question, a in answers.items():
            shape = [question.spec.format, question.spec.out, question.c or "", question.epilogue]
            said = [a.stages, a.smem_bytes, a.mainloop_bytes, a.epilogue_bytes, a.threads]
            tile = "x".join(map(str, a.epilogue_tile))
            rows.append([*shape, question.spec.tactic.kernel_id, *map(str, said), tile, a.error])
        write(out / f"{version}_{arch.name}.tsv.gz", {**facts, "inside": str(len(asked)), "every": str(every)}, rows)
        print(f"{version} {arch.name}: {len(rows)} asked, {sum(not a.ok for a in answers.values())} refused, "
              f"{time.time() - began:.0f} s", flush=True)  # fmt: skip


def record_bodies(arch: ArchSpec, toolchain: Found, jobs: int, out: Path, cache: Path | None) -> None:
    version, began = toolchain.cutlass.version, time.time()
    with kept(cache) as cache_dir:
        answers = ask_bodies(bodies(arch, version), toolchain, cache_dir=cache_dir, jobs=jobs)
    rows = [
        [q.spec.format, q.spec.out, q.c or "", q.epilogue, q.spec.tactic.kernel_id, *["0"] * 5, "0x0", error]
        for q, error in answers.items()
    ]
    facts = {"made_by": "python tests/data/record_compiler_truth.py", "date": time.strftime("%Y-%m-%d")}
    facts |= {"compiler": f"nvcc {toolchain.compiler.build}", "cutlass": version, "headers": toolchain.cutlass.digest}
    write(out / f"{version}_{arch.name}_bodies.tsv.gz", {**facts, "arch": arch.name}, rows)
    print(f"{version} {arch.name} bodies: {len(rows)} asked, {sum(map(bool, answers.values()))} refused, "
          f"{time.time() - began:.0f} s", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cutlass", choices=("4.5.0", "4.2.0"), action="append")
    parser.add_argument("--arch", choices=("sm120", "sm90", "bodies"), action="append")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--cache", type=Path, help="directory to keep answers in, and to go on from")
    parser.add_argument("--every", type=int, default=1, help="one in so many of the space only")
    parser.add_argument("--sample", type=int, default=400, help="how many from outside the space")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for arch in options.arch or ("sm120", "bodies", "sm90"):
        for version in options.cutlass or ("4.5.0", "4.2.0"):
            toolchain = Found(cutlass_of(version), find_compiler())
            if arch == "bodies":
                for each in ("sm120", "sm90"):
                    record_bodies(get_arch(each), toolchain, options.jobs, options.out, options.cache)
            else:
                record(
                    get_arch(arch), toolchain, options.jobs, options.out, options.cache, options.every, options.sample
                )


if __name__ == "__main__":
    main()
