"""Known mistakes of exercise untouched, and right answers in other styles."""

import copy

from course.engine.known_answers import alternative

MISTAKES = {
    "kept_without_a_copy": (
        "The values are kept without a copy: they change with the parameters, so nothing seems to move. Clone them.",
        (".clone()", ""),
    ),
    "those_that_moved": (
        "These are the names of the parameters that moved. Return those of the others.",
        ("if torch", "if not torch"),
    ),
    "those_without_gradients": (
        "You compare gradients, but only the optimizer changes a parameter. Compare the values.",
        ("torch.equal(parameter, before[name])", "parameter.grad is None"),
    ),
    "sums_compared": (
        "Sums are compared. Changes that cancel, and small ones, do not show in a sum: compare all values.",
        ("detach().clone()", "sum().item()"),
        (
            "torch.equal(parameter, before[name])",
            "abs(parameter.sum().item() - before[name]) < 1e-4",
        ),
    ),
    "any_value_stayed": (
        "A parameter counts as untouched if any of its values stayed. It is untouched only if all of them did.",
        ("torch.equal(parameter, before[name])", "(parameter == before[name]).any()"),
    ),
    "trained_twice": (
        "`train` is called twice. Once is enough: each call trains.",
        ("    train()\n", "    train()\n    train()\n"),
    ),
    "from_the_state_dict": (
        "state_dict() lists buffers, too, such as running means. No optimizer trains them: use named_parameters().",
        ("named_parameters()}", "state_dict().items()}"),
        ("named_parameters() if", "state_dict().items() if"),
    ),
    "state_dict_without_a_copy": (
        "state_dict() holds the values themselves, not copies: they change with the model. Clone each of them.",
        (".clone()", ""),
        ("named_parameters()}", "state_dict().items()}"),
        ("named_parameters() if", "state_dict().items() if"),
    ),
    "compared_with_tolerance": (
        "allclose ignores small changes. A small learning rate makes small changes: compare with torch.equal.",
        ("torch.equal", "torch.allclose"),
    ),
    "never_trained": (
        "`train` is never called, so nothing can change. Call train() before you compare.",
        ("    train()\n", ""),
    ),
    "parameters_instead_of_names": (
        "These are the parameters themselves. Return their names, as named_parameters() gives them.",
        ("[name for", "[parameter for"),
    ),
}


@alternative
def with_a_deep_copy(train, model):
    before = copy.deepcopy(model)
    train()
    pairs = zip(before.named_parameters(), model.named_parameters(), strict=True)
    return [name for (name, old), (_, new) in pairs if bool((old == new).all())]


@alternative
def with_lists(train, model):
    before = [(name, p.tolist()) for name, p in model.named_parameters()]
    train()
    now = dict(model.named_parameters())
    return [name for name, values in before if now[name].tolist() == values]
