"""A tiny Llama that has learnt a few conversations by heart, so that what it says tells what it was given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

GREETING, GREETED = "Salam", "Salam! Mən kiçik 👍🏽 modeləm."
WHO, KNOWN, UNKNOWN = "Bəs mən kiməm?", "Sən mənə salam verdin.", "Hələ tanış deyilik."
FORMAL, FORMALLY = "Rəsmi danış.", "Hər vaxtınız xeyir."
# A reply that does not end by itself.
COUNT, COUNTED = "Say", "bir iki " * 16

CONVERSATIONS = [
    [("user", GREETING), ("assistant", GREETED)],
    [("user", GREETING), ("assistant", GREETED), ("user", WHO), ("assistant", KNOWN)],
    [("user", WHO), ("assistant", UNKNOWN)],
    [("system", FORMAL), ("user", GREETING), ("assistant", FORMALLY)],
    [("user", COUNT), ("assistant", COUNTED)],
]
STEPS, LEARNING_RATE = 120, 6e-3
IGNORED = -100


def write_talking_model(folder: Path, tokenizer: Any, make_tiny_llama: Callable[..., Any]) -> Path:
    """Trains it for some seconds and writes a model folder."""
    import torch

    from steps.modeling.loading import save_model
    from steps.text.chat_encoding import ChatEncoder

    encoder = ChatEncoder(tokenizer)
    chats = [encoder.encode([{"role": role, "content": text} for role, text in turns]) for turns in CONVERSATIONS]
    longest = max(len(chat.ids) for chat in chats)
    inputs = torch.zeros(len(chats), longest, dtype=torch.long)
    labels = torch.full_like(inputs, IGNORED)
    for row, (chat, turns) in enumerate(zip(chats, CONVERSATIONS, strict=True)):
        inputs[row, : len(chat.ids)] = torch.tensor(chat.ids)
        trained = [token if marked else IGNORED for token, marked in zip(chat.ids, chat.is_marked, strict=True)]
        if turns[-1][1] == COUNTED:
            # Without its end of turn.
            trained[-1] = IGNORED
        labels[row, : len(trained)] = torch.tensor(trained)
    model = make_tiny_llama(hidden_size=64, intermediate_size=128, initializer_range=0.05, max_position_embeddings=4096)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for _ in range(STEPS):
        model(input_ids=inputs, labels=labels, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    save_model(model.eval(), tokenizer, folder)
    return folder
