"""Known mistakes of exercise adamw_step, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


class _Step:
    """The step in pieces, so that each mistake can spoil one of them."""

    def __init__(self, step, lr, betas, eps, decay, decoupled):
        self.t, self.lr, self.betas, self.eps, self.decay, self.decoupled = step, lr, betas, eps, decay, decoupled

    def coupled(self, w, grad):
        return grad if self.decoupled else grad + self.decay * w

    def average(self, mean, square, grad):
        mean.mul_(self.betas[0]).add_((1 - self.betas[0]) * grad)
        square.mul_(self.betas[1]).add_((1 - self.betas[1]) * grad * grad)

    def move(self, mean, square):
        mean, square = mean / (1 - self.betas[0] ** self.t), square / (1 - self.betas[1] ** self.t)
        return self.lr * mean / (square.sqrt() + self.eps)

    def pull(self, w):
        return self.lr * self.decay * w if self.decoupled else 0.0

    def change(self, w, grad, mean, square):
        pull = self.pull(w)
        self.average(mean, square, self.coupled(w, grad))
        w.sub_(self.move(mean, square) + pull)

    @torch.no_grad()
    def all(self, *lists):
        for parts in zip(*lists, strict=True):
            self.change(*parts)


def _wrong(advice):
    """A decorator: a class of steps -> a known mistake with the same name."""

    def mark(kind):
        def answer(
            params, grads, means, squares, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, decoupled=True
        ):
            kind(step, lr, betas, eps, weight_decay, decoupled).all(params, grads, means, squares)

        answer.__name__ = kind.__name__
        return mistake("adamw_step", advice)(answer)

    return mark


@_wrong("The decay is always added to the gradient: that is Adam with L2. With `decoupled` it acts on w alone.")
class l2_always(_Step):
    def coupled(self, w, grad):
        return grad + self.decay * w

    def pull(self, w):
        return 0.0


@_wrong("With decoupled=False the decay is not in the gradient. Add weight_decay * w to it before the running means.")
class decoupled_always(_Step):
    def coupled(self, w, grad):
        return grad

    def pull(self, w):
        return self.lr * self.decay * w


@_wrong("The decay acts twice with `decoupled`: in the gradient and on the weight. Take it out of the gradient.")
class both(_Step):
    def coupled(self, w, grad):
        return grad + self.decay * w


@_wrong("The decay is not multiplied by the learning rate. The weight moves by -lr * weight_decay * w.")
class decay_without_lr(_Step):
    def pull(self, w):
        return self.decay * w if self.decoupled else 0.0


@_wrong("The decay acts on the weight that has already moved. Take the old w: decay first, or keep a copy.")
class decay_after_the_move(_Step):
    def change(self, w, grad, mean, square):
        self.average(mean, square, self.coupled(w, grad))
        w.sub_(self.move(mean, square))
        w.sub_(self.pull(w))


@_wrong("The decay is applied before it enters the gradient too: with decoupled=False w itself must not shrink.")
class shrinks_with_l2(_Step):
    def pull(self, w):
        return self.lr * self.decay * w


@_wrong("The running means are not corrected: both begin at 0 and are too small at first. Divide by 1 - beta ** step.")
class no_correction(_Step):
    def move(self, mean, square):
        return self.lr * mean / (square.sqrt() + self.eps)


@_wrong("Only the mean is corrected, the mean of the squares is not. Divide it by 1 - beta2 ** step.")
class squares_not_corrected(_Step):
    def move(self, mean, square):
        return self.lr * mean / (1 - self.betas[0] ** self.t) / (square.sqrt() + self.eps)


@_wrong("The correction uses step + 1, as if steps counted from 0. The first step has number 1.")
class steps_from_zero(_Step):
    def __init__(self, step, *rest):
        super().__init__(step + 1, *rest)


@_wrong("eps stands inside of the root. It is added after the root is taken.")
class eps_in_the_root(_Step):
    def move(self, mean, square):
        mean, square = mean / (1 - self.betas[0] ** self.t), square / (1 - self.betas[1] ** self.t)
        return self.lr * mean / (square + self.eps).sqrt()


@_wrong("eps is added to the root of the uncorrected squares. Correct first, then take the root, then add eps.")
class eps_before_the_correction(_Step):
    def move(self, mean, square):
        root = (square.sqrt() + self.eps) / (1 - self.betas[1] ** self.t) ** 0.5
        return self.lr * mean / (1 - self.betas[0] ** self.t) / root


@_wrong("The root is missing: the mean is divided by the mean of the squares. Take its square root.")
class no_root(_Step):
    def move(self, mean, square):
        mean, square = mean / (1 - self.betas[0] ** self.t), square / (1 - self.betas[1] ** self.t)
        return self.lr * mean / (square + self.eps)


@_wrong("The betas have changed places: the first is for the mean of the gradients, the second for the squares.")
class betas_swapped(_Step):
    def __init__(self, step, lr, betas, *rest):
        super().__init__(step, lr, betas[::-1], *rest)


@_wrong("The weights of the average are swapped: beta is the share of the old mean that is kept.")
class keeps_the_new(_Step):
    def average(self, mean, square, grad):
        mean.mul_(1 - self.betas[0]).add_(self.betas[0] * grad)
        square.mul_(1 - self.betas[1]).add_(self.betas[1] * grad * grad)


@_wrong("The decay is added to the caller's gradient in place. Make a new tensor: grad + weight_decay * w.")
class into_the_gradient(_Step):
    def coupled(self, w, grad):
        return grad if self.decoupled else grad.add_(self.decay * w)


@mistake("adamw_step", "New tensors are made and the caller's stay as they were. Write into them: mul_, add_, sub_.")
def new_tensors(
    params, grads, means, squares, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, decoupled=True
):
    made = [p.detach().clone() for p in params], grads, [m.clone() for m in means], [s.clone() for s in squares]
    _Step(step, lr, betas, eps, weight_decay, decoupled).all(*made)


@mistake("adamw_step", "The list gets new means and squares; the tensors in it stay. Write into these: mul_, add_.")
@torch.no_grad()
def new_entries(
    params, grads, means, squares, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, decoupled=True
):
    made = _Step(step, lr, betas, eps, weight_decay, decoupled)
    for i, (w, grad) in enumerate(zip(params, grads, strict=True)):
        means[i], squares[i] = means[i].clone(), squares[i].clone()
        made.change(w, grad, means[i], squares[i])


@_wrong("The corrected means are stored: the next step corrects them again. Keep the correction in a new tensor.")
class corrected_in_place(_Step):
    def move(self, mean, square):
        mean.div_(1 - self.betas[0] ** self.t)
        square.div_(1 - self.betas[1] ** self.t)
        return self.lr * mean / (square.sqrt() + self.eps)


@alternative("adamw_step")
def as_in_the_paper(
    params, grads, means, squares, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, decoupled=True
):
    _Step(step, lr, betas, eps, weight_decay, decoupled).all(params, grads, means, squares)


@alternative("adamw_step")
@torch.no_grad()
def all_at_once(
    params, grads, means, squares, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, decoupled=True
):
    if not len(params) == len(grads) == len(means) == len(squares):
        raise ValueError("the lists differ in length")
    if decoupled:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    else:
        grads = torch._foreach_add(grads, params, alpha=weight_decay)
    torch._foreach_lerp_(means, grads, 1 - betas[0])
    torch._foreach_mul_(squares, betas[1])
    torch._foreach_addcmul_(squares, grads, grads, value=1 - betas[1])
    roots = torch._foreach_sqrt(torch._foreach_div(squares, 1 - betas[1] ** step))
    torch._foreach_add_(roots, eps)
    for w, mean, root in zip(params, means, roots, strict=True):
        w.addcdiv_(mean, root, value=-lr / (1 - betas[0] ** step))
