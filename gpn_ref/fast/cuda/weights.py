"""The parameters on the card, what is prepared from them, and their gradients."""

from gpn_ref.fast.cuda.layout import Flat, empty_stacks, look
from gpn_ref.fast.cuda.whole import whole_kernels


class Weights:
    """All parameters, and the stacks that the products take: matrices that look at one state, with their norms."""

    def __init__(self, card, config, s, dtype, params):
        self.card, self.s = card, s
        self.kernels = whole_kernels(dtype.type, card.tuning.threads)
        self.flat = Flat(card, config, dtype)
        self.flat.put(params)
        self.stacks = empty_stacks(card, s, dtype)
        for stack in self.stacks.looks:  # what a stack has beyond its parts stays 0
            card.launch(
                self.kernels.fill, card.tuning.blocks, card.tuning.threads, stack.reshape(stack.size), dtype.type(0)
            )  # fmt: skip
        self.prepare()

    def __getitem__(self, name):
        return self.flat[name]

    def folded(self):
        """(matrix, norm, stack, the stack's first row), of each matrix that looks through a norm."""
        yield "ground.proj.weight", "ground.norm.weight", "ground", None, 0
        yield "ground.gate.weight", "ground.gate.norm.weight", "ground_gate", None, 0
        for i in range(self.s.N):
            for part in look(self.s, i).values():
                yield part.matrix, part.norm, "looks", i, part.start
        yield "decode.proj.weight", "decode.norm.weight", "decode", None, 0

    def prepare(self):
        """Fill the stacks, after the parameters have changed."""
        card, kernels, threads = self.card, self.kernels, self.card.tuning.threads
        for matrix, norm, stack, i, first in self.folded():
            weight = self.flat[matrix]
            card.launch(
                kernels.fold, weight.shape[0], threads, weight, self.flat[norm], at(self.stacks, stack, i), first
            )
        for i, stack in enumerate(self.stacks.outs):
            card.launch(kernels.join, self.s.D, threads, self.flat[f"layers.{i}.ffn.out.weight"], stack, 0)
            if self.s.H:
                card.launch(kernels.join, self.s.D, threads, self.flat[f"layers.{i}.read.out.weight"], stack, self.s.F)


class Grads:
    """The gradient of every parameter, and of the stacks, from which those of matrices and norms are had."""

    def __init__(self, weights, config, dtype):
        self.weights, self.card, self.s = weights, weights.card, weights.s
        self.zero = dtype.type(0)
        self.flat = Flat(self.card, config, dtype)
        self.stacks = empty_stacks(self.card, self.s, dtype)._replace(outs=[])
        self.sums = self.card.empty((self.card.tuning.pieces, max(self.s.D, self.s.E)), dtype)

    def __getitem__(self, name):
        return self.flat[name]

    def clear(self):
        """All to zero: what follows adds."""
        card, fill = self.card, self.weights.kernels.fill
        stacks = [self.stacks.ground, self.stacks.ground_gate, *self.stacks.looks, self.stacks.decode]
        for array in (self.flat.all, *stacks):
            card.launch(fill, card.tuning.blocks, card.tuning.threads, array.reshape(array.size), self.zero)

    def unfold(self):
        """From the stacks' gradients to those of matrices and norms."""
        card, kernels, threads = self.card, self.weights.kernels, self.card.tuning.threads
        for matrix, norm, stack, i, first in self.weights.folded():
            weight = self.weights[matrix]
            columns = weight.shape[1]
            grid = -(-columns // threads), self.sums.shape[0]
            card.launch(
                kernels.unfold, grid, threads, at(self.stacks, stack, i), first, weight, self.weights[norm],
                self.flat[matrix], self.sums,
            )  # fmt: skip
            rows = (0, self.sums.shape[0], 0, columns)
            card.launch(kernels.column_sums, (grid[0], 1), threads, self.sums, *rows, self.flat[norm], 0)


def at(stacks, name, i):
    """A stack by its name, that of layer i where there is one for each layer."""
    stack = getattr(stacks, name)
    return stack if i is None else stack[i]
