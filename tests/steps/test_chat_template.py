"""The chat template, text and tokens."""

from __future__ import annotations

CONVERSATION = [
    {"role": "system", "content": "Qısa cavab ver."},
    {"role": "user", "content": " Salam! \n"},
    {"role": "assistant", "content": "Buyurun,\n\neşidirəm. "},
    {"role": "user", "content": "Sağ ol"},
    {"role": "assistant", "content": "Dəyməz"},
]
RENDERED = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nQısa cavab ver.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nSalam!<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nBuyurun,\n\neşidirəm.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nSağ ol<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nDəyməz<|eot_id|>"
)


def test_text_is_that_of_llama_3(tiny_tokenizer):
    assert tiny_tokenizer.apply_chat_template(CONVERSATION, tokenize=False) == RENDERED


def test_tokens_have_one_bos_and_give_the_text_back(tiny_tokenizer):
    ids = tiny_tokenizer.apply_chat_template(CONVERSATION, return_dict=True)["input_ids"]
    assert ids[0] == tiny_tokenizer.bos_token_id
    assert ids.count(tiny_tokenizer.bos_token_id) == 1
    assert tiny_tokenizer.decode(ids) == RENDERED


def test_marks_cover_the_assistant_and_its_end_of_turn(tiny_tokenizer):
    encoded = tiny_tokenizer.apply_chat_template(CONVERSATION, return_dict=True, return_assistant_tokens_mask=True)
    marked = [token for token, mark in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if mark]
    assert tiny_tokenizer.decode(marked) == "Buyurun,\n\neşidirəm.<|eot_id|>Dəyməz<|eot_id|>"


def test_generation_prompt_is_the_start_of_the_whole_conversation(tiny_tokenizer):
    whole = tiny_tokenizer.apply_chat_template(CONVERSATION, return_dict=True)["input_ids"]
    prompt = tiny_tokenizer.apply_chat_template(CONVERSATION[:-1], add_generation_prompt=True, return_dict=True)
    assert tiny_tokenizer.decode(prompt["input_ids"]).endswith("<|start_header_id|>assistant<|end_header_id|>\n\n")
    assert whole[: len(prompt["input_ids"])] == prompt["input_ids"]


def test_it_survives_saving(tiny_tokenizer, tmp_path):
    from transformers import AutoTokenizer

    tiny_tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.apply_chat_template(CONVERSATION, tokenize=False) == RENDERED
