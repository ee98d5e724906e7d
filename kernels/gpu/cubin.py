"""KernelSpec → a report on its machine code (cubin), compiled ahead of time and without a GPU.

The Triton wheel contains ptxas, cuobjdump and nvdisasm. So tests on any machine can check the
registers, spills, shared memory and instruction counts of every generated kernel.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..common.memo import made_once
from ..ir.spec import KernelSpec
from . import render as gpu
from .kernel import GpuKernel, Variant, block_of
from .triton_cache import import_triton

ARCHS = (80, 90, 120)
WARP_SIZE = 32
REGISTERS_PER_SM = 65536
REGISTER_UNIT = 256  # registers of a warp are allocated in this unit
# Source: CUDA programming guide, "technical specifications per compute capability".
MAX_WARPS_PER_SM = {80: 64, 89: 48, 90: 64, 120: 48}
MAX_BLOCKS_PER_SM = {80: 32, 89: 24, 90: 32, 120: 24}
SHARED_BYTES_PER_SM = {80: 164 << 10, 89: 100 << 10, 90: 228 << 10, 120: 100 << 10}
SHARED_BYTES_RESERVED = 1 << 10  # per block, by the driver
# Families of SASS instructions, by the prefixes of their mnemonics; the first match counts. A
# leading U means the uniform datapath. Source: CUDA binary utilities, "instruction set reference".
FAMILIES = {
    "move": ("IMAD.MOV", "MOV", "SEL", "R2", "S2", "CS2R", "SHFL", "P2R", "PRMT"),
    "global memory": ("LDG", "STG"),
    "local memory": ("LDL", "STL"),
    "shared memory": ("LDS", "STS"),
    "constants": ("LDC",),
    "convert": ("I2", "F2", "FRND"),
    "special": ("MUFU",),
    "double": ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"),
    "half": ("HADD", "HMUL", "HFMA", "HSET", "HMNMX"),
    "control": ("BRA", "BRX", "BS", "BREAK", "EXIT", "CALL", "RET", "WARPSYNC", "BAR", "DEPBAR"),
    "float": ("FADD", "FMUL", "FFMA", "FSEL", "FSET", "FMNMX", "FCHK"),
    "integer": (
        "I", "LOP", "SHF", "LEA", "SGXT", "POPC", "FLO", "BREV", "BMSK", "VI", "VABS", "REDUX",
        "CREDUX",
    ),
    "predicate": ("PLOP", "VOTE"),
}  # fmt: skip


@dataclass(frozen=True)
class CubinReport:
    """The resources and instructions of a compiled kernel."""

    name: str
    arch: int
    variant: Variant
    num_warps: int  # of a program
    registers: int
    local_bytes: int  # spills and stack, per thread
    shared_bytes: int
    occupancy: float  # modelled: resident warps / maximum
    cubin: bytes = field(repr=False)

    @made_once
    def mnemonics(self) -> list[str]:
        """Mnemonics of the SASS, without padding; lazy, as the disassembler takes half a second."""
        sass = _inspect("nvdisasm", "-c", self.cubin)
        found = re.findall(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)", sass)
        return [m for m in (m.rstrip(";") for m in found) if m != "NOP"]

    @property
    def instructions(self) -> int:
        """Number of instructions in the code; the body of a loop counts once."""
        return len(self.mnemonics)

    @property
    def mix(self) -> dict[str, int]:
        """Number of instructions by family."""
        return dict(Counter(map(family, self.mnemonics)).most_common())

    @property
    def loads(self) -> dict[int, int]:
        """Number of global loads in the code, by their width in bits."""
        return _widths(self.mnemonics, "LDG")

    @property
    def stores(self) -> dict[int, int]:
        """Number of global stores in the code, by their width in bits."""
        return _widths(self.mnemonics, "STG")


def compile_cubin(
    spec: KernelSpec,
    arch: int,
    variant: Variant | None = None,
    block: int | None = None,
) -> CubinReport:
    """Compile a spec for `sm_<arch>`, or find it in Triton's cache, and read its resources."""
    import_triton()
    from triton.backends.compiler import GPUTarget

    if variant is None:
        variant = Variant(
            "ragged" if spec.loop_axes or spec.core else "packed", False, gpu.is_flat(spec)
        )
    block = block or block_of(spec)
    kernel = GpuKernel(spec)
    compiled = kernel.compile(variant, GPUTarget("cuda", arch, WARP_SIZE), block)
    cubin: bytes = compiled.asm["cubin"]
    usage = _inspect("cuobjdump", "--dump-resource-usage", cubin)
    numbers = {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", usage)}
    registers, shared = numbers["REG"], numbers.get("SHARED", 0) + compiled.metadata.shared
    return CubinReport(
        name=kernel.name,
        arch=arch,
        variant=variant,
        num_warps=compiled.metadata.num_warps,
        registers=registers,
        local_bytes=numbers.get("LOCAL", 0) + numbers.get("STACK", 0),
        shared_bytes=shared,
        occupancy=occupancy(registers, shared, compiled.metadata.num_warps, arch),
        cubin=cubin,
    )


def compile_all(specs: Iterable[KernelSpec], archs: Sequence[int] = ARCHS) -> list[CubinReport]:
    """Reports of several kernels on several architectures."""
    return [compile_cubin(spec, arch) for spec in specs for arch in archs]


def occupancy(registers: int, shared_bytes: int, num_warps: int, arch: int) -> float:
    """Resident warps / maximum, as limited by registers, shared memory and blocks."""
    per_warp = -(-registers * WARP_SIZE // REGISTER_UNIT) * REGISTER_UNIT
    blocks = min(MAX_BLOCKS_PER_SM[arch], MAX_WARPS_PER_SM[arch] // num_warps)
    blocks = min(blocks, REGISTERS_PER_SM // (per_warp * num_warps))
    if shared_bytes:
        blocks = min(blocks, SHARED_BYTES_PER_SM[arch] // (shared_bytes + SHARED_BYTES_RESERVED))
    return blocks * num_warps / MAX_WARPS_PER_SM[arch]


def family(mnemonic: str) -> str:
    """The family of an instruction; "other" if `FAMILIES` has no match."""
    for name, starts in FAMILIES.items():
        if mnemonic.startswith(starts) or mnemonic.removeprefix("U").startswith(starts):
            return name
    return "other"


def _widths(mnemonics: list[str], access: str) -> dict[int, int]:
    sizes = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
    found: Counter[int] = Counter()
    for mnemonic in mnemonics:
        name, *parts = mnemonic.split(".")
        if name == access:
            found[next((sizes[p] for p in parts if p in sizes), 32)] += 1
    return dict(sorted(found.items()))


def _inspect(tool: str, option: str, cubin: bytes) -> str:
    """Run one of the tools in Triton's wheel on machine code, and return its output."""
    path = Path(import_triton().__file__).parent / "backends" / "nvidia" / "bin" / tool
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(path), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
