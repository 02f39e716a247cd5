"""Pictures and names of people for the probes of LFWDataset and heavy_transform."""

import torch
from PIL import Image

PEOPLE = ("Avel_Borin", "Cora_Dunn", "Ede", "Zita_van_Aa")  # as folders are named


def picture(rng: torch.Generator, height: int = 20, width: int = 26) -> Image.Image:
    """A smooth PIL image in mode RGB, which JPEG keeps well."""
    coarse = torch.randint(256, (4, 5, 3), generator=rng, dtype=torch.uint8)
    return Image.fromarray(coarse.numpy()).resize((width, height), Image.Resampling.BICUBIC)
