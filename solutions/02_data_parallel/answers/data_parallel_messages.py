"""Known mistakes of exercise data_parallel_messages, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def _counts(n, parameters, batch, outputs, crossing=None, forward=None, backward=None):
    """The right counts, with some of the numbers replaced."""
    others = n - 1
    crossing = others if crossing is None else crossing
    return {
        "forward_messages": 3 * n,
        "forward_crossing": 3 * crossing,
        "forward_bytes": crossing * (parameters + (batch + outputs) // n) if forward is None else forward,
        "backward_messages": 2 * n,
        "backward_crossing": 2 * crossing,
        "backward_bytes": crossing * (parameters + outputs // n) if backward is None else backward,
    }


@mistake(
    "data_parallel_messages",
    "The messages from place 0 to place 0 leave no device. Only M - 1 places are somewhere else.",
)
def place_0_crosses(n, parameters, batch, outputs):
    return _counts(n, parameters, batch, outputs, crossing=n)


@mistake(
    "data_parallel_messages",
    "Every device is sent the whole batch. It gets one M-th of it, and returns one M-th of the outputs.",
)
def whole_batch_each(n, parameters, batch, outputs):
    others = n - 1
    forward, backward = others * (parameters + batch + outputs), others * (parameters + outputs)
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@mistake(
    "data_parallel_messages",
    "The parameters are shared out like the batch. Every replica needs all of them, and has gradients for all.",
)
def parameters_are_cut(n, parameters, batch, outputs):
    others = n - 1
    forward, backward = others * (parameters + batch + outputs) // n, others * (parameters + outputs) // n
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@mistake(
    "data_parallel_messages",
    "The bytes count what place 0 sends to itself. Only M - 1 devices are somewhere else.",
)
def bytes_of_place_0(n, parameters, batch, outputs):
    forward, backward = n * (parameters + (batch + outputs) // n), n * (parameters + outputs // n)
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@mistake(
    "data_parallel_messages",
    "The bytes of the forward count what place 0 sends to itself. Only M - 1 devices are somewhere else.",
)
def forward_bytes_of_place_0(n, parameters, batch, outputs):
    return _counts(n, parameters, batch, outputs, forward=n * (parameters + (batch + outputs) // n))


@mistake(
    "data_parallel_messages",
    "The bytes of the backward count what place 0 sends to itself. Only M - 1 devices are somewhere else.",
)
def backward_bytes_of_place_0(n, parameters, batch, outputs):
    return _counts(n, parameters, batch, outputs, backward=n * (parameters + outputs // n))


@mistake(
    "data_parallel_messages",
    "The gradients of the parameters are shared out. Each replica has, and sends back, gradients of all parameters.",
)
def gradients_are_cut(n, parameters, batch, outputs):
    return _counts(n, parameters, batch, outputs, backward=(n - 1) * (parameters // n + outputs // n))


@mistake(
    "data_parallel_messages",
    "The parameters are sent once, as if one message reached all devices. Each replica gets a message of its own.",
)
def parameters_once(n, parameters, batch, outputs):
    others = n - 1
    once = parameters if others else 0
    forward, backward = once + others * (batch + outputs) // n, once + others * outputs // n
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@mistake(
    "data_parallel_messages",
    "The backward sends gradients of the batch as well. Nobody needs them: the outputs' go out, the parameters' back.",
)
def gradients_of_the_batch(n, parameters, batch, outputs):
    backward = (n - 1) * (parameters + (batch + outputs) // n)
    return _counts(n, parameters, batch, outputs, backward=backward)


@mistake("data_parallel_messages", "Bytes are whole numbers, and / makes floats. Divide with //.")
def float_bytes(n, parameters, batch, outputs):
    others = n - 1
    forward, backward = others * (parameters + (batch + outputs) / n), others * (parameters + outputs / n)
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@alternative("data_parallel_messages")
def listed_messages(n_devices, parameter_bytes, batch_bytes, output_bytes):
    output = output_bytes // n_devices
    steps = {"forward": [batch_bytes // n_devices, parameter_bytes, output], "backward": [output, parameter_bytes]}
    found = {}
    for way, sizes in steps.items():
        messages = [(place, size) for place in range(n_devices) for size in sizes]
        crossing = [size for place, size in messages if place]
        found[f"{way}_messages"] = len(messages)
        found[f"{way}_crossing"] = len(crossing)
        found[f"{way}_bytes"] = sum(crossing)
    return found


@alternative("data_parallel_messages")
def from_all_to_others(n_devices, parameter_bytes, batch_bytes, output_bytes):
    m = n_devices
    both = m * parameter_bytes + output_bytes - parameter_bytes - output_bytes // m
    return dict(
        backward_bytes=both,
        backward_crossing=m + m - 2,
        backward_messages=m + m,
        forward_bytes=both + batch_bytes - batch_bytes // m,
        forward_crossing=3 * m - 3,
        forward_messages=3 * m,
    )
