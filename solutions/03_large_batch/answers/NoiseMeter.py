"""Known mistakes of exercise NoiseMeter, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "TooShortFirstPiece": (
        "The first piece's loss was divided by the rows of the whole batch, so its gradient is too short. Multiply its "
        "norm by the number of pieces.",
        ("self.pieces * self.norm()", "self.norm()"),
    ),
    "BothNormsTimesPieces": (
        "The norm after the last piece is multiplied by the number of pieces, too. It is the whole batch's: keep it.",
        ("self.large.append(self.norm())", "self.large.append(self.pieces * self.norm())"),
    ),
    "PlainNormUnderAdam": (
        "Under Adam the plain norm is taken. Divide each squared gradient by sqrt(v) + eps where the state has a v.",
        ('if "exp_avg_sq" in state:', "if False:"),
    ),
    "FirstGroupOnly": (
        "Only the first parameter group counts. An optimizer may have several: loop over optimizer.param_groups.",
        ("self.optimizer.param_groups:", "self.optimizer.param_groups[:1]:"),
    ),
    "NoBiasCorrection": (
        "v starts at zero and is too small in the first updates. Divide exp_avg_sq by 1 - beta2 ** step.",
        (' / (1 - group["betas"][1] ** state["step"])', ""),
    ),
    "FirstBeta": (
        "v is corrected with the first beta, which belongs to the mean. For v it is betas[1].",
        ('group["betas"][1]', 'group["betas"][0]'),
    ),
    "WithoutEps": (
        "A row whose gradients were all 0 has v = 0, and 0 / 0 is nan. Add eps of the group to sqrt(v).",
        ('(v.sqrt() + group["eps"])', "v.sqrt()"),
    ),
    "DividedByV": (
        "Squared gradients are divided by v. The gradient is divided by v ** (1/4), so its square by sqrt(v).",
        ("(v.sqrt() + ", "(v + "),
    ),
    "SquaresKept": (
        "Squared norms are kept. noise_scale squares the norms itself, so take the root.",
        (".sum().sqrt()", ".sum()"),
    ),
    "SumOfNorms": (
        "The norms of the tensors are added. Add their squares, and take the root at the end.",
        ("square.sum())", "square.sum().sqrt())"),
        (".sum().sqrt()\n", ".sum()\n"),
    ),
    "NeverStartsAgain": (
        "The count of pieces never returns to 0, so only one update is seen. Reset it when an update is complete.",
        ("            self.seen = 0\n", ""),
    ),
    "AppendsTooEarly": (
        "The first norm is appended before the update is complete. Keep it until the last piece.",
        ("self.first = self.pieces * self.norm()", "self.small.append(self.pieces * self.norm())"),
        ("            self.small.append(self.first)\n", ""),
    ),
    "EachPiece": (
        "Norms are taken after each piece, when grad is the sum of several. Only the first piece's and the last count.",
        ("if self.seen == 1:", "if self.seen:"),
    ),
    "UnitsOfTheStep": (
        "The gradient is divided by sqrt(v) + eps, as in Adam's step. Divide its square by it, not the gradient.",
        ('(v.sqrt() + group["eps"])', '(v.sqrt() + group["eps"]) ** 2'),
    ),
    "FirstOrLast": (
        "With one piece per update, the first is the last, too, and elif leaves it out. Ask both questions with if.",
        ("if self.seen == self.pieces", "elif self.seen == self.pieces"),
    ),
    "EpsInsideTheRoot": (
        "eps is added to v, under the root. Adam adds it to the root: v.sqrt() + eps.",
        ('(v.sqrt() + group["eps"])', '(v + group["eps"]).sqrt()'),
    ),
    "KeepsTheTensors": (
        "The gradients of the first piece are kept, but the next pieces are added to them in place. Keep their norm.",
        (
            "self.first = self.pieces * self.norm()",
            'self.first = [p.grad for g in self.optimizer.param_groups for p in g["params"] if p.grad is not None]',
        ),
        (
            "self.small.append(self.first)",
            "self.small.append(self.pieces * torch.stack([g.norm() for g in self.first]).norm())",
        ),
    ),
}


@alternative
class NormsOfTensors:
    def __init__(self, optimizer, pieces):
        self.optimizer, self.pieces = optimizer, pieces
        self.small, self.large = [], []
        self.calls = 0

    def norm(self):
        norms = []
        for group in self.optimizer.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                g, state = p.grad.detach(), self.optimizer.state.get(p, {})
                if state.get("exp_avg_sq") is not None:
                    root = (
                        state["exp_avg_sq"] / (1 - group["betas"][1] ** state["step"].item())
                    ).sqrt()
                    g = g / (root + group["eps"]).sqrt()
                norms.append(g.norm())
        return torch.stack(norms).norm()

    def after_backward(self):
        if self.calls % self.pieces == 0:
            self.first = self.norm() * self.pieces
        self.calls += 1
        if self.calls % self.pieces == 0:
            self.small.append(self.first)
            self.large.append(self.norm())


@alternative
class PlainNumbers:
    def __init__(self, optimizer, pieces):
        self.optimizer, self.pieces = optimizer, pieces
        self.small, self.large, self.of_update = [], [], []

    def norm(self):
        total = 0.0
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                weight = torch.ones_like(p)
                if "exp_avg_sq" in self.optimizer.state[p]:
                    state = self.optimizer.state[p]
                    unbiased = state["exp_avg_sq"].detach() / (
                        1 - group["betas"][1] ** float(state["step"])
                    )
                    weight = 1 / (unbiased**0.5 + group["eps"])
                total = total + float((p.grad.detach() ** 2 * weight).sum())
        return torch.tensor(total**0.5, device=p.device)

    def after_backward(self):
        self.of_update.append(self.norm())
        if len(self.of_update) == self.pieces:
            self.small.append(self.of_update[0] * self.pieces)
            self.large.append(self.of_update[-1])
            self.of_update = []
