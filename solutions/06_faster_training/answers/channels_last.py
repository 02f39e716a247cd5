"""Known mistakes of exercise channels_last, and right answers in other styles."""

import copy
import functools

import torch

from course.checks.engine import alternative, mistake


def _is_last(tensor):
    return tensor.is_contiguous(memory_format=torch.channels_last)


def _watched(model, images, keep=False, leaves=True, judge=_is_last, ndim=4):
    """{name: judge(output)} of one run of the model as it is."""
    found, handles = {}, []

    def note(name, module, given, output):
        if output.ndim == ndim or ndim is None:
            found[name] = judge(output)

    for name, module in model.named_modules():
        if not leaves or not list(module.children()):
            handles.append(module.register_forward_hook(functools.partial(note, name)))
    with torch.no_grad():
        model(images)
    for handle in [] if keep else handles:
        handle.remove()
    return found


@mistake("channels_last", "The images were not converted: images.to(...) returns a new tensor. Hand that to the model.")
def images_forgotten(model, images):
    model.to(memory_format=torch.channels_last)
    images.to(memory_format=torch.channels_last)
    return _watched(model, images)


@mistake("channels_last", "The model was not converted: its weights have their usual strides. Use model.to(...).")
def model_forgotten(model, images):
    return _watched(model, images.to(memory_format=torch.channels_last))


@mistake(
    "channels_last",
    "The axes were moved (permute), so the model sees another shape. Keep the shape; the layout is a question of "
    "strides.",
)
def permuted(model, images):
    model.to(memory_format=torch.channels_last)
    return _watched(model, images.permute(0, 2, 3, 1).contiguous())


@mistake("channels_last", "The hooks stay on the model and run at every later step. Call remove() on each handle.")
def hooks_stay(model, images):
    model.to(memory_format=torch.channels_last)
    return _watched(model, images.to(memory_format=torch.channels_last), keep=True)


@mistake(
    "channels_last",
    "Every hook notes the last name: it looks `name` up when it runs, and the loop has ended by then. Make the hook in "
    "a function that takes the name.",
)
def name_of_the_last(model, images):
    model.to(memory_format=torch.channels_last)
    found, handles = {}, []

    def hook(module, given, output):
        if output.ndim == 4:
            found[name] = _is_last(output)

    for name, module in model.named_modules():  # noqa: B007
        if not list(module.children()):
            handles.append(module.register_forward_hook(hook))
    with torch.no_grad():
        model(images.to(memory_format=torch.channels_last))
    for handle in handles:
        handle.remove()
    return found


@mistake("channels_last", "A copy of the model was converted and run. Convert the model that was given.")
def on_a_copy(model, images):
    twin = copy.deepcopy(model).to(memory_format=torch.channels_last)
    return _watched(twin, images.to(memory_format=torch.channels_last))


@mistake("channels_last", "Blocks were listed, too. A leaf layer has no children: not list(module.children()).")
def blocks_too(model, images):
    model.to(memory_format=torch.channels_last)
    return _watched(model, images.to(memory_format=torch.channels_last), leaves=False)


@mistake("channels_last", "Outputs that are no images were listed, too. Only those with four dimensions have a layout.")
def all_outputs(model, images):
    model.to(memory_format=torch.channels_last)
    judge = lambda output: output.ndim == 4 and _is_last(output)  # noqa: E731
    return _watched(model, images.to(memory_format=torch.channels_last), judge=judge, ndim=None)


@mistake("channels_last", "True and False are the wrong way round: is_contiguous() alone asks for the usual layout.")
def usual_layout(model, images):
    model.to(memory_format=torch.channels_last)
    return _watched(model, images.to(memory_format=torch.channels_last), judge=torch.Tensor.is_contiguous)


@mistake(
    "channels_last",
    "`not is_contiguous()` is True of every layout but the usual one. Ask for this one: is_contiguous with a "
    "memory_format.",
)
def not_the_usual_layout(model, images):
    model.to(memory_format=torch.channels_last)
    judge = lambda output: not output.is_contiguous()  # noqa: E731
    return _watched(model, images.to(memory_format=torch.channels_last), judge=judge)


@mistake("channels_last", "The model was put into eval mode. It is to run in the mode that it is in.")
def in_eval_mode(model, images):
    model.eval().to(memory_format=torch.channels_last)
    return _watched(model, images.to(memory_format=torch.channels_last))


@mistake("channels_last", "The input of each layer was looked at. Asked is its output.")
def of_the_inputs(model, images):
    model.to(memory_format=torch.channels_last)
    found, handles = {}, []

    def note(name, module, given, output):
        if output.ndim == 4:
            found[name] = _is_last(given[0])

    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(module.register_forward_hook(functools.partial(note, name)))
    with torch.no_grad():
        model(images.to(memory_format=torch.channels_last))
    for handle in handles:
        handle.remove()
    return found


@alternative("channels_last")
def by_strides(model, images):
    model = model.to(memory_format=torch.channels_last)
    judge = lambda output: output.stride() == output.contiguous(memory_format=torch.channels_last).stride()  # noqa: E731
    return _watched(model, images.contiguous(memory_format=torch.channels_last), judge=judge)


@alternative("channels_last")
def with_one_hook_for_all(model, images):
    names = {module: name for name, module in model.named_modules() if not list(module.children())}
    found = {}

    def note(module, given, output):
        if module in names and output.dim() == 4:
            batch, channels, height, width = output.shape
            wanted = (channels * height * width, 1, width * channels, channels)
            found[names[module]] = output.stride() == wanted

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        model.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    finally:
        handle.remove()
    return found
