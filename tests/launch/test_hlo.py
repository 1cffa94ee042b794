"""Costs of compiled programs, against closed forms: loops count as often as they run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import reformer
from launch import compiling, hlo

N, STEPS, LAYERS = 64, 5, 3


def compiled(function, *shapes, **options):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(function, **options).lower(*arguments).compile()


def test_products_in_nested_loops_are_counted_as_often_as_they_run():
    def work(x, weights):
        def layer(x, w):
            return jax.lax.fori_loop(0, STEPS, lambda _, x: jnp.tanh(x @ w), x), None

        return jax.lax.scan(layer, x, weights)[0]

    program = compiled(work, (N, N), (LAYERS, N, N))
    costs = hlo.Program(program.as_text()).costs
    assert costs.flops == 2 * N**3 * STEPS * LAYERS
    # XLA's own report counts each body once: the trap that this module is for.
    assert program.cost_analysis()["flops"] < 1.5 * 2 * N**3
    # Every product reads two matrices and writes one, and the loops carry little else.
    assert 3 <= costs.bytes / (4 * N**2 * STEPS * LAYERS) < 8


def test_gradients_of_a_scanned_stack_cost_three_products_a_layer():
    def loss(weights, x):
        return jnp.sum(jax.lax.scan(lambda x, w: (x @ w, None), x, weights)[0] ** 2)

    costs = hlo.Program(compiled(jax.grad(loss, argnums=(0, 1)), (LAYERS, N, N), (N, N)).as_text()).costs
    assert costs.flops == 3 * 2 * N**3 * LAYERS


def test_a_loop_of_unknown_length_counts_as_often_as_is_said():
    def work(x, w):
        return jax.lax.while_loop(lambda x: jnp.sum(x) < 1e6, lambda x: x @ w, x)

    text = compiled(work, (N, N), (N, N)).as_text()
    for times in (1, 7):
        program = hlo.Program(text, unknown_trips=times)
        assert program.costs.flops == times * 2 * N**3
        assert program.unknown == 1


@pytest.mark.parametrize("length", [64, 120])
def test_causal_attention_costs_the_blocks_on_and_below_the_diagonal(length):
    heads, width, block = 2, 8, 16
    full = reformer.Full(shared=False, block=block)
    model = reformer.Model(vocabulary=4, length=length, layers=1, width=16, hidden=16, heads=heads, attention=full)
    text = compiled(full.attend, *[(1, heads, length, width)] * 3).as_text()
    program = hlo.Program(text, compiling.visits(model, length))
    # Forward: two products of each pair of blocks that is visited. Blocks are as equal as they can be.
    blocks = -(-length // block)
    size = -(-length // blocks)
    assert program.costs.flops == blocks * (blocks + 1) / 2 * 2 * 2 * heads * width * size**2
    assert program.unknown == 1
    assert compiling.visits(dataclasses.replace(model, attention=reformer.LSH(chunk=8)), length) == 1


def test_what_is_read_of_a_stack_is_a_slice_of_it():
    """A scan over rows reads each row once; the whole array in every round would be LAYERS times as much."""
    rows, width = 64, 4096
    costs = hlo.Program(
        compiled(
            lambda x, b: jax.lax.scan(lambda c, row: (jnp.tanh(c + row), None), b, x)[0], (rows, width), (width,)
        ).as_text()
    ).costs
    assert rows * width * 4 <= costs.bytes < 8 * rows * width * 4


def test_collectives_are_counted_with_the_bytes_of_their_results():
    mesh = Mesh(np.array(jax.devices()), ("data",), axis_types=(AxisType.Auto,))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

    def work(x, weights):
        return jax.lax.scan(lambda c, w: (c + jnp.sum(x * w[None], 0), None), jnp.zeros(N), weights)[0]

    program = compiled(work, (8 * N, N), (LAYERS, N), in_shardings=(split, whole), out_shardings=whole)
    collectives = hlo.names_of(hlo.Program(program.as_text()).costs.collectives)
    count = collectives["all-reduce"]["count"]
    assert count in (1, LAYERS)  # the compiler may add once, after the loop
    assert collectives["all-reduce"]["bytes"] == count * N * 4


CONVOLUTIONS = {
    # Plain: a window of 3 over 8 places, padded by one: the two outer places see two entries only.
    "f32[2,8,4]{2,1,0} convolution(%x, %k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f": (
        ((2, 8, 5), (3, 5, 4)), 2 * 2 * 5 * 4 * (6 * 3 + 2 * 2)),
    # A product with a batch of 6, as TPUs are given it: gaps between entries, so that each window meets one.
    "f32[6,7,4]{2,1,0} convolution(%x, %k), window={size=6 stride=5 lhs_dilate=6}, dim_labels=0bf_0io->0bf": (
        ((6, 7, 5), (6, 5, 4)), 2 * 7 * 5 * 4 * 6),
    # A product as a convolution without space.
    "f32[7,4]{1,0} convolution(%x, %k), dim_labels=bf_io->bf": (((7, 5), (5, 4)), 2 * 7 * 5 * 4),
    # Strides and dilated windows: places 0, 2, 4 with entries n and n + 3.
    "f32[1,3,1]{2,1,0} convolution(%x, %k), window={size=2 stride=2 rhs_dilate=3}, dim_labels=b0f_0io->b0f": (
        ((1, 8, 1), (2, 1, 1)), 2 * 6),
}  # fmt: skip


@pytest.mark.parametrize("line", CONVOLUTIONS)
def test_convolutions_count_entries_and_neither_padding_nor_gaps(line):
    shapes, flops = CONVOLUTIONS[line]
    parameters = [
        f"  %{name} = f32[{','.join(map(str, shape))}]{{0}} parameter({n})"
        for n, (name, shape) in enumerate(zip("xk", shapes, strict=True))
    ]
    text = "\n".join(["HloModule m", "", "ENTRY %main () -> f32[] {", *parameters, f"  ROOT %y = {line}", "}", ""])
    assert hlo.Program(text).costs.flops == flops


TPU = """HloModule m, is_scheduled=true

%body (arg: (f32[8,128], s32[])) -> (f32[8,128], s32[]) {
  %arg = (f32[8,128]{1,0:T(8,128)}, s32[]) parameter(0)
  %x = f32[8,128]{1,0:T(8,128)} get-tuple-element(%arg), index=0
  %near = f32[8,128]{1,0:T(8,128)S(1)} copy(%x), backend_config={"estimated_cycles":"10"}
  %best = (bf16[8,128]{1,0}, s32[8,128]{1,0}) custom-call(%x), custom_call_target="PartialReduce", backend_config={"estimated_cycles":"100"}
  %past = s32[] get-tuple-element(%arg), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%past, %one)
  ROOT %out = (f32[8,128]{1,0:T(8,128)}, s32[]) tuple(%x, %next)
}

%cond (arg.1: (f32[8,128], s32[])) -> pred[] {
  %arg.1 = (f32[8,128]{1,0:T(8,128)}, s32[]) parameter(0)
  %count = s32[] get-tuple-element(%arg.1), index=1
  %limit = s32[]{:T(128)} constant(12)
  ROOT %less = pred[] compare(%count, %limit), direction=LT
}

ENTRY %main (p: f32[8,128]) -> (f32[8,128], s32[]) {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  %start = (f32[8,128]{1,0}, f32[8,128]{1,0}) all-gather-start(%p), dimensions={0}
  %done = f32[8,128]{1,0} all-gather-done(%start)
  %zero = s32[] constant(0)
  %in = (f32[8,128]{1,0:T(8,128)}, s32[]) tuple(%done, %zero)
  ROOT %loop = (f32[8,128]{1,0:T(8,128)}, s32[]) while(%in), condition=%cond, body=%body
}
"""  # noqa: E501


def test_a_tpu_programs_cycles_partial_reductions_and_on_chip_memory():
    program = hlo.Program(TPU)
    assert program.costs.cycles == 12 * 110
    assert program.partial_reduces == 1
    assert program.costs.silent == 12 * (3 * 4 + 2 * 4 + 1)  # of the counter: the others have an estimate
    assert program.costs.collectives == {"all-gather": (1, 4096.0)}
    # In each round the copy reads 4 KiB (it writes on the chip), the other reads 4 KiB and writes 2 + 4 KiB.
    # The counter is a byte or two more: 4 + 4 read, 4 written, and compared.
    assert program.costs.bytes == 12 * (4096 + 4096 + 2048 + 4096 + 3 * 4 + 2 * 4 + 1) + 3 * 4096
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.Program("HloModule m")
