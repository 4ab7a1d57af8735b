"""The same equations as a PyTorch user would write them down: eager, a loop over tokens, differentiated by autograd.

Only the device check imports this module, where PyTorch is installed. What waits for no step stands outside the loop:
the embedded tokens' product before it, the decoder behind it. Names of parameters are ours.
"""

import torch
import torch.nn.functional as F

from gpn_ref.parameters import is_decayed


# ------------------------------------------------------------------------------------------------ the equations
def rms(x, weight):
    return x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-6) * weight


def l2(x):
    return x * torch.rsqrt(torch.sum(x * x, dim=-1, keepdim=True) + 1e-12)


def gate(params, name, x):
    normed = rms(x, params[f"{name}.norm.weight"])
    return torch.sigmoid(F.linear(normed, params[f"{name}.weight"], params[f"{name}.bias"]))


def address(params, name, normed, n_heads):
    """A key or a query: (B, D) -> (B, H, K)."""
    pre = F.linear(normed, params[f"{name}.weight"], params[f"{name}.bias"])
    return l2(torch.relu(pre.reshape(len(pre), n_heads, -1)))


def recall(memory, key):
    """Mᵀ key: (B, H, K, U), (B, H, K) -> (B, H, U)."""
    return (key[:, :, None] @ memory)[:, :, 0]


def write(params, config, previous, grounded, memory):
    scale, H = params["write.norm.weight"], config.n_heads
    key = address(params, "write.key", rms(previous, scale), H)
    normed = rms(grounded, scale)
    value = F.linear(normed, params["write.value.weight"]).reshape(len(normed), H, -1)
    beta = torch.sigmoid(F.linear(normed, params["write.beta.weight"]))  # (B, H)
    step_size = F.softplus(F.linear(normed, params["write.decay.weight"], params["write.decay.bias"]))
    decay = torch.exp(-torch.exp(params["write.log_rate"]) * step_size)[:, :, None]  # (B, H, 1)
    recalled = recall(memory, key)
    error = value - (decay * recalled if config.decay_first else recalled)
    return decay[..., None] * memory + key[..., None] * (beta[:, :, None] * error)[:, :, None]


def read(params, config, name, x, memory):
    normed = rms(x, params[f"{name}.norm.weight"])
    recalled = recall(memory, address(params, f"{name}.query", normed, config.n_heads)).reshape(len(x), -1)
    recalled = rms(recalled, params[f"{name}.out_norm.weight"])
    return F.linear(F.silu(F.linear(normed, params[f"{name}.gate.weight"])) * recalled, params[f"{name}.out.weight"])


def predict(params, config, name, x, memory):
    normed = rms(x, params[f"{name}.ffn.norm.weight"])
    value = F.linear(normed, params[f"{name}.ffn.value.weight"])
    hidden = F.silu(F.linear(normed, params[f"{name}.ffn.gate.weight"])) * value
    out = gate(params, f"{name}.gate", x) * x + F.linear(hidden, params[f"{name}.ffn.out.weight"])
    return out + read(params, config, f"{name}.read", x, memory) if config.n_heads else out


def forward(params, config, inputs):
    """inputs (B, T) -> logits (B, T, V), from the zero state."""
    embedding = params["embedding.weight"]
    seen = F.linear(rms(embedding[inputs], params["ground.norm.weight"]), params["ground.proj.weight"])  # (B, T, D)
    predicted = previous = torch.zeros_like(seen[:, 0])
    shape = len(inputs), config.n_heads, config.d_key, config.d_value
    memory = torch.zeros(shape, dtype=seen.dtype, device=seen.device)
    states = []
    for t in range(inputs.shape[1]):
        grounded = gate(params, "ground.gate", predicted) * predicted + seen[:, t]
        if config.n_heads:
            memory = write(params, config, previous, grounded, memory)
        predicted = grounded
        for i in range(config.n_layers):
            predicted = predict(params, config, f"layers.{i}", predicted, memory)
        previous = grounded
        states.append(predicted)
    states = rms(torch.stack(states, 1), params["decode.norm.weight"])  # (B, T, D)
    return F.linear(F.linear(states, params["decode.proj.weight"], params.get("decode.bias")), embedding)


# ------------------------------------------------------------------------------------------------ the optimizer
class Plain:
    """Parameters on PyTorch's side, and AdamW. `step` returns when its result is there."""

    def __init__(self, config, train_config, params, device):
        torch.set_float32_matmul_precision("highest")  # no TF32
        self._config, self._train_config, self._device = config, train_config, device
        self.params = {name: torch.tensor(value, device=device, requires_grad=True) for name, value in params.items()}
        groups = {train_config.weight_decay: [], 0.0: []}
        for name, param in self.params.items():
            groups[train_config.weight_decay if is_decayed(name, tuple(param.shape)) else 0.0].append(param)
        self._optimizer = torch.optim.AdamW(
            [{"params": group, "weight_decay": decay} for decay, group in groups.items()],
            betas=(train_config.beta1, train_config.beta2),
            eps=train_config.epsilon,
        )

    def step(self, inputs, targets, learning_rate):
        """A whole training step -> loss, norm of the gradient before clipping."""
        inputs, targets = (torch.as_tensor(tokens, device=self._device) for tokens in (inputs, targets))
        logits = forward(self.params, self._config, inputs)
        loss = F.cross_entropy(logits.reshape(-1, self._config.vocab_size), targets.reshape(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.params.values(), self._train_config.clip_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.item(), norm.item()
