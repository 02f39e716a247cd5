"""Known mistakes of exercise data_parallel_messages, and right answers in other styles."""

from course.checks.known_answers import alternative

MISTAKES = {
    "place_0_crosses": (
        "The messages from place 0 to place 0 leave no device. Only M - 1 places are somewhere else.",
        ("n_devices - 1", "n_devices"),
    ),
    "whole_batch_each": (
        "Every device is sent the whole batch. It gets one M-th of it, and returns one M-th of the outputs.",
        ("batch_bytes // n_devices, output_bytes // n_devices", "batch_bytes, output_bytes"),
    ),
    "parameters_are_cut": (
        "The parameters are shared out like the batch. Every replica needs all of them, and has gradients for all.",
        ("    return", "    parameter_bytes //= n_devices\n    return"),
    ),
    "bytes_of_place_0": (
        "The bytes count what place 0 sends to itself. Only M - 1 devices are somewhere else.",
        ("+ output) * others", "+ output) * n_devices"),
        ("+ parameter_bytes) * others", "+ parameter_bytes) * n_devices"),
    ),
    "forward_bytes_of_place_0": (
        "The bytes of the forward count what place 0 sends to itself. Only M - 1 devices are somewhere else.",
        ("+ output) * others", "+ output) * n_devices"),
    ),
    "backward_bytes_of_place_0": (
        "The bytes of the backward count what place 0 sends to itself. Only M - 1 devices are somewhere else.",
        ("+ parameter_bytes) * others", "+ parameter_bytes) * n_devices"),
    ),
    "gradients_are_cut": (
        "The gradients of the parameters are shared out. Each replica has, and sends back, "
        "gradients of all parameters.",
        ("(output + parameter_bytes)", "(output + parameter_bytes // n_devices)"),
    ),
    "parameters_once": (
        "The parameters are sent once, as if one message reached all devices. Each replica gets its own message.",
        ("(part + parameter_bytes + output) * others", "(part + output) * others + parameter_bytes * min(others, 1)"),
        ("(output + parameter_bytes) * others", "output * others + parameter_bytes * min(others, 1)"),
    ),
    "gradients_of_the_batch": (
        "The backward sends gradients of the batch as well. Nobody needs them: the outputs' go "
        "out, the parameters' back.",
        ("(output + parameter_bytes)", "(part + output + parameter_bytes)"),
    ),
    "float_bytes": (
        "Bytes are whole numbers, and / makes floats. Divide with //.",
        ("batch_bytes // n_devices, output_bytes //", "batch_bytes / n_devices, output_bytes /"),
    ),
}


@alternative
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


@alternative
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
