"""A Mixture-of-Experts model as far as its expert GEMMs need it, read from a small YAML file.

::

    name: glm-5
    hidden: 6144             # width of the residual stream
    moe_intermediate: 2048   # width inside one routed expert
    experts: 256             # routed experts
    top_k: 8                 # routed experts per token
    gated: true              # gate and up projection side by side (SwiGLU); the default
    shared_experts: 1        # kept for the record: dense, so no grouped GEMM; default 0
    source: where the figures were read
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tileforge.errors import InputError

if TYPE_CHECKING:
    from tileforge.routing import Routing
    from tileforge.workload.problems import Workload

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Model:
    """Sizes are in elements and of the whole model, before any parallelism. Raises InputError on impossible ones."""

    name: str
    hidden: int
    moe_intermediate: int
    experts: int
    top_k: int
    gated: bool = True
    shared_experts: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            if kind == "int":
                least = 0 if field.default == 0 else 1
                if not isinstance(value, int) or isinstance(value, bool) or value < least:
                    raise InputError(f"model field {field.name} = {value!r} is not a whole number of {least} or more")
            elif kind == "bool" and not isinstance(value, bool):
                raise InputError(f"model field {field.name} = {value!r} is not true or false")
            elif kind == "str" and not (isinstance(value, str) and (value or field.default == "")):
                raise InputError(f"model field {field.name} = {value!r} is not a text")
        if self.top_k > self.experts:
            raise InputError(f"model {self.name}: top_k = {self.top_k} is more than its {self.experts} experts")

    @classmethod
    def from_dict(cls, values: Any) -> Model:
        """From the fields of a model file. Raises InputError that names a missing, unknown or mistyped field."""
        if not isinstance(values, dict):
            raise InputError(f"a model is a list of fields such as 'hidden: 6144', not {type(values).__name__}")
        known = {field.name: field for field in fields(cls)}
        unknown = [str(key) for key in values if key not in known]
        if unknown:
            raise InputError(f"unknown model field {unknown[0]!r}: known are {', '.join(known)}")
        missing = [name for name, field in known.items() if field.default is MISSING and name not in values]
        if missing:
            raise InputError(
                f"model field {missing[0]!r} is missing: needed are name, hidden, moe_intermediate, experts and top_k"
            )
        return cls(**values)

    def problems(
        self,
        *,
        rows_per_group: Iterable[int] = (),
        tokens: Iterable[int] = (),
        format: str = "nvfp4",
        out: str = "bf16",
        tp: int = 1,
        ep: int = 1,
        routing: str | Routing = "balanced",
        seed: int = 0,
    ) -> Workload:
        """The grouped GEMMs of one GPU; see :func:`tileforge.workload.problems.problems_of`."""
        from tileforge.workload.problems import problems_of

        return problems_of(
            self,
            rows_per_group=rows_per_group,
            tokens=tokens,
            format=format,
            out=out,
            tp=tp,
            ep=ep,
            routing=routing,
            seed=seed,
        )


def known_models() -> dict[str, Path]:
    """The models that come with tileforge: name -> file."""
    installed = _PACKAGE / "_models"
    folder = installed if installed.is_dir() else _PACKAGE.parent / "examples" / "models"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_model(path: str | Path) -> Model:
    """Reads a model file, or one of :func:`known_models` by name. Raises InputError, one line that names the file."""
    file = Path(path)
    if not file.is_file():
        known = known_models()
        if str(path) not in known:
            raise InputError(f"no model file {str(path)!r}: give a YAML file or one of {', '.join(known)}")
        file = known[str(path)]
    try:
        text = file.read_text(encoding="utf-8")
        _refuse_repeated(yaml.compose(text, yaml.SafeLoader))
        return Model.from_dict(yaml.safe_load(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        raise InputError(f"{file}{where}: not YAML: {getattr(error, 'problem', None) or error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    except (ValueError, RecursionError) as error:  # what PyYAML makes of dates and numbers that are none
        raise InputError(f"{file}: not a model file: {str(error)[:200]}") from None


def _refuse_repeated(node: yaml.Node | None) -> None:
    """PyYAML takes the last of two equal keys without a word."""
    names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"model field {name!r} is given twice")
