"""Known mistakes of exercise MasterShard, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "KeptIn16Bits": (
        "The master has 16 bits, so small steps are lost. Keep it in float32.",
        ("values.detach().float().clone()", "values.detach().bfloat16().clone()"),
        ("lr * grad.float()", "(lr * grad).to(self.master.dtype)"),
    ),
    "SentIn32Bits": (
        "float32 is sent, twice the bytes. Return bfloat16 from to_send.",
        ("self.master.bfloat16()", "self.master.clone()"),
    ),
    "SentAsFloat16": (
        "float16 is sent. It ends at 65,504: take bfloat16, which has the range of float32.",
        ("self.master.bfloat16()", "self.master.half()"),
    ),
    "SteppedUp": (
        "The step adds the gradient, so the loss grows. Subtract it.",
        ("self.master -= ", "self.master += "),
    ),
    "NoLearningRate": (
        "The learning rate is not used. Subtract lr times the gradient.",
        ("lr * grad.float()", "grad.float()"),
    ),
    "MasterIsRounded": (
        "Sending rounds the master itself to 16 bits, so small steps are lost. Round a copy.",
        (
            "        return self.master.bfloat16()",
            "        sent = self.master.bfloat16()\n        self.master = sent.float()\n        return sent",
        ),
    ),
    "StepsTheRounded": (
        "A step starts at the rounded numbers, so what rounding cut off is lost each time. Step the master itself.",
        (
            "self.master -= lr * grad.float()",
            "self.master = self.to_send().float() - lr * grad.float()",
        ),
    ),
    "GradientStaysIn16Bits": (
        "lr times a 16-bit gradient has 16 bits, so the step is rounded. Make the gradient float32 first.",
        ("lr * grad.float()", "lr * grad"),
    ),
    "SharesTheValues": (
        "The master shares its memory with the values that were given, so a step changes both. Clone them.",
        ("values.detach().float().clone()", "values.detach().float()"),
    ),
    "SentFromTheStart": (
        "What is sent is made once, so steps never reach the other ranks. Round the master at each call.",
        (
            "        self.master = values.detach().float().clone()",
            "        self.master = values.detach().float().clone()\n        self.sent = self.master.bfloat16()",
        ),
        ("return self.master.bfloat16()", "return self.sent.clone()"),
    ),
    "StepIn16Bits": (
        "lr times the gradient is computed in 16 bits. Convert the gradient to float32 first.",
        ("lr * grad.float()", "(lr * grad.bfloat16()).float()"),
    ),
}


@alternative
class WithTo:
    def __init__(self, values):
        self.master = torch.empty(values.shape, dtype=torch.float32, device=values.device).copy_(
            values
        )

    def to_send(self):
        return self.master.to(torch.bfloat16)

    def step(self, grad, lr):
        self.master.sub_(grad.to(torch.float32), alpha=lr)


@alternative
class WithAnOptimizer:
    def __init__(self, values):
        self.parameter = torch.nn.Parameter(torch.tensor(values.tolist(), device=values.device))
        self.optimizer = torch.optim.SGD([self.parameter], lr=1.0)

    @property
    def master(self):
        return self.parameter.detach()

    def to_send(self):
        return self.master.type(torch.bfloat16)

    def step(self, grad, lr):
        self.parameter.grad = grad.to(self.parameter.dtype)
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
