"""Known mistakes of exercise lightning_fit, and right answers in other styles."""

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

from course.engine.known_answers import alternative

MISTAKES = {
    "all_of_the_data": (
        "Every rank trains on the whole data set. Leave use_distributed_sampler on: it gives each rank a share.",
        ("logger=False", "logger=False, use_distributed_sampler=False"),
    ),
    "one_device": (
        "The Trainer plans for fewer devices than there are ranks. Say devices=dist.get_world_size().",
        ("devices=ranks", "devices=1"),
    ),
    "trains_a_copy": (
        "A copy of the model is trained, and `model` keeps its weights. Keep `model` itself in the module.",
        (
            "self.model = model",
            "self.model = __import__('copy').deepcopy(model)",
        ),
    ),
    "with_momentum": (
        "This is SGD with momentum. Plain SGD has only a learning rate.",
        ("SGD(self.model.parameters(), lr)", "SGD(self.model.parameters(), lr, momentum=0.9)"),
    ),
    "tensors": (
        "The losses are tensors. Note loss.item(), a number.",
        ("loss.item()", "loss.detach()"),
    ),
    "losses_of_all_ranks": (
        "Those are means over all ranks. Return the losses of this rank's own batches: note loss.item() alone.",
        (
            "self.losses.append(loss.item())",
            "mean = loss.detach().clone()\n            dist.all_reduce(mean)\n"
            "            self.losses.append(mean.item() / ranks)",
        ),
    ),
}


@alternative
def own_sampler_and_a_callback(model, loader, lr, epochs):
    from pytorch_lightning import Callback, LightningModule, Trainer
    from pytorch_lightning.plugins.environments import TorchElasticEnvironment

    class Fit(LightningModule):
        def training_step(self, batch):
            return torch.nn.CrossEntropyLoss()(model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(model.parameters(), lr=lr)

    class Listen(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            losses.append(float(outputs["loss"]))

    losses, fit = [], Fit()
    fit.net = model
    share = DataLoader(
        loader.dataset, loader.batch_size, sampler=DistributedSampler(loader.dataset)
    )
    own = dict(
        strategy="ddp",
        plugins=[TorchElasticEnvironment()],
        use_distributed_sampler=False,
        callbacks=[Listen()],
    )
    quiet = dict.fromkeys(
        ["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False
    )
    trainer = Trainer(
        accelerator="cpu", devices=dist.get_world_size(), max_epochs=epochs, **own, **quiet
    )
    trainer.fit(fit, train_dataloaders=share)
    return losses


@alternative
def optimized_by_hand(model, loader, lr, epochs):
    import os

    import pytorch_lightning as lightning

    class ByHand(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.network, self.history = model, []

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            optimizer = self.optimizers()
            loss = F.nll_loss(F.log_softmax(self.network(inputs), 1), labels)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.history.append(loss.detach())

        def configure_optimizers(self):
            return {"optimizer": torch.optim.SGD(self.parameters(), lr)}

    ranks = int(os.environ["WORLD_SIZE"])
    quiet = dict.fromkeys(
        ["enable_progress_bar", "enable_checkpointing", "enable_model_summary", "logger"], False
    )
    strategy = lightning.strategies.DDPStrategy()
    trainer = lightning.Trainer(
        devices=ranks, accelerator="cpu", strategy=strategy, max_epochs=epochs, **quiet
    )
    by_hand = ByHand()
    trainer.fit(by_hand, loader)
    return torch.stack(by_hand.history).tolist()
