"""Each doubt about conversations is raised by its own fault and by nothing in the clean sample."""

from __future__ import annotations

import json

import pytest
from doubtful_conversations import SPOILT, sample_pairs, write_pairs

from steps.configs.fine_tune import FineTuneConfig
from steps.text.conversation_warnings import MIN_LETTER_OVERLAP, find_doubts, heldout_doubt, language_doubt, letters
from steps.text.conversations import read_conversations
from steps.text.fine_tuning_data import build_examples, count_personal_data, doubts_about, split_examples

CONFIG = FineTuneConfig(max_tokens=1_024, validation_share=0.2)


@pytest.fixture(scope="module")
def tokenizer(make_tiny_tokenizer):
    """One that was trained on the sample's own language."""
    return make_tiny_tokenizer([f"{asked} {said}" for asked, said in sample_pairs()], vocab_size=1_200)


@pytest.fixture
def doubts(tokenizer, tmp_path):
    """What FineTune doubts about (question, answer) pairs: message by name."""

    def doubts_of(pairs, config=CONFIG):
        read = read_conversations(write_pairs(tmp_path / "pairs.jsonl", pairs))
        conversations, personal = count_personal_data(read, mask=config.mask_personal_data)
        examples, dropped = build_examples(tokenizer, conversations, config)
        sides = split_examples(examples, config.validation_share)
        return dict(doubts_about(conversations, *sides, dropped, personal, tokenizer, config))

    return doubts_of


@pytest.mark.parametrize("name", SPOILT)
def test_each_fault_gives_its_own_warning(doubts, name):
    assert set(doubts(SPOILT[name](sample_pairs()))) == {name}


def test_the_clean_sample_gives_none(doubts):
    assert doubts(sample_pairs()) == {}


def test_messages_tell_the_number(doubts):
    pairs = sample_pairs()
    assert (
        "20 of 124 (16%) conversations are copies of others, one stands 6 times"
        in doubts(SPOILT["repeated-conversations"](pairs))["repeated-conversations"]
    )
    assert doubts(SPOILT["personal-data-in-conversations"](pairs))["personal-data-in-conversations"].startswith(
        "1 email, 1 phone; "
    )
    assert (
        "52 of 104 (50%) answers are the same: Zəhmət olmasa"
        in doubts(SPOILT["one-answer-dominates"](pairs))["one-answer-dominates"]
    )


def test_masked_personal_data_is_no_doubt(doubts):
    config = CONFIG.model_copy(update={"mask_personal_data": True})
    assert doubts(SPOILT["personal-data-in-conversations"](sample_pairs()), config) == {}


def test_legitimate_forms_give_no_doubt():
    """Labels are short and repeat; a tutor asks back; a handful says nothing."""
    labels = [chat(f"Bu rəy necədir: {number} dəfə aldım, razıyam?", "müsbət" if number % 4 else "mənfi")
              for number in range(8)]  # fmt: skip
    assert find_doubts(labels) == []
    sorts = ("müsbət", "mənfi", "neytral", "qarışıq", "boş")
    assert find_doubts([chat(f"Rəy {number}: yaxşı idi.", sorts[number % 5]) for number in range(60)]) == []
    tutor = [
        chat(f"{number} nədir?", f"{number} haqqında nə bilirsiniz, bir az danışa bilərsinizmi?")
        for number in range(40)
    ]
    assert find_doubts(tutor) == []


def chat(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def test_the_overlap_of_letters_is_the_sum_of_the_smaller_shares():
    """Half of the letters in common is half; 0.5 is below the limit, and a script apart shares nothing."""
    doubt = language_doubt([chat("ab" * 300, "ab" * 300)], ["ac" * 300])
    assert doubt is not None
    assert doubt[1].startswith("their letters are 50% those")
    assert language_doubt([chat("ab" * 300, "ab" * 300)], ["ab" * 300]) is None
    assert language_doubt([chat("ab", "ab")], ["cd" * 300]) is None
    assert MIN_LETTER_OVERLAP > 0.5
    assert list(letters("Ə漢字 1한")) == ["ə", "CJK UNIFIED", "CJK UNIFIED", "HANGUL SYLLABLE"]


def test_a_conversation_of_several_turns_is_several_exchanges():
    turns = [*chat("Bir?", "İki."), *chat("Üç?", "Dörd.")]
    assert find_doubts([turns] * 5)[0][0] == "repeated-conversations"
    assert json.dumps(turns)


def test_markup_and_wrong_encodings_are_those_of_the_corpus():
    """Text read as cp1251 is found; capitals before a quotation mark are none."""
    good = [chat(f"«CAFÉ” nə deməkdir, {number}?", f"Qəhvəxana, {number} “RƏNGİ” var.") for number in range(40)]
    assert find_doubts(good) == []
    misread = [
        chat(
            f"{number}-ci sual?", "Şəhərin küçələri gözəldir".encode().decode("cp1251", "replace").replace("\ufffd", "")
        )
        for number in range(2)
    ]
    assert [name for name, _ in find_doubts([*good, *misread])] == ["mojibake-in-conversations"]
    marked = [chat(f"{number}-ci sual?", "<section>Salam</section>") for number in range(2)]
    ((name, message),) = find_doubts([*good, *marked])
    assert (name, "such as '<section>'" in message) == ("html-in-conversations", True)


def test_swapped_columns_without_question_marks():
    """What is asked stands as an instruction; labels, short answers to texts with a question are as they should be."""
    pairs = [(asked.rstrip("?"), said) for asked, said in sample_pairs()]
    assert find_doubts([chat(asked, said) for asked, said in pairs]) == []
    assert [name for name, _ in find_doubts([chat(said, asked) for asked, said in pairs])] == ["swapped-columns"]
    assert find_doubts([chat(f"{said} {asked}?", asked) for asked, said in pairs]) == []
    assert find_doubts([chat(said, f"{number} il") for number, (_, said) in enumerate(pairs)]) == []


def test_one_held_out_question_of_many_in_training_is_no_doubt():
    heldout = [f"{number} nədir?" for number in range(60)]
    assert heldout_doubt(["7 Nədir"], heldout) is None
    doubt = heldout_doubt(["7 Nədir", "8 nədir"], heldout)
    assert doubt is not None
    assert doubt[1].startswith("2 of 60 (3%) held-out questions stand in training but for")
