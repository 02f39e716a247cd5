"""Known mistakes of exercise run_order, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "latest_alone": (
        "Only the latest micro-batch is kept, so backward uses the wrong one. Keep each by its number.",
        ("kept[m] = x, y", "kept[0] = x, y"),
        ("kept.pop(m)", "kept[0]"),
    ),
    "one_for_all": (
        "One name holds what forward made, so backward uses the latest micro-batch for all. Keep x and y by "
        "micro-batch.",
        ("            kept[m] = x, y\n", ""),
        ("            x, y = kept.pop(m)\n", ""),
        ("y.backward(received)", "y.backward(received, retain_graph=True)"),
    ),
    "oldest_first": (
        "Backward takes the oldest micro-batch, whatever the order says. Take the one of this pass.",
        ("kept.pop(m)", "kept.pop(min(kept))"),
    ),
    "newest_first": (
        "Backward takes the newest micro-batch, whatever the order says. Take the one of this pass.",
        ("kept.pop(m)", "kept.pop(max(kept))"),
    ),
    "input_without_gradient": (
        "The input asks for no gradient, so there is none to send. Call requires_grad_() before the layers run.",
        ("received.requires_grad_()", "received"),
    ),
    "gradient_ignored": (
        "The gradient that arrives is not used. Start backward with it: y.backward(received).",
        ("y.backward(received)", "y.sum().backward()"),
    ),
    "same_gradient_sent": (
        "You send the gradient that arrived. The rank before needs the gradient of this rank's input.",
        ('wire.send("B", m, x.grad)', 'wire.send("B", m, received)'),
    ),
    "kept_forever": (
        "What backward no longer needs is kept, and memory grows with each micro-batch. Remove it: kept.pop(m).",
        ("kept.pop(m)", "kept[m]"),
    ),
    "gradient_of_the_input_alone": (
        "The weights get no gradient: torch.autograd.grad gives that of the input alone. Call y.backward(received).",
        ("    kept = {}\n", "    import torch\n\n    kept = {}\n"),
        ("y.backward(received)\n            ", ""),
        ("x.grad", "torch.autograd.grad(y, x, received)[0]"),
    ),
    "zeroed": (
        "Each micro-batch throws away the gradients of those before. Let them add up.",
        ("y.backward(received)", "layers.zero_grad(); y.backward(received)"),
    ),
    "mean_again": (
        "Gradients are divided by the number of micro-batches. What arrives is the gradient of the mean already.",
        ("y.backward(received)", "y.backward(received * 2 / len(order))"),
    ),
    "all_forward_first": (
        "All forward passes run first, whatever the order says. Run the passes in order.",
        ("in order:", 'in sorted(order, key=lambda each: each[0] == "B"):'),
    ),
    "output_sent_back": (
        "You send the layers' output back. The rank before needs the gradient of this rank's input.",
        ('wire.send("B", m, x.grad)', 'wire.send("B", m, y)'),
    ),
    "input_sent_on": (
        "You send the input on, as it came. The next rank needs what the layers make of it.",
        ('wire.send("F", m, y)', 'wire.send("F", m, x)'),
    ),
}


@mistake(
    "The layers run again in backward, which takes the time of a forward pass. Keep the output with its graph."
)
def computed_again(order, layers, wire):
    kept = {}
    for kind, m in order:
        received = wire.receive(kind, m)
        if kind == "F":
            kept[m] = received
            with torch.no_grad():
                wire.send("F", m, layers(received))
        else:
            x = kept.pop(m).requires_grad_()
            layers(x).backward(received)
            wire.send("B", m, x.grad)


@alternative
def gradients_by_hand(order, layers, wire):
    weights = list(layers.parameters())
    graphs = {}
    for kind, m in order:
        if kind == "F":
            x = wire.receive("F", m).detach().requires_grad_()
            y = layers(x)
            graphs[m] = (x, y)
            wire.send("F", m, y.detach())
            continue
        x, y = graphs[m]
        del graphs[m]
        of_x, *others = torch.autograd.grad(y, [x, *weights], wire.receive("B", m))
        for weight, gradient in zip(weights, others, strict=True):
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
        wire.send("B", m, of_x)


@alternative
def two_dicts(order, layers, wire):
    inputs, outputs = {}, {}

    def forward(m):
        inputs[m] = wire.receive("F", m).clone().requires_grad_(True)
        outputs[m] = layers(inputs[m])
        wire.send("F", m, outputs[m].detach())

    def backward(m):
        torch.autograd.backward(outputs.pop(m), wire.receive("B", m))
        wire.send("B", m, inputs.pop(m).grad)

    for kind, m in order:
        {"F": forward, "B": backward}[kind](m)
