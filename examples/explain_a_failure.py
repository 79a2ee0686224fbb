"""Why a tile dies with an internal error, and which one to run instead. Needs no GPU and no compiler."""

from tileforge import Tactic, legality
from tileforge.arch import get_arch

sm120 = get_arch("sm120")
for epilogue in ("plain", "finalize"):
    for text in ("128x128x128", "128x256x128", "256x128x128", "128x128x512", "128x32x128_swap"):
        verdict = legality.check(Tactic.parse(text), arch=sm120, format="nvfp4", epilogue=epilogue)
        print(f"{text:<16} {epilogue:<9} {verdict.kind:<8} {verdict.message}")
