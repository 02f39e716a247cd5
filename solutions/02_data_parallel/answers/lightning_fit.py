"""Known mistakes of exercise lightning_fit, and right answers in other styles."""

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

from course.checks.engine import alternative, mistake


def lightning(model, loader, lr, epochs, noted=torch.Tensor.detach, **settings):
    """Losses (tensors) of a training by Lightning with the optimizer called by hand, and one idea to get wrong each."""
    import pytorch_lightning as pl

    class ByHand(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses, self.automatic_optimization = model, [], False

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            loss = F.cross_entropy(self.model(inputs), labels)
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
            self.losses.append(noted(loss))

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    here = {"accelerator": "cpu", "devices": dist.get_world_size(), "max_epochs": epochs}
    module = ByHand()
    pl.Trainer(**(quiet | here | settings)).fit(module, loader)
    return module.losses


@mistake(
    "lightning_fit",
    "Every rank trains on the whole data set. Leave use_distributed_sampler on: it gives each rank a share.",
)
def all_of_the_data(model, loader, lr, epochs):
    return [loss.item() for loss in lightning(model, loader, lr, epochs, use_distributed_sampler=False)]


@mistake(
    "lightning_fit",
    "The Trainer plans for fewer devices than there are ranks. Say devices=dist.get_world_size().",
)
def one_device(model, loader, lr, epochs):
    return [loss.item() for loss in lightning(model, loader, lr, epochs, devices=1)]


@mistake("lightning_fit", "The losses are tensors. Note loss.item(), a number.")
def tensors(model, loader, lr, epochs):
    return lightning(model, loader, lr, epochs)


@mistake(
    "lightning_fit",
    "Those are means over all ranks. The losses of this rank's own batches are asked for: note loss.item() alone.",
)
def losses_of_all_ranks(model, loader, lr, epochs):
    def averaged(loss):
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        return loss / dist.get_world_size()

    return [loss.item() for loss in lightning(model, loader, lr, epochs, noted=averaged)]


@alternative("lightning_fit")
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
    share = DataLoader(loader.dataset, loader.batch_size, sampler=DistributedSampler(loader.dataset))
    trainer = Trainer(
        accelerator="cpu", strategy="ddp", devices=dist.get_world_size(), plugins=[TorchElasticEnvironment()],
        max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, callbacks=[Listen()],
    )  # fmt: skip
    trainer.fit(fit, train_dataloaders=share)
    return losses


@alternative("lightning_fit")
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
    trainer = lightning.Trainer(
        devices=ranks, accelerator="cpu", strategy=lightning.strategies.DDPStrategy(), max_epochs=epochs,
        enable_progress_bar=False, enable_checkpointing=False, logger=False,
    )  # fmt: skip
    by_hand = ByHand()
    trainer.fit(by_hand, loader)
    return torch.stack(by_hand.history).tolist()
