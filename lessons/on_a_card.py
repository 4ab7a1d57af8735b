"""Lesson 12's kernels in numba-cuda, which compiles them for a card: python lessons/on_a_card.py

Without a card it runs in numba's simulator, which must be asked for before the first import of numba. With one, after
pip install -r requirements-cuda.txt: GPU=1 python lessons/on_a_card.py
"""

import os

os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "0" if os.environ.get("GPU") else "1")

import numpy as np
from numba import cuda, float64


@cuda.jit
def sum_of_squares(x, out):
    """x (B, D) -> out (B): block b adds up text b."""
    sums = cuda.shared.array(4, float64)  # its size must be known to the compiler
    b, thread = cuda.blockIdx.x, cuda.threadIdx.x
    total = 0.0
    for d in range(thread, x.shape[1], cuda.blockDim.x):
        total += x[b, d] ** 2
    sums[thread] = total
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half:
        if thread < half:
            sums[thread] += sums[thread + half]
        half //= 2
        cuda.syncthreads()
    if thread == 0:
        out[b] = sums[0]


x, out = np.arange(20.0).reshape(2, 10), np.zeros(2)
sum_of_squares[2, 4](x, out)  # 2 blocks of 4 threads
print("sums of squares:", *out)

try:
    from gpn_ref.fast.cuda import card, ladder
except ImportError:
    print("three versions of the memory's kernel: pip install numba-cuda first")
else:
    the_card = card.the_card()
    for name, version in ladder.versions(1, 4, 8, np.float64, card.SMALL).items():
        arrays = ladder.random_arrays(the_card, 1, 1, 4, 8, np.float64)  # B, H, K, U
        version.launch(the_card, 8, *arrays)
        recalled = the_card.get(arrays[-1])[0, :3].round(3)
        print(f"{name:<9} passes over M {version.passes} times and recalls", *recalled)
