"""How long each step works. Starting an instance, loading and saving are not in it.

CPU steps go by the speed of one core that was measured on real text (docs/plan.md). Steps that compute with a model go
by FLOPs and the utilisation of the instance's GPU, or by the speed that two cores reached on the sample. A step of
which too little is known has no hours and the reason in their place.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.config import PipelineConfig
from pipeline.config_sections import JobSection
from pipeline.plan.given_data import GivenData
from pipeline.plan.gpus import gpu_of, gpus_of
from pipeline.plan.model_shapes import ModelShape
from pipeline.plan.pretraining import Pretraining
from pipeline.plan.throughput import UTILISATION

# Bytes of text a second on one core of a Xeon at 2.8 GHz; measured once, on 8.8 MB of legal codes.
PREPARED_PER_SECOND = 1.4e6
LEARNED_PER_SECOND = 2e6
ENCODED_PER_SECOND = 8e6
# FLOP/s of a core in float32, from the speed of ContinuedPretraining on the sample (README, "Two commands").
CORE_FLOPS = 4e10
# Of one held-out document, on average: assumed.
SCORED_DOCUMENT_BYTES = 4_000
UNKNOWN_CORPUS = "needs plan.corpus_bytes"
UNKNOWN_CONVERSATIONS = "needs plan.conversations"
# vCPUs of a size of the families of processors; two of them share a core.
VCPUS = {"large": 2, "xlarge": 4}


@dataclass(frozen=True)
class StepPlan:
    """name: as in the definition. job: Training or Processing. hours: of each instance; None with the reason."""

    name: str
    job: str
    section: JobSection
    instances: int
    hours: float | None
    reason: str = ""

    @property
    def limit_hours(self) -> float:
        """After which the service stops the job."""
        return self.section.max_runtime_seconds / 3_600

    @property
    def counted_hours(self) -> float:
        """Those of the plan, or the limit where none are known."""
        return self.limit_hours if self.hours is None else self.hours


def plan_steps(
    config: PipelineConfig, data: GivenData, pretraining: Pretraining, base: Pretraining | None
) -> list[StepPlan]:
    """Every job of the DAG, in its order. base: the second branch of an ablation."""
    compute, shape, rows = config.compute, pretraining.shape, pretraining.rows
    steps = [
        _of_corpus("PrepareCorpus", compute.prepare_corpus, data, 1 / PREPARED_PER_SECOND),
        _train_tokenizer(config, data),
        _tokenize("TokenizeCorpus", config, data),
        _adapt_vocabulary(config, shape, rows, data),
        _pretraining("ContinuedPretraining", pretraining),
    ]
    if base is not None:
        steps += [_tokenize("TokenizeCorpusBase", config, data), _pretraining("ContinuedPretrainingBase", base)]
    return [*steps, _fine_tune(config, shape, rows, data), _evaluate(config, shape, rows, data)]


def _of_corpus(
    name: str, section: JobSection, data: GivenData, seconds_per_byte: float, instances: int = 1
) -> StepPlan:
    if data.corpus_bytes is None:
        return StepPlan(name, "Processing", section, instances, None, UNKNOWN_CORPUS)
    return StepPlan(name, "Processing", section, instances, data.corpus_bytes * seconds_per_byte / instances / 3_600)


def _train_tokenizer(config: PipelineConfig, data: GivenData) -> StepPlan:
    """Sizes of a kind come of one training; the base is measured as a candidate, too."""
    section, job = config.train_tokenizer, config.compute.train_tokenizer
    if data.corpus_bytes is None:
        return StepPlan("TrainTokenizer", "Processing", job, 1, None, UNKNOWN_CORPUS)
    learned = min(data.corpus_bytes, section.max_training_bytes)
    seconds = (len(section.kinds) + 1) * learned / LEARNED_PER_SECOND
    return StepPlan("TrainTokenizer", "Processing", job, 1, seconds / 3_600)


def _tokenize(name: str, config: PipelineConfig, data: GivenData) -> StepPlan:
    job = config.compute.tokenize_corpus
    return _of_corpus(name, job, data, 1 / ENCODED_PER_SECOND, job.instance_count)


def _adapt_vocabulary(config: PipelineConfig, shape: ModelShape, rows: int, data: GivenData) -> StepPlan:
    """Validation documents scored once for the base and for each initialiser."""
    section, job = config.adapt_vocabulary, config.compute.adapt_vocabulary
    models = 2 + len(section.compared_initialisers)
    tokens = section.measured_documents * SCORED_DOCUMENT_BYTES / data.bytes_per_token
    flops = 2 * shape.multiplied_parameters(rows) * tokens * _passes(section.context_bytes) * models
    return _computing("AdaptVocabulary", "Processing", job, flops, "float32")


def _pretraining(name: str, pretraining: Pretraining) -> StepPlan:
    job = pretraining.config.compute.continued_pretraining
    seconds = pretraining.seconds
    if seconds is None:
        return StepPlan(name, "Training", job, job.instance_count, None, _unknown_gpu(job))
    return StepPlan(name, "Training", job, job.instance_count, seconds.together / 3_600)


def _fine_tune(config: PipelineConfig, shape: ModelShape, rows: int, data: GivenData) -> StepPlan:
    """As if each conversation were as long as is allowed: the frozen base makes no gradients of its weights, and its
    activations are computed twice."""
    section, job = config.fine_tune, config.compute.fine_tune
    if data.conversations is None:
        return StepPlan("FineTune", "Training", job, 1, None, UNKNOWN_CONVERSATIONS)
    tokens = data.conversations * (1 - section.validation_share) * section.epochs * section.max_tokens
    flops = tokens * (6 * shape.multiplied_parameters(rows)
                      + 6 * shape.adapter_parameters(section.lora_rank, section.target_modules))  # fmt: skip
    return _computing("FineTune", "Training", job, flops, section.precision)


def _evaluate(config: PipelineConfig, shape: ModelShape, rows: int, data: GivenData) -> StepPlan:
    """Base, pretrained, candidate and champion score the test documents, at equal bytes and at equal tokens."""
    section, job = config.evaluate_model, config.compute.evaluate_model
    tokens = section.max_documents * SCORED_DOCUMENT_BYTES / data.base_bytes_per_token
    contexts = (section.context_bytes, section.context_tokens * data.base_bytes_per_token)
    flops = 2 * shape.multiplied_parameters(rows) * tokens * 4 * sum(map(_passes, contexts))
    return _computing("Evaluate", "Processing", job, flops, section.matmul_dtype)


def _computing(name: str, kind: str, job: JobSection, flops: float, precision: str) -> StepPlan:
    """A step of one process that computes so many FLOPs."""
    speed = flops_per_second(job.instance_type, precision)
    if speed is None:
        return StepPlan(name, kind, job, 1, None, _unknown_gpu(job))
    return StepPlan(name, kind, job, 1, flops / speed / 3_600)


def _unknown_gpu(job: JobSection) -> str:
    return f"nothing is known of the GPU of {job.instance_type}"


def _passes(context_bytes: float) -> int:
    """Over a document: in windows each token is scored with half a window or more behind it, so most are read twice."""
    return 1 if context_bytes >= SCORED_DOCUMENT_BYTES else 2


def flops_per_second(instance_type: str, precision: str = "float32") -> float | None:
    """What one process gets of an instance: its GPU's peak by the utilisation, or its cores; None of unknown GPUs."""
    if gpu := gpu_of(instance_type):
        return gpu.peak_flops(precision) * UTILISATION.get(gpu.name, min(UTILISATION.values()))
    if gpus_of(instance_type):
        return None
    return max(1, vcpus_of(instance_type) / 2) * CORE_FLOPS


def vcpus_of(instance_type: str) -> int:
    """Of an instance of processors: 2 for large, 4 for xlarge and each of its multiples, as the families of EC2 go."""
    size = instance_type.rpartition(".")[2]
    if size in VCPUS:
        return VCPUS[size]
    count = size.removesuffix("xlarge")
    return 4 * int(count) if count.isdigit() else 2
