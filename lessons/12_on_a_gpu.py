# %% [markdown]
# # 12 · The same on a GPU
#
# | | |
# |---|---|
# | **You will be able to** | write kernels with blocks, shared memory and barriers, and find races, without a card |
# | **You need** | lessons 08 and 11; no GPU |
# | **Minutes** | 75, and 60 for the exercises |
# | **You will see** | a GPU in ten lines, products that load a quarter, and a bug that is right in every order |
#
# A GPU, or *card*, runs one function in thousands of threads. What that asks of a program can be learned without one,
# for a card can be simulated: all of it but the time. This lesson claims no speed, and measures none.

# %%
import math
import os
import subprocess
import sys
from collections import namedtuple
from functools import cache, partial

import kit
import little_gpu
import numpy as np

from gpn_ref.figures import new_figure
from gpn_ref.reference.memory import delta_forward, recall

rng, assert_close = np.random.default_rng(0), np.testing.assert_allclose

# %% [markdown]
# ## 1 · One function runs in every thread, and threads come in blocks
#
# The function is a *kernel*. Each thread does all of it, and finds its share by the number of its block, and its own in
# the block. Threads of a block can wait for each other at a *barrier*, and share a small, fast memory. Blocks run in
# any order, and never wait for each other. So this is a card: threads are generators, and a barrier is a `yield`.


# %%
Me = namedtuple("Me", "block thread threads shared")  # what a thread knows: its place, threads a block, shared memory
forwards, backwards = list, lambda them: list(them)[::-1]


def launch(kernel, blocks, threads, *arrays, order=forwards):
    for block in order(range(blocks)):
        shared = cache(lambda name, *shape: np.full(shape, np.nan))
        running = [kernel(Me(block, thread, threads, shared), *arrays) for thread in order(range(threads))]
        while running:  # each goes on to its next barrier, or ends
            running = [work for work in running if next(work, "ended") != "ended"]


def ground(me, gate, predicted, seen, grounded):
    """Lesson 02's s^g = gate ⊙ s^p + seen, (D): a thread an entry."""
    d = me.block * me.threads + me.thread
    if d < len(grounded):  # the last block has threads to spare
        grounded[d] = gate[d] * predicted[d] + seen[d]
    yield  # nobody waits for it, but a generator must have one


(gate, predicted, seen), grounded = rng.random((3, 10)), np.zeros(10)  # (D), D = 10
launch(ground, 3, 4, gate, predicted, seen, grounded)  # 3 blocks of 4 threads
print("block and thread of each entry:", *(f"{d // 4}.{d % 4}" for d in range(10)))
assert np.array_equal(grounded, gate * predicted + seen)

# %% [markdown]
# ## 2 · Neighbouring threads should take neighbouring numbers
#
# Threads run in *warps* of 32, which do the same at the same time. What a warp loads from the card's memory comes in
# pieces of 32 bytes: few, where it lies together (*coalesced*). M (K, U) lies row by row, in float32. With a column of
# M for each thread, a warp's 32 numbers are 128 bytes in a row; with a row for each, they lie in 32 places.

# %%
moved = lambda entries: len({4 * (j * 256 + u) // 32 for j, u in entries})  # noqa: E731  of entries (j, u), U = 256
with_columns, with_rows = moved((7, u) for u in range(32)), moved((j, 7) for j in range(32))
print(f"pieces for the 32 numbers of a warp: {with_columns} with a column each, {with_rows} with a row each")
assert (with_columns, with_rows) == (4, 32)

# %% [markdown]
# ## 3 · A sum goes through shared memory, with barriers
#
# A norm needs Σ x² over a state (D), and each thread has some entries. All put their sums into shared memory. Then half
# of the threads (a power of two) add the other half's to their own, then a quarter, and so on: after log₂ steps one is
# left. Between one thread's store and another's load must be a barrier. Without it a thread finds whatever is there.


# %%
def sum_of_squares(me, x, out, barrier=True):
    """x (B, D) -> out (B): block b adds up text b."""
    sums, half = me.shared("sums", me.threads), me.threads // 2
    sums[me.thread] = sum(x[me.block, d] ** 2 for d in range(me.thread, x.shape[1], me.threads))
    if barrier:
        yield
    while half:
        if me.thread < half:
            sums[me.thread] += sums[me.thread + half]
        half //= 2
        yield  # outside of the if: all threads must come to it
    if me.thread == 0:
        out[me.block] = sums[0]


x, out = rng.standard_normal((2, 10)), np.zeros(2)  # (B, D), (B)
for order in (forwards, backwards):
    launch(sum_of_squares, 2, 4, x, out, order=order)
    print("Σ x²:", out.round(3), " by NumPy:", np.sum(x**2, axis=1).round(3))
    assert_close(out, np.sum(x**2, axis=1))

# %% [markdown]
# ## 4 · Tiles: load once, use often
#
# C = A Bᵀ (m, n), of A (m, depth) and B (n, depth), with a thread an entry: 2 depth loads for depth multiply-adds. But
# the threads of a block need the same rows again and again. So a block makes a square of C, and brings the rows for it
# to shared memory slice by slice: each number is loaded once for a whole side of the square. `little_gpu` is part 1's
# card with more eyes: it lets a thread take one number at a time, counts, and needs no `yield` but for barriers.


# %%
def by_rows(me, a, b, c):
    """C = A Bᵀ, where the tile's side divides all sizes."""
    side = math.isqrt(me.threads)
    a_tile, b_tile = me.shared("a_tile", side, side), me.shared("b_tile", side, side)
    (up, across), (i, j) = divmod(me.block, c.shape[1] // side), divmod(me.thread, side)
    total = 0.0
    for start in range(0, a.shape[1], side):
        a_tile[i, j] = a[up * side + i, start + j]
        b_tile[i, j] = b[across * side + i, start + j]
        yield  # all is there
        total += sum(a_tile[i, k] * b_tile[j, k] for k in range(side))
        yield  # all is used, and may be overwritten
    c[up * side + i, across * side + j] = total


a, b, c = *rng.standard_normal((2, 8, 8)), np.zeros((8, 8))
for side in (1, 2, 4):
    loads, _ = little_gpu.launch(by_rows, (8 // side) ** 2, side**2, a, b, c)
    print(f"tiles of {side} × {side}: {loads['a'] + loads['b']:4} loads for {8**3} multiply-adds")
    assert_close(c, a @ b.T)
    assert loads["a"] + loads["b"] == 2 * 8**3 // side

# %% [markdown]
# ## 5 · The memory is cut along U
#
# Given k, β and decay, each column of M (K, U) goes its own way: Mᵀk, the error, the write and Mᵀq stay within it. So
# blocks can take a *piece* each, some columns of a head. This kernel, a thread a column, loads each entry three times.
# Kept in *registers*, a thread's own fastest memory, it would be once: an exercise. With 2 × 2 entries a thread, as in
# the figure, more threads work at a time, and part 3's sums join what they have of a column. A thread's two columns are
# 4 apart, so that neighbouring threads take neighbouring numbers (part 2). Sums over a row, M d (K) with d (U) as in
# lesson 08's d_key, go through all pieces, and blocks can't wait for each other. So each writes its share, and the next
# launch adds them up: a launch is the barrier of all blocks. Always in one order, for the last bits' sake.


# %%
def naive(me, memory, key, query, value, beta, decay, recalled):
    """memory (heads, K, U), vectors (heads, ·); block head · pieces + piece."""
    (h, piece), K = divmod(me.block, value.shape[1] // me.threads), memory.shape[1]
    u = piece * me.threads + me.thread
    error = value[h, u] - sum(memory[h, j, u] * key[h, j] for j in range(K))
    for j in range(K):
        memory[h, j, u] = decay[h] * memory[h, j, u] + beta[h] * key[h, j] * error
    recalled[h, u] = sum(memory[h, j, u] * query[h, j] for j in range(K))


M, value, (key, query), (beta, decay) = (rng.random(shape) for shape in ((2, 3, 8), (2, 8), (2, 2, 3), (2, 2)))
expected, _ = delta_forward(*(part[None] for part in (M, key, value, beta, decay)), decay_first=False)
for pieces in (1, 2, 4):
    after, recalled = M.copy(), np.zeros((2, 8))
    loads, _ = little_gpu.launch(naive, 2 * pieces, 8 // pieces, after, key, query, value, beta, decay, recalled)
    print(f"pieces of a head: {pieces}; loads of M's {M.size} entries: {loads['memory']}")
    assert_close(after, expected[0])
    assert_close(recalled, recall(expected, query[None])[0])
    assert loads["memory"] == 3 * M.size


# %%
def row_shares(me, memory, d, shares):
    """memory (K, U), d (U) -> shares (pieces, K): block `piece`, thread j. A second launch, d all ones, adds them."""
    n = len(d) // len(shares)
    shares[me.block, me.thread] = sum(memory[me.thread, u] * d[u] for u in range(me.block * n, me.block * n + n))


d, shares, d_key = rng.standard_normal(8), np.zeros((4, 3)), np.zeros((1, 3))
little_gpu.launch(row_shares, 4, 3, M[0], d, shares)
little_gpu.launch(row_shares, 1, 3, shares.T, np.ones(4), d_key)  # in one piece, with ones: the sum of the shares
assert_close(d_key[0], M[0] @ d)
figure, axes = new_figure("M of 8 × 16 in two blocks of 16 threads: which thread holds what", width=9)
axes.pcolormesh(range(16), range(8), [[0.6] * 8 + [0.9] * 8] * 8, cmap="cividis", vmin=0, vmax=1, edgecolors="white")
for j, u in np.ndindex(8, 16):
    axes.text(u, j, j % 4 * 4 + u % 4, ha="center", va="center")
axes.set(xlabel="column u: left block 0, right block 1", xticks=range(16), ylabel="row j", ylim=(7.5, -0.5))
kit.show(figure, "12_tile")

# %% [markdown]
# ## 6 · The same in numba-cuda, which compiles for a card
#
# `lessons/on_a_card.py` has part 3's kernel in numba's words, `cuda.blockIdx.x`, `cuda.shared.array` and so on. Numba
# has a simulator, too, which must be asked for before numba is imported: so this runs in a process of its own. After
# `pip install numba-cuda`, without a card as well, it also shows three versions of part 5's from the package; exercises
# need none of it. Where there is a card, say `GPU=1 python lessons/on_a_card.py`.

# %%
command, environment = [sys.executable, kit.OUT.parent / "on_a_card.py"], {"PYTHONPATH": str(kit.OUT.parents[1])}
done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
print(done.stdout or "this numba has no simulator: pip install numba-cuda")
assert done.stdout.startswith("sums of squares: 285.0 2185.0") or "ModuleNotFoundError" in done.stderr

# %% [markdown]
# ## 7 · Break it
#
# Without its first barrier, part 3 finds NaN where a thread has not written yet. But run backwards it is right: a card
# has no order, so a test needs at least two. And where all threads add to one number, no order helps, because here a
# `+=` is done before the next begins. On a card others come *between* its load and its store. So a simulator must watch
# who touches what, and `little_gpu` calls both a race, in any order. What none can tell: how long it takes.


# %%
def all_add(me, x, out, others_come=False):
    mine = out[0] + x[me.thread]
    if others_come:  # no barrier, but what may happen on a card
        yield
    out[0] = mine
    yield


# %%
no_barrier, right = partial(sum_of_squares, barrier=False), np.sum(x**2, axis=1)
ones, total, unlucky = np.ones(4), np.zeros(1), np.zeros(1)
for order in (forwards, backwards):
    launch(no_barrier, 2, 4, x, out, order=order)
    total[:] = 0
    launch(all_add, 1, 4, ones, total, order=order)
    print("no barrier:", out.round(3), "  all add 1:", total)
    assert np.allclose(out, right) == (order is backwards) and total == 4
launch(partial(all_add, others_come=True), 1, 4, ones, unlucky)
races = []
for kernel, *arrays in ((no_barrier, x, out), (all_add, ones, total), (sum_of_squares, x, out)):
    try:
        little_gpu.launch(kernel, 1, 4, *arrays)
        races.append("nothing")
    except RuntimeError as error:
        races.append(type(error).__name__)
print("all add 1, as it may go on a card:", unlucky, "  what little_gpu says:", *races)
assert unlucky == 1 and races == ["SharedRace", "GlobalRace", "nothing"]

# %% [markdown]
# ## Where the finished version lives, and what to do now
#
# `gpn_ref/fast/cuda/` and its README: `ladder.py` has part 5 in three versions, `tile.py` the figure, `products.py`
# part 4, `rows.py` part 3. On a card, `gpn_ref/fast/cuda/device_check.py` measures them. Exercises,
# `lessons/exercises/ex12_on_a_gpu.py`: sums of columns, a tiled product, and write and read with M loaded once. Grade
# yourself: `python -m lessons.check 12`. Next: lesson 13, a look inside.
