"""The chat template that the new tokenizer carries: Llama 3's form, with marks around what the assistant says.

Everything between the generation marks is trained: the assistant's words and the end of turn after them. A template
without the marks masks every token, silently (trl#3927), so fine-tuning refuses one.
"""

from __future__ import annotations

BOS_TOKEN = "<|begin_of_text|>"
EOS_TOKEN = "<|end_of_text|>"
START_HEADER_TOKEN = "<|start_header_id|>"
END_HEADER_TOKEN = "<|end_header_id|>"
END_OF_TURN_TOKEN = "<|eot_id|>"
PAD_TOKEN = "<|finetune_right_pad_id|>"
# What a tokenizer must have for the template, and around documents.
CHAT_TOKENS = (BOS_TOKEN, EOS_TOKEN, PAD_TOKEN, START_HEADER_TOKEN, END_HEADER_TOKEN, END_OF_TURN_TOKEN)

# Writes the one BOS itself: what it renders is tokenised with add_special_tokens=False (apply_chat_template does so).
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' -}}
    {%- if message['role'] == 'assistant' -%}
        {%- generation -%}
            {{- message['content'] | trim + '<|eot_id|>' -}}
        {%- endgeneration -%}
    {%- else -%}
        {{- message['content'] | trim + '<|eot_id|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{%- endif -%}
"""
