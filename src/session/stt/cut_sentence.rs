//! Sentences that were cut because their utterance got too long: their pieces become one sentence again.
//!
//! The model transcribes each piece by itself, and writes it as a sentence: with a full stop at the end of one piece and a
//! capital at the start of the next. Where the speech goes on without a pause, neither is meant. Question marks stay, as the
//! model has a reason for them. A capital stays unless the word is written with one only at the start of sentences: names and
//! the nouns of German keep theirs. A word that is cut in two is often heard twice.

use std::ops::Range;

use super::utterance::Transcript;
use crate::{
    audio::sentence_marks::{ends_sentence, is_full_stop},
    session::tts::abbreviations::is_inside_sentence,
    spelling::language::primary_language,
};

/// Longest time between the pieces of a sentence, ms: detectors notice speech a little late.
const JOINED_MS: u64 = 100;
/// Shortest word that counts as heard twice, letters. Shorter ones are often said twice.
const DOUBLED_MIN_CHARS: usize = 4;

/// The sentence at the end of the newest reported transcript, if it was cut.
#[derive(Debug, Default)]
pub(super) struct CutSentence {
    /// Where the sentence goes on, ms of the client's audio.
    open_at_ms: Option<u64>,
    /// Its last word so far, in lower case.
    last_word: String,
}

impl CutSentence {
    /// Joins the transcript of speech between these times to the one before, and opens its end if it `is_cut`.
    pub(super) fn join(&mut self, piece: &mut Transcript, speech_ms: Range<u64>, is_cut: bool) {
        if self.open_at_ms.take().is_some_and(|at_ms| speech_ms.start.abs_diff(at_ms) <= JOINED_MS) {
            remove_doubled_word(piece, &self.last_word);
            lower_start(piece);
        }
        if is_cut && !piece.text.trim().is_empty() {
            remove_false_stop(piece);
            if !ends_sentence(&piece.text) || is_inside_sentence(&piece.text, "") {
                self.open_at_ms = Some(speech_ms.end);
                self.last_word = piece.text.split_whitespace().next_back().map(bare).unwrap_or_default();
            }
        }
    }
}

/// Removes a full stop or an ellipsis at the end.
fn remove_false_stop(piece: &mut Transcript) {
    let text = piece.text.trim_end();
    let is_ellipsis =
        text.ends_with('…') || text.chars().rev().take(2).filter(|it| is_full_stop(*it)).count() > 1;
    let words = text.trim_end_matches(|mark| is_full_stop(mark) || mark == '…').trim_end();
    if words.is_empty() || (!is_ellipsis && is_inside_sentence(text, "")) {
        return;
    }
    let removed = text[words.len()..].to_owned();
    piece.text = words.to_owned();
    if let Some(last) = piece.words.last_mut() {
        match last.word.strip_suffix(removed.trim_start()) {
            Some("") => _ = piece.words.pop(),
            Some(word) => last.word = word.to_owned(),
            None => {}
        }
    }
}

/// Removes a first word that is the last one of the piece before.
fn remove_doubled_word(piece: &mut Transcript, last_word: &str) {
    let text = piece.text.trim_start();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let is_cased = |letter: char| letter.is_lowercase() || letter.is_uppercase();
    let is_word = first.chars().all(|letter| !letter.is_alphabetic() || is_cased(letter));
    if is_word
        && last_word.chars().count() >= DOUBLED_MIN_CHARS
        && bare(first) == last_word
        && !rest.is_empty()
    {
        if piece.words.first().is_some_and(|word| word.word == first) {
            piece.words.remove(0);
        }
        piece.text = rest.trim_start().to_owned();
    }
}

/// Writes the first word without a capital, if it is a word that has one only at the start of sentences.
fn lower_start(piece: &mut Transcript) {
    let is_mark = |letter: char| letter.is_whitespace() || matches!(letter, '.' | '…');
    let text = piece.text.trim_start_matches(is_mark);
    let first = text.split(char::is_whitespace).next().unwrap_or_default();
    let language = piece.language.as_deref().unwrap_or_default();
    let mut letters = text.chars();
    let lowered = match letters.next().filter(|_| is_lower_word(first, language)) {
        Some(capital) => capital.to_lowercase().chain(letters).collect(),
        None => text.to_owned(),
    };
    if let Some(word) = piece.words.first_mut().filter(|word| word.word.trim_start_matches(is_mark) == first)
    {
        word.word = lowered.split(char::is_whitespace).next().unwrap_or_default().to_owned();
    }
    piece.text = lowered;
}

/// True for a word with a capital that it does not have within sentences of this language.
fn is_lower_word(word: &str, language: &str) -> bool {
    let word = word.trim_end_matches(|letter: char| !letter.is_alphanumeric());
    let mut letters = word.chars();
    let has_one_capital =
        letters.next().is_some_and(char::is_uppercase) && !letters.clone().any(char::is_uppercase);
    let language = primary_language(language);
    let list = LOWER_WORDS.iter().find(|(tag, _)| *tag == language).map(|(_, list)| *list);
    // `It's`, `l'eau`: the word before the apostrophe decides.
    let stem = word.split(['\'', '’']).next().unwrap_or_default().to_lowercase();
    has_one_capital && list.is_some_and(|list| list.split_whitespace().any(|listed| listed == stem))
}

/// The word in lower case, without punctuation around it.
fn bare(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

/// Words that are no names or nouns: articles, pronouns, prepositions, conjunctions and forms of auxiliary verbs. German has no
/// `sie`, `ihr` and `ihnen`, which may be polite forms.
const LOWER_WORDS: [(&str, &str); 8] = [
    (
        "en",
        "a an the and or but nor so yet if of to in on at by for from with without about into onto over under after before \
         between through during against among across along around behind below beyond near off out up down upon within as \
         than then that this these those there here which who whom whose what when where why how while because although \
         though since until unless whether he she it we you they him her them us his its our your their is are was were be \
         been being am has have had having do does did can could shall should would must might not no very too also just \
         only even still already again ever never always often some any each every all both many much more most other such \
         didn doesn isn wasn weren aren couldn wouldn shouldn haven hadn hasn",
    ),
    (
        "de",
        "der die das den dem des ein eine einen einem einer eines und oder aber denn sondern wenn weil dass daß ob als wie \
         da damit obwohl während nachdem bevor bis seit in im an am auf aus bei beim mit nach von vom vor zu zum zur über \
         unter zwischen durch für gegen ohne um hinter neben er es wir ich du man sich mich mir dich dir uns euch ihn ihm \
         ist sind war waren wird werden wurde wurden hat haben hatte hatten kann können konnte muss müssen soll sollte will \
         wollte darf nicht kein keine keinen auch nur noch schon sehr mehr so dann dort hier jetzt immer wieder welche \
         welcher welches wo wann warum was wer",
    ),
    (
        "fr",
        "le la les l un une des du de d et ou mais donc or ni car que qu qui quoi dont où quand comme si lorsque puisque \
         parce il elle on nous vous ils elles je j tu me m te t se s lui leur leurs y en ce c cet cette ces mon ma mes ton ta \
         tes son sa ses notre nos votre vos à au aux dans par pour sur sous avec sans chez entre vers depuis pendant avant \
         après est sont était étaient a ont avait avaient être avoir ne n pas plus très aussi même encore toujours",
    ),
    (
        "es",
        "el la los las lo un una unos unas de del a al y e o u pero sino que quien quienes cual cuales donde cuando como si \
         porque aunque mientras en por para con sin sobre entre hasta desde hacia él ella ello ellos ellas yo tú nosotros \
         me te se nos le les su sus mi mis tu tus es son era eran fue fueron está están ha han había no ni ya muy más también",
    ),
    (
        "pt",
        "o a os as um uma uns umas de do da dos das em no na nos nas por pelo pela para com sem sobre entre até e ou mas que \
         quem qual quais onde quando como se porque embora enquanto ele ela eles elas eu tu nós me te lhe seu sua seus suas \
         meu minha é são era eram foi foram está estão tem têm tinha não já muito mais também",
    ),
    (
        "it",
        "il lo la i gli le l un uno una di del dello della dei degli delle d a al allo alla ai agli alle da dal dalla in nel \
         nella nei nelle con su sul sulla per tra fra e ed o ma che chi cui quale dove quando come se perché mentre lui noi \
         voi essi io tu mi ti si ci vi ne suo sua suoi sue mio mia è sono era erano ha hanno aveva non più molto anche già",
    ),
    (
        "nl",
        "de het een en of maar want dat die dit deze als dan toen omdat hoewel terwijl zodat om te in op aan bij met van voor \
         naar uit over onder door tegen tussen tot na hij zij ze wij we jij je ik hem haar hen ons zijn hun mijn jouw is was \
         waren wordt worden werd heeft hebben had kan kunnen kon moet zal zou niet geen ook nog al wel zeer meer",
    ),
    (
        "ru",
        "и а но или что чтобы как когда где если потому так то в во на с со к ко по о об от до из у за для без под над при \
         через между он она оно они мы вы я ты его её их ему ей им нас вас мне меня тебя это этот эта эти тот та те не ни \
         был была было были есть будет уже ещё очень также только",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::word_times::{WordTime, words_within};

    fn transcript(text: &str, language: &str) -> Transcript {
        let words = words_within(text, 0, 0);
        Transcript {
            text: text.to_owned(),
            language: Some(language.to_owned()),
            words,
            ..Transcript::default()
        }
    }

    /// The pieces after the join. Each was cut in speech but for the last.
    fn joined(language: &str, pieces: &[&str]) -> Vec<String> {
        let mut sentence = CutSentence::default();
        let join = |(at, text): (u64, &&str)| {
            let mut piece = transcript(text, language);
            let is_cut = (at + 1) < pieces.len() as u64;
            sentence.join(&mut piece, at * 1000..at * 1000 + 1000, is_cut);
            let words: String = piece.words.iter().map(|word: &WordTime| word.word.as_str()).collect();
            assert_eq!(
                words,
                piece.text.split_whitespace().collect::<String>(),
                "the words are those of the text"
            );
            piece.text
        };
        (0..).zip(pieces).map(join).collect()
    }

    #[test]
    fn pieces_of_one_sentence_have_no_full_stop_and_no_capital_between_them() {
        for (language, before, after, joined_before, joined_after) in [
            ("en", "He met the man.", "In the next room.", "He met the man", "in the next room."),
            ("en-GB", "They said.", "It's over.", "They said", "it's over."),
            ("en", "He told.", "John and me.", "He told", "John and me."),
            ("en", "And then.", "I left.", "And then", "I left."),
            ("en", "And then.", "I'm off.", "And then", "I'm off."),
            ("en", "It is at.", "NASA.", "It is at", "NASA."),
            ("en", "We asked.", "Will and May.", "We asked", "Will and May."),
            ("en", "He was in the.", "Bed room.", "He was in the", "Bed room."),
            ("en", "We saw Dr.", "Who was late.", "We saw Dr.", "who was late."),
            ("en", "He went...", "...The wrong way.", "He went", "the wrong way."),
            ("en", "He went…", "…to town.", "He went", "to town."),
            ("en", "Do you know?", "The answer is no.", "Do you know?", "The answer is no."),
            ("en", "Stop!", "The bus.", "Stop!", "The bus."),
            ("en", "He said \"go.\"", "The man.", "He said \"go.\"", "The man."),
            ("en", "you find yourself.", "Yourself standing.", "you find yourself", "standing."),
            ("en", "no,", "No way.", "no,", "no way."),
            ("de", "Er ging in.", "Das Haus.", "Er ging in", "das Haus."),
            ("de", "Er sah das.", "Haus am See.", "Er sah das", "Haus am See."),
            ("de", "Ich bitte.", "Sie zu gehen.", "Ich bitte", "Sie zu gehen."),
            ("fr", "Il a vu.", "L'eau.", "Il a vu", "l'eau."),
            ("es", "Vino de.", "La casa.", "Vino de", "la casa."),
            ("ru", "Он сказал.", "Что придёт.", "Он сказал", "что придёт."),
            ("zh", "我们大家。", "都应该好好学习。", "我们大家", "都应该好好学习。"),
            ("ja", "今日は。", "いい天気です。", "今日は", "いい天気です。"),
            ("hi", "मैं घर।", "जा रहा हूँ।", "मैं घर", "जा रहा हूँ।"),
            ("xx", "Eta gero.", "The word.", "Eta gero", "The word."),
            ("en", ".", "The word.", ".", "The word."),
        ] {
            assert_eq!(joined(language, &[before, after]), [joined_before, joined_after], "{language}");
        }
    }

    #[test]
    fn sentence_of_three_pieces_is_joined_twice() {
        assert_eq!(joined("en", &["One.", "And two.", "And three."]), ["One", "and two", "and three."]);
    }

    #[test]
    fn speech_that_begins_later_or_was_not_cut_is_another_sentence() {
        for (is_cut, from_ms, text) in
            [(true, 1101, "And so."), (false, 1000, "And so."), (true, 1100, "and so.")]
        {
            let mut sentence = CutSentence::default();
            sentence.join(&mut transcript("Yes.", "en"), 0..1000, is_cut);
            let mut next = transcript("And so.", "en");
            sentence.join(&mut next, from_ms..2000, false);
            assert_eq!(next.text, text);
        }
    }

    #[test]
    fn empty_piece_ends_the_sentence() {
        assert_eq!(joined("en", &["One.", "", "And three."]), ["One", "", "And three."]);
    }
}
