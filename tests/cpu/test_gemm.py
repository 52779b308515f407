"""The matrix product: exact to the rounding of its sums for any shape, layout, vector width and number of threads."""

from dataclasses import dataclass, field
from functools import cache

import pytest
import torch

from aclgrad.cpu import gemm_tile, threads
from aclgrad.cpu.gemm import K_BLOCK, SHARED_COLUMNS, SHARED_K, SHARED_PANELS, gemm_for
from aclgrad.cpu.procedures import named
from aclgrad.testing import assert_within_baseline

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
OTHER_MACHINES = (
    (gemm_tile.AVX512, torch.bfloat16),
    (gemm_tile.AVX2, torch.float32),
    pytest.param(gemm_tile.AVX2, torch.float16, marks=pytest.mark.slow),
    (gemm_tile.NEON, torch.float32),
    pytest.param(gemm_tile.NEON, torch.float64, marks=pytest.mark.slow),
    pytest.param(gemm_tile.GENERIC, torch.bfloat16, marks=pytest.mark.slow),
)
GUARD = 64  # bytes behind the scratch memory, and columns beside C, that must stay as they are

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])


@cache
def compiled_product(dtype, isa):
    gemm = gemm_for(dtype, isa)
    product = gemm.product

    def kernel(thread, threads, group, c, c_row, a, a_row, a_k, b, b_k, b_column, m, n, k, height, scratch, accumulate):
        product(group, thread, threads, c, c_row, a, a_row, a_k, b, b_k, b_column, m, n, k, height, scratch, accumulate)

    return threads.compile(named(kernel, f"product_{gemm.name}"), (threads.THREAD_GROUP, *[int] * 14))


@cache
def compiled_parts(dtype):
    """pack and multiply, as one kernel that packs A in three pieces along K and computes one rectangle of tiles."""
    gemm = gemm_for(dtype)
    pack, multiply, width, depth = gemm.pack, gemm.multiply, gemm.width, gemm.operand.depth

    def kernel(thread, threads, c, a, b, packed_a, packed_b, m, n, k, height, i0, i1, j0, j1, accumulate, repack_b):
        for piece in range(3):
            begin, end = k * piece // 3 // depth * depth, k * (piece + 1) // 3 // depth * depth
            pack(packed_a, a, m, k, k, 1, height, 0, (m + height - 1) // height, begin, end if piece < 2 else k)
        if repack_b:
            pack(packed_b, b, n, 1, k, n, width, 0, (n + width - 1) // width, 0, k)
        multiply(c, n, packed_a, packed_b, m, n, k, height, i0, i1, j0, j1, accumulate)

    return threads.compile(named(kernel, f"parts_{gemm.name}"), (int,) * 15)


def poisoned(size):
    """Memory aligned as kernels expect it, all NaN, with a guard behind it."""
    block = torch.full((size + 2 * GUARD,), 0xFF, dtype=torch.uint8)
    start = -block.data_ptr() % GUARD
    return block[start : start + size + GUARD]


def matmul(a, b, *, workers=1, isa=None, start=None):
    """a @ b, or start + a @ b, by the kernel; looks after the guards."""
    (m, k), n = a.shape, b.shape[1]
    gemm = gemm_for(a.dtype, isa)
    size = gemm.product_bytes(m, n, k)
    scratch = poisoned(size)
    c = torch.full((m, n + GUARD), torch.nan, dtype=torch.promote_types(a.dtype, torch.float32))
    if start is not None:
        c[:, :n] = start
    compiled_product(a.dtype, isa)(
        workers, c.data_ptr(), c.stride(0), a.data_ptr(), *a.stride(), b.data_ptr(), *b.stride(),
        m, n, k, gemm.panel_height(m), scratch.data_ptr(), int(start is not None),
    )  # fmt: skip
    assert (scratch[size:] == 0xFF).all(), "wrote behind the scratch memory"
    assert c[:, n:].isnan().all(), "wrote beside C"
    return c[:, :n]


def assert_exact(result, a, b, start=0.0):
    """Within the bound that holds for any order of summation, element by element."""
    truth = a.double() @ b.double() + start
    k = a.shape[1]
    eps = torch.finfo(result.dtype).eps
    bound = (a.double().abs() @ b.double().abs() + abs(start)) * (k + 1) * eps
    assert ((result.double() - truth).abs() <= bound).all(), f"{tuple(a.shape)} @ {tuple(b.shape)}"


@dataclass
class Random:
    """Operands in any layout, from a seed."""

    dtype: torch.dtype
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(7))

    def pick(self, options):
        return options[int(torch.randint(len(options), (), generator=self.generator))]

    def matrix(self, rows, columns, layout):
        def normal(*shape):
            return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

        if layout == "transposed":
            return normal(columns, rows).t()
        if layout == "gapped":
            return normal(2 * rows + 1, 3 * columns + 2)[1::2, 2::3][:rows, :columns]
        if layout == "repeated":
            return normal(rows, 1).expand(rows, columns)
        return normal(rows, columns)


LAYOUTS = ("rows", "transposed", "gapped", "repeated")


def borders(gemm):
    """Sizes of M, N and K at and beside every boundary of the blocking."""
    k_block = K_BLOCK * gemm.operand.depth
    around = [0, 1, 2, 3]
    return (
        [*around, gemm.rows - 1, gemm.rows, gemm.rows + 1, 3 * gemm.rows + 1],
        [*around, gemm.width - 1, gemm.width, gemm.width + 1, 2 * gemm.width + 3],
        [*around, 15, 16, 17, 33, k_block - 1, k_block, k_block + 1],
    )


@by_dtype
@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (8, 9))])
def test_random_shapes_and_layouts(seed, dtype):
    random, gemm = Random(dtype, torch.Generator().manual_seed(seed)), gemm_for(dtype)
    sizes = borders(gemm)
    for _ in range(50):
        m, n, k = (random.pick(options) for options in sizes)
        a = random.matrix(m, k, random.pick(LAYOUTS))
        b = random.matrix(k, n, random.pick(LAYOUTS))
        start = random.pick([None, 0.5])
        assert_exact(matmul(a, b, workers=random.pick([1, 2]), start=start), a, b, start or 0.0)


@pytest.mark.parametrize("layouts", [("rows", "rows"), ("transposed", "transposed")], ids="-".join)
@by_dtype
def test_one_past_what_a_team_packs_at_a_time(dtype, layouts):
    random, gemm = Random(dtype), gemm_for(dtype)
    tall, wide, deep = SHARED_PANELS * gemm.rows + 1, SHARED_COLUMNS + 1, SHARED_K * gemm.operand.depth + 1
    for m, n, k in ((tall, 33, 40), (15, wide, 24), (17, 35, deep)):
        a, b = random.matrix(m, k, layouts[0]), random.matrix(k, n, layouts[1])
        assert_exact(matmul(a, b, workers=2), a, b)


@by_dtype
def test_is_as_accurate_as_the_product_of_widened_operands(dtype):
    if dtype == torch.float64:
        pytest.skip("nothing wider to judge by")
    random = Random(dtype)
    a, b = random.matrix(200, 3000, "rows"), random.matrix(3000, 150, "rows")
    assert_within_baseline(matmul(a, b, workers=2), a.double() @ b.double(), a.float() @ b.float())


@pytest.mark.parametrize(("isa", "dtype"), OTHER_MACHINES, ids=lambda value: getattr(value, "name", str(value)[6:]))
def test_tiles_of_other_machines(isa, dtype):
    random = Random(dtype)
    sizes = borders(gemm_for(dtype, isa))
    for _ in range(40):
        m, n, k = (random.pick(options) for options in sizes)
        a, b = random.matrix(m, k, random.pick(LAYOUTS)), random.matrix(k, n, random.pick(LAYOUTS))
        assert_exact(matmul(a, b, isa=isa), a, b)


@by_dtype
def test_the_bits_do_not_depend_on_the_team(dtype):
    random, gemm = Random(dtype), gemm_for(dtype)
    shapes = ((5 * gemm.rows + 3, 4 * gemm.width + 5, 2 * K_BLOCK * gemm.operand.depth + 7), (2, 3 * gemm.width, 70))
    for m, n, k in shapes:
        a, b = random.matrix(m, k, "rows"), random.matrix(k, n, "rows")
        alone = matmul(a, b)
        for workers in (2, 3):
            assert torch.equal(matmul(a, b, workers=workers), alone)


@by_dtype
def test_a_packed_operand_serves_many_products_and_tiles_are_independent(dtype):
    random, gemm = Random(dtype), gemm_for(dtype)
    m, n, k = 2 * gemm.rows + 1, 3 * gemm.width + 2, 101
    b = random.matrix(k, n, "rows")
    height, down, across = gemm.panel_height(m), 3, 4
    packed_a, packed_b = poisoned(gemm.packed_a_bytes(m, k)), poisoned(gemm.packed_b_bytes(n, k))
    run = compiled_parts(dtype)
    for repetition in range(2):
        a = random.matrix(m, k, "rows")
        c = torch.full((m, n), torch.nan, dtype=torch.promote_types(dtype, torch.float32))
        for i in range(down):
            for j in range(across):
                run(
                    1, c.data_ptr(), a.data_ptr(), b.data_ptr(), packed_a.data_ptr(), packed_b.data_ptr(),
                    m, n, k, height, i, i + 1, j, j + 1, 0, int(repetition == i == j == 0),
                )  # fmt: skip
        assert torch.equal(c, matmul(a, b))


@pytest.mark.parametrize("k", [1, 5, 64])
@by_dtype
def test_inf_and_nan_reach_exactly_the_elements_they_belong_to(dtype, k):
    random, gemm = Random(dtype), gemm_for(dtype)
    m, n = gemm.rows + 1, gemm.width + 1
    a, b = random.matrix(m, k, "rows"), random.matrix(k, n, "rows")
    a[1, k // 2], a[m - 1, k - 1] = torch.nan, torch.inf
    b[k - 1, 2], b[0, n - 1] = -torch.inf, torch.nan
    a[3, k - 1] = 0.0  # 0 * Inf
    expected, result = a.double() @ b.double(), matmul(a, b)
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result == torch.inf, expected == torch.inf)
    assert torch.equal(result == -torch.inf, expected == -torch.inf)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64], ids=str)
def test_other_types_are_refused_by_name(dtype):
    with pytest.raises(TypeError, match=str(dtype)[6:]):
        gemm_for(dtype)


def test_few_rows_fill_panels_evenly():
    gemm = gemm_for(torch.float32)
    for m in range(1, 5 * gemm.rows):
        height = gemm.panel_height(m)
        panels = -(-m // height)
        assert height <= gemm.rows
        assert panels == -(-m // gemm.rows)
        assert panels * height - m < panels
