"""Known mistakes of exercise channels_last, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "images_forgotten": (
        "The images were not converted: images.to(...) returns a new tensor. Pass this one to the model.",
        ("images.to(memory_format=torch.channels_last)", "images"),
    ),
    "model_forgotten": (
        "The model was not converted: its weights have their usual strides. Use model.to(...).",
        ("model.to(memory_format=torch.channels_last)", ""),
    ),
    "permuted": (
        "The axes were moved (permute), so the model sees another shape. Keep the shape; the layout is a question of "
        "strides.",
        ("images.to(memory_format=torch.channels_last)", "images.permute(0, 2, 3, 1).contiguous()"),
    ),
    "hooks_stay": (
        "The hooks stay on the model and run at every later step. Call remove() on each handle.",
        ("handle.remove()", "pass"),
    ),
    "name_of_the_last": (
        "Every hook notes the last name: it looks `name` up when it runs, and the loop has ended by then. Make the "
        "hook in a function that takes the name.",
        ("def hook_for(name)", "def hook_for(_)"),
    ),
    "on_a_copy": (
        "A copy of the model was converted and run. Convert the model that was given.",
        ("    model.to", "    model = copy.deepcopy(model).to"),
    ),
    "blocks_too": (
        "Blocks were listed, too. A leaf layer has no children: not list(module.children()).",
        ("not list(layer.children())", "True"),
    ),
    "inner_blocks_too": (
        "Blocks inside the model were listed, too. A leaf layer has no children: not list(module.children()).",
        ("not list(layer.children())", "name"),
    ),
    "all_outputs": (
        "Outputs other than images were listed, too. Keep only those with four dimensions.",
        ("output.ndim == 4", "True"),
    ),
    "usual_layout": (
        "True and False are the wrong way round: is_contiguous() alone asks for the usual layout.",
        ("contiguous(memory_format=torch.channels_last)", "contiguous()"),
    ),
    "not_the_usual_layout": (
        "Images whose height and width changed places count as channels last, too. Ask for this layout alone: "
        "is_contiguous(memory_format=torch.channels_last).",
        ("output.is_contiguous(memory_format=torch.channels_last)", "not output.is_contiguous()"),
    ),
    "in_eval_mode": (
        "The model was put into eval mode. Run it in its present mode.",
        ("    model.to", "    model.eval().to"),
    ),
    "of_the_inputs": (
        "You look at the input of each layer. Look at its output.",
        ("output.is_contiguous", "inputs[0].is_contiguous"),
    ),
}


@alternative
def by_strides(model, images):
    found = {}

    def note(name, output):
        if output.ndim == 4:
            found[name] = (
                output.stride() == output.contiguous(memory_format=torch.channels_last).stride()
            )

    model = model.to(memory_format=torch.channels_last)
    handles = [
        layer.register_forward_hook(lambda layer, inputs, output, name=name: note(name, output))
        for name, layer in model.named_modules()
        if not list(layer.children())
    ]
    with torch.no_grad():
        model(images.contiguous(memory_format=torch.channels_last))
    for handle in handles:
        handle.remove()
    return found


@alternative
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
