"""Training on the card: parameters, gradients and moments stay there; tokens go in, a loss and a norm come out.

The launches of a window are always the same, so the card is told them once, as a graph, and then by one launch. What
changes from step to step lies in arrays: the tokens, and the numbers of AdamW.
"""

import numpy as np

from gpn_ref.fast.cuda.layout import Flat

NORM, CLIP, LOSS = range(3)  # places in `results`
SHAPES = 4  # of windows whose arrays and graphs are kept


class Training:
    """A learner's arrays on the card: training/learner.py's Training, with these methods alike."""

    def __init__(self, engine, train_config):
        self.engine, self.card, self.config = engine, engine.card, train_config
        self._tuning, self._kernels, self._real = self.card.tuning, engine.weights.kernels, engine.dtype.type
        self.first, self.second = (Flat(self.card, engine.config, engine.dtype) for _ in range(2))
        for flat in (self.first, self.second):
            self._through(self._kernels.fill, flat.all, self._real(0))
        self.updates = 0
        self._results = self.card.empty(3, engine.dtype)
        self._rates = self.card.empty(7, engine.dtype)
        self._parts = self.card.empty((2, self._tuning.blocks), engine.dtype)
        self._windows, self._graphs = {}, {}  # the windows each with graphs of its own

    def step(self, parts, learning_rate):
        """One optimizer step -> loss, norm of the gradient before clipping.

        parts: lists of segments, (inputs, targets, share of the loss), which are windows that follow each other.
        """
        engine, grads = self.engine, self.engine.grads()
        self._again(self._graphs, "clear", lambda: self._clear(grads))
        for segments in parts:
            before = None
            for inputs, targets, share in segments:
                window, graphs = self._kept(inputs.shape)
                engine.put_inputs(window, inputs)
                engine.put_targets(window, inputs, targets)
                if before:
                    window.go_on_from(before)
                else:
                    window.start_from_zero()
                self._again(graphs, share, lambda window=window, share=share: self._learn(window, grads, share))
                before = window
        self.card.put(self._rates, self._numbers(learning_rate))
        self._again(self._graphs, "update", lambda: self.update(grads))
        results = self.card.get(self._results)
        norm, loss = float(results[NORM]), float(results[LOSS])
        if not np.isfinite(loss):
            return loss, float("nan")
        self.updates += bool(np.isfinite(norm))  # else nothing has changed
        return loss, norm

    def window(self, shape):
        """The arrays for windows of this shape."""
        return self._kept(shape)[0]

    def _kept(self, shape):
        """A window of this shape and its graphs. Only the latest SHAPES are kept, or fewer where the card is full."""
        kept = self._windows.pop(shape, None)
        if kept is None:
            self.card.wait()  # what goes away is no longer in use
            for oldest in list(self._windows)[: max(0, len(self._windows) + 1 - SHAPES)]:
                del self._windows[oldest]
            try:
                kept = self.engine.new_window(*shape, training=True), {}
            except MemoryError:
                if not self._windows:
                    raise
            if kept is None:  # not above: until there, what was made of it in vain would take up memory
                self._windows.clear()
                kept = self.engine.new_window(*shape, training=True), {}
        self._windows[shape] = kept  # the latest comes last
        return kept

    def _again(self, graphs, key, work):
        """work(): at first as it is, which compiles the kernels; from the second time on as a graph."""
        if key not in graphs:
            graphs[key] = None
            work()
            return
        graphs[key] = graphs[key] or self.card.capture(work)
        if graphs[key]:
            graphs[key].launch()
        else:
            work()

    def _through(self, kernel, *arguments):
        """A launch that goes through an array as long as all parameters."""
        self.card.launch(kernel, self._tuning.blocks, self._tuning.threads, *arguments)

    def _clear(self, grads):
        grads.clear()
        self.card.launch(self._kernels.fill, 1, self._tuning.threads, self._results, self._real(0))

    def _learn(self, window, grads, share):
        window.begin()
        window.forward(kept=True)
        window.clear_back()
        window.loss_and_back(grads, share)
        window.backward()
        window.weight_grads(grads)
        self.card.launch(
            self._kernels.add_loss, 1, self._tuning.threads, window.back.nll, self._real(share), self._results
        )

    def update(self, grads):
        """Norm, clipping, AdamW and the stacks, from what `rates` and the loss are now."""
        weights, kernels, results = self.engine.weights, self._kernels, self._results
        grads.unfold()
        self._through(kernels.largest_of, grads.flat.all, self._parts)
        self._through(kernels.squares_of, grads.flat.all, self._parts)
        threads, clip_norm = self._tuning.threads, self._real(self.config.clip_norm)
        self.card.launch(kernels.clip_of, 1, threads, self._parts, clip_norm, results)
        moments = self.first.all, self.second.all
        n_decayed = weights.flat.n_decayed
        self._through(kernels.adamw, weights.flat.all, grads.flat.all, *moments, n_decayed, self._rates, results)
        weights.prepare()

    def _numbers(self, learning_rate):
        """What adamw takes as `rates`, for the next update."""
        config, t = self.config, self.updates + 1
        return np.array(
            [
                1 - config.beta1, 1 - config.beta2, 1 / (1 - config.beta1**t), 1 / (1 - config.beta2**t),
                config.epsilon, learning_rate, config.weight_decay,
            ]
        )  # fmt: skip

    def params(self):
        """A copy of the parameters, on the host."""
        return self.engine.weights.flat.get()

    def moments(self):
        """Copies of the first and second moments, by name, and the count of updates."""
        return self.first.get(), self.second.get(), self.updates

    def load(self, params, first, second, updates):
        """Go on from what `params()` and `moments()` gave."""
        for flat, arrays in ((self.engine.weights.flat, params), (self.first, first), (self.second, second)):
            flat.put(arrays)
        self.engine.weights.prepare()
        self.updates = updates
