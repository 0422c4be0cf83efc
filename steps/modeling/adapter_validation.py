"""The loss on held-out conversations while an adapter is trained, and the training's early end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import TrainerCallback

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import StepError, report
from steps.modeling.reply_measures import mean_token_loss
from steps.text.assistant_mask import Example


def adapter_tensors(model: PeftModel) -> dict[str, torch.Tensor]:
    """The adapter's own tensors in float32 on the CPU, sorted by name."""
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    return {name: tensor.detach().float().cpu().contiguous() for name, tensor in sorted(state.items())}


class AdapterValidation(TrainerCallback):
    """Measures after every so many steps and after the last one; keeps the best adapter where one will be asked for.

    history: (step, nats a trained token) of each validation. best: of the lowest loss, None without early stopping.
    """

    def __init__(self, heldout: Sequence[Example], config: FineTuneConfig, steps_per_pass: int) -> None:
        self.history: list[tuple[int, float]] = []
        self.best: dict[str, torch.Tensor] | None = None
        self._heldout = heldout
        self._batch_conversations = config.batch_conversations
        self._every = config.validate_every_steps or steps_per_pass
        self._patience = config.early_stopping_validations
        self._precision = config.precision

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measures and, after enough validations without a lower loss, ends the training."""
        if state.global_step % self._every != 0 and state.global_step != state.max_steps:
            return
        loss = self._measure(kwargs["model"])
        if not math.isfinite(loss):
            remedy = "Lower fine_tune.learning_rate, or take precision float32."
            raise StepError(
                f"validation loss at step {state.global_step}", loss, limit="a finite number", remedy=remedy
            )
        self.history.append((state.global_step, loss))
        report(step=state.global_step, validation_loss=loss)
        if self._patience == 0:
            return
        if self.best_step == state.global_step:
            self.best = {name: tensor.clone() for name, tensor in adapter_tensors(kwargs["model"]).items()}
        elif self.validations_since_best >= self._patience:
            control.should_training_stop = True

    @property
    def best_step(self) -> int | None:
        """The step of the lowest loss, the first of equal ones; None before the first validation."""
        return min(self.history, key=lambda entry: (entry[1], entry[0]))[0] if self.history else None

    @property
    def validations_since_best(self) -> int:
        """Validations after that of the lowest loss."""
        return sum(1 for step, _ in self.history if step > (self.best_step or 0))

    def take_best(self, model: PeftModel) -> int:
        """Puts the best adapter into the model where early stopping keeps it, and returns the step whose it is."""
        if self.best is None:
            return self.history[-1][0]
        set_peft_model_state_dict(model, self.best)
        return self.best_step or 0

    def _measure(self, model: PeftModel) -> float:
        base: Any = model.get_base_model()
        base.eval()
        with torch.autocast(base.device.type, dtype=torch.bfloat16, enabled=self._precision == "bfloat16"):
            loss = mean_token_loss(base, self._heldout, self._batch_conversations)
        base.train()
        return loss
