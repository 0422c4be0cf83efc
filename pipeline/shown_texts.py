"""What Studio shows of the pipeline: the names and descriptions of steps in its graph, of parameters in its form.

They are no part of what a step is asked to do, so that changing one changes no cache key.
"""

from __future__ import annotations

from typing import Any

# The first words of a description are those of the README's drawing.
STEP_TEXTS = {
    "ResolveInputs": (
        "Resolve inputs",
        "Digests, champion: what lies under the input URIs now, and which approved version a candidate has to beat. "
        "Never cached; refuses while another execution of this pipeline runs.",
    ),
    "PrepareCorpus": (
        "Prepare corpus",
        "Clean, distinct, split: documents normalised, duplicates dropped, divided into training, validation and test.",
    ),
    "TrainTokenizer": (
        "Train tokenizer",
        "Kinds and sizes compared, one chosen: fertility.json has every candidate side by side and the reason.",
    ),
    "TokenizeCorpus": (
        "Tokenize corpus",
        "Packed blocks: the documents in the new tokens, in blocks of one length, with their bounds.",
    ),
    "AdaptVocabulary": (
        "Adapt vocabulary",
        "Embeddings rebuilt: the base model with rows for the new tokens; adaptation.json tells how good its start is.",
    ),
    "ContinuedPretraining": (
        "Continued pretraining",
        "Embeddings, then all weights: two phases on the new language. A stopped job goes on from its checkpoint.",
    ),
    "FineTune": (
        "Fine-tune",
        "LoRA, assistant's tokens alone: an adapter merged into the model, which lies under models/ and never expires.",
    ),
    "Evaluate": (
        "Evaluate",
        "Bits per byte: base, pretrained and candidate on held-out text, with intervals, retention, accuracy and "
        "samples in evaluation.json.",
    ),
    "QualityGate": (
        "Quality gate",
        "Opens where the candidate is better than the base model and the champion beyond chance, and within the limits "
        "that the parameters set.",
    ),
    "RegisterModel": (
        "Register model",
        "PendingManualApproval: a version with its figures and its provenance, which a person approves.",
    ),
    "GateClosed": ("Gate closed", "Ends the execution, with the value and the limit of every condition of the gate."),
    "TokenizeCorpusBase": (
        "Tokenize corpus, base",
        "The base's tokenizer: the same documents in the same order, for the comparison.",
    ),
    "ContinuedPretrainingBase": (
        "Continued pretraining, base",
        "The base model: trained with its own tokenizer, to tell what the new one alone brings.",
    ),
}
PARAMETER_TEXTS = {
    "CorpusUri": "Text of the new language: .jsonl, .txt, .parquet, each also .gz or .zst. "
    "`langadapt push corpus` prints it.",
    "ConversationsUri": "Conversations in the new language, .jsonl. `langadapt push conversations` prints it.",
    "BaseModelUri": "Hugging Face model folder with safetensors. `langadapt push base-model` prints it.",
    "SourceCorpusUri": "Text of the base model's language: replayed in training, and for the retention loss.",
    "ExtraHeldoutUri": "A further text that is measured on and never trained on.",
    "AccuracyUri": "Questions with answers, .jsonl, one file a task.",
    "ImageUri": "Environment image of all jobs in ECR, by digest.",
    "ModelApprovalStatus": "Status of a newly registered version.",
    "MaxBitsPerByte": "Gate: the candidate's bits per byte may be no higher.",
    "MinImprovement": "Gate: smallest improvement over the base model, in bits per byte.",
    "MaxRetentionLoss": "Gate: largest loss on the source corpus, in bits per byte.",
    "ContinuedPretrainingInstanceType": "Instances with GPUs of one kind; more memory allows larger batches.",
    "ContinuedPretrainingInstanceCount": "Checkpoints fit any number of instances.",
    "FineTuneInstanceType": "One GPU that holds the whole model.",
    "EvaluateInstanceType": "One GPU; processing jobs have no p4d and no p5.48xlarge.",
    "AllowConcurrent": "true: start beside another execution of this pipeline. Both write the same checkpoints where "
    "they train alike.",
}


def described(step: str) -> dict[str, Any]:
    """display_name and description of a step, as its class takes them."""
    display_name, description = STEP_TEXTS[step]
    return {"display_name": display_name, "description": description}
