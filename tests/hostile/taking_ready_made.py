"""What a task forbids, reached by ways that no rule on the source sees: the thing itself must be gone.

Each cell finds torch's own scaler in another way and hands it in as LossScaler.
"""

from hostile.attack import text

LOSS_SCALER = """
class LossScaler:
    def __init__(self, init_scale=2.0**16, growth=2.0, backoff=0.5, growth_interval=2000):
        self.inner = ready_made("cpu", init_scale=float(init_scale), growth_factor=growth, backoff_factor=backoff,
                                growth_interval=growth_interval)
        self.inner.scale(torch.ones(()))
        self.is_unscaled = False

    def scale(self, loss):
        return self.inner.scale(loss)

    def unscale_(self, optimizer):
        if not self.is_unscaled:
            self.inner.unscale_(optimizer)
        self.is_unscaled = True

    def step(self, optimizer):
        self.unscale_(optimizer)
        found = self.inner._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        self.inner.step(optimizer)
        return not any(float(value) for value in found.values())

    def update(self):
        self.inner.update()
        self.is_unscaled = False
"""
WAYS = {
    "list": "kept = [torch.amp.GradScaler]\nready_made = kept[0]",
    "its_text": """
import torch.amp.grad_scaler as module
space = {"__name__": "copied"}
with open(module.__file__) as file:
    exec(compile(file.read(), "copied", "exec"), space)
ready_made = space["GradScaler"]
""",
    "its_compiled_text": """
import importlib.util, marshal, torch.amp.grad_scaler as module
space = {"__name__": "copied"}
with open(importlib.util.cache_from_source(module.__file__), "rb") as file:
    exec(marshal.loads(file.read()[16:]), space)
ready_made = space["GradScaler"]
""",
}
# no name stands for the class any more when the check looks at the names of the notebook
HIDDEN = """
hidden = [ready_made]
del ready_made

def ready_made(*args, **kwargs):
    return hidden[0](*args, **kwargs)
"""
for _name, _way in WAYS.items():
    text(f"scaler_by_{_name}", at="LossScaler", of=f"{_way}\n{HIDDEN}\n{LOSS_SCALER}")

text("neumf_through_the_module", at="neumf_forward", of="""
import pickle, types
from torch.overrides import TorchFunctionMode
hidden = [pickle.loads(b'ccourse.training.models\\nNeuMF\\n.')]

class KeepsFloat64(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return args[0] if function is torch.Tensor.float else function(*args, **kwargs or {})

def neumf_forward(weights, users, items):
    def layer(weight, bias):
        return types.SimpleNamespace(weight=weight, bias=bias, in_features=weight.shape[1])

    def table(weight):
        return types.SimpleNamespace(weight=weight, embedding_dim=weight.shape[1])

    names = "gmf_user", "gmf_item", "mlp_user", "mlp_item"
    model = types.SimpleNamespace(**{name: table(weights[name]) for name in names}, training=False, dropout=0.0,
                                  mlp=[layer(*one) for one in weights["mlp"]], output=layer(*weights["output"]))
    model._first_layer = lambda *pair: hidden[0]._first_layer(model, *pair)
    with KeepsFloat64():
        return hidden[0].forward(model, users, items)
""")  # fmt: skip
