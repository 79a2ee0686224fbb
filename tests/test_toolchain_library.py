"""The C interface in Python must be the one in abi.h, to the byte."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from fake_toolchain import Fake, fake, spec

from tileforge.errors import BuildError, DeviceError
from tileforge.formats import FORMATS as KNOWN_FORMATS
from tileforge.tactic import RASTERS as KNOWN_RASTERS
from tileforge.tactic import SCHEDULES as KNOWN_SCHEDULES
from tileforge.toolchain.library import (
    ABI_VERSION,
    FORMATS,
    OUTS,
    RASTERS,
    SCHEDULES,
    Args,
    Info,
    Library,
    arguments,
)
from tileforge.toolchain.spec import kernel_command

STRUCTURES = {"tf_info": Info, "tf_args": Args}


def declared(header: str, name: str) -> list[str]:
    """Field names of one structure, read from the header's text."""
    (body,) = re.findall(rf"typedef struct {{([^}}]*)}} {name};", header)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    return [
        re.findall(r"\w+", part)[-1] for statement in body.split(";") for part in statement.split(",") if part.strip()
    ]


def test_structures_have_the_sizes_and_offsets_of_the_header(root: Path, tmp_path: Path) -> None:
    header = (root / "kernels" / "abi.h").read_text()
    lines = []
    for name, structure in STRUCTURES.items():
        fields = declared(header, name)
        assert fields == [field[0] for field in structure._fields_]
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field in fields:
            lines.append(
                f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));'
            )
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "abi.h"\nint main() { ' + "\n".join(lines) + " }\n"
    )
    subprocess.run(
        ["g++", "-x", "c++", f"-I{root / 'kernels'}", str(source), "-o", str(tmp_path / "layout")], check=True
    )
    printed = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True).stdout
    mine = []
    for name, structure in STRUCTURES.items():
        mine.append(f"{name} {ctypes.sizeof(structure)}")
        for field, *_ in structure._fields_:
            mine.append(f"{name}.{field} {getattr(structure, field).offset} {getattr(structure, field).size}")
    assert printed.splitlines() == mine


def test_numbers_are_those_of_the_header(root: Path) -> None:
    header = (root / "kernels" / "abi.h").read_text()
    defined = {name: int(value) for name, value in re.findall(r"#define (TF_\w+) (\d+)", header)}
    assert defined["TF_ABI_VERSION"] == ABI_VERSION
    for prefix, names in (("TF_FORMAT_", FORMATS), ("TF_OUT_", OUTS), ("TF_SCHEDULE_", SCHEDULES)):
        assert {name: number for name, number in defined.items() if name.startswith(prefix)} == {
            prefix + name.upper(): number for name, number in names.items()
        }
    assert set(FORMATS) == set(KNOWN_FORMATS)
    assert set(SCHEDULES) == set(KNOWN_SCHEDULES) and set(RASTERS) == set(KNOWN_RASTERS)


@pytest.fixture
def tools(tmp_path: Path) -> Fake:
    return fake(tmp_path)


def test_calls_and_errors(tools: Fake) -> None:
    (outcome,) = tools.builder().build([spec()])
    assert outcome.kernel is not None
    library = Library(outcome.kernel.path)
    assert library.query() == outcome.kernel.info
    args = arguments(groups=32, n=4096, k=6144, m=512)
    assert library.workspace_size(args) == 32 * 128
    library.load(0)
    library.prepare(args)
    with pytest.raises(DeviceError, match="the kernel's own line"):
        library.run(args)
    args.workspace = 4096
    library.run(args)
    with pytest.raises(DeviceError, match="the kernel's own line"):
        library.load(3)
    with pytest.raises(DeviceError):
        library.prepare(Args())  # abi_version 0


def test_what_is_no_kernel(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("hello")
    subprocess.run(
        ["g++", "-x", "c++", "-shared", "-fPIC", "-", "-o", str(tmp_path / "empty.so")], input=b"int x;", check=True
    )
    for name in ("nowhere.so", "text.so", "empty.so"):
        with pytest.raises(BuildError, match="is not a kernel"):
            Library(tmp_path / name)


def test_a_kernel_of_another_interface(tools: Fake) -> None:
    (outcome,) = tools.builder().build([spec()])
    assert outcome.kernel is not None
    abi = tools.kernels / "abi.h"
    abi.write_text(abi.read_text().replace("#define TF_ABI_VERSION 1", "#define TF_ABI_VERSION 7"))
    (other,) = tools.builder().build([spec()])
    assert other.failure == "compile_failed" and "interface version is 7, asked was 1" in other.message


def test_a_kernel_of_another_interface_is_refused_at_load(tools: Fake, tmp_path: Path) -> None:
    abi = (tools.kernels / "abi.h").read_text().replace("#define TF_ABI_VERSION 1", "#define TF_ABI_VERSION 7")
    (tools.kernels / "abi.h").write_text(abi)
    command = tools.compiler.command(kernel_command(spec(), tools.cutlass.include, tools.kernels, tmp_path / "k.so"))
    subprocess.run(command, check=True)
    with pytest.raises(BuildError, match="speaks version 7 of the kernel interface"):
        Library(tmp_path / "k.so").query()
