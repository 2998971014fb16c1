//! Word errors: how much a transcript differs from its reference.

/// Errors of a transcript beside its reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WordErrors {
    /// Replaced, missing and added words.
    pub wrong: usize,
    /// Words of the reference.
    pub words: usize,
}

impl WordErrors {
    /// Compares a transcript with its reference.
    #[must_use]
    pub fn between(reference: &str, transcript: &str) -> Self {
        let (expected, heard) = (normalise(reference), normalise(transcript));
        Self { wrong: word_errors(&expected, &heard), words: expected.len() }
    }

    /// Word error rate: wrong words over the words of the reference. May exceed 1.
    #[must_use]
    pub fn rate(self) -> f64 {
        self.wrong as f64 / self.words.max(1) as f64
    }
}

impl std::iter::Sum for WordErrors {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, one| Self {
            wrong: sum.wrong + one.wrong,
            words: sum.words + one.words,
        })
    }
}

impl std::fmt::Display for WordErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} words wrong", self.wrong, self.words)
    }
}

/// Number of replaced, missing and added words: the edit distance, row by row.
#[must_use]
pub fn word_errors(reference: &[String], transcript: &[String]) -> usize {
    let mut row: Vec<usize> = (0..=transcript.len()).collect();
    for (i, word) in reference.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, heard) in transcript.iter().enumerate() {
            let replaced = diagonal + usize::from(word != heard);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[transcript.len()]
}

/// The longest run of words of the reference that the transcript lacks, by the alignment with the most words in common.
#[must_use]
pub fn longest_missing_run(reference: &str, transcript: &str) -> Vec<String> {
    let (expected, heard) = (normalise(reference), normalise(transcript));
    let is_heard = aligned(&expected, &heard);
    let runs = is_heard.split(|is_heard| *is_heard);
    let (mut at, mut longest) = (0, 0..0);
    for run in runs {
        if run.len() > longest.len() {
            longest = at..at + run.len();
        }
        at += run.len() + 1;
    }
    expected[longest].to_vec()
}

/// Whether each word of the reference has its counterpart in the transcript.
fn aligned(reference: &[String], transcript: &[String]) -> Vec<bool> {
    // Words in common of every rest of the reference and every rest of the transcript.
    let width = transcript.len() + 1;
    let mut common = vec![0_usize; (reference.len() + 1) * width];
    for i in (0..reference.len()).rev() {
        for j in (0..transcript.len()).rev() {
            common[i * width + j] = match reference[i] == transcript[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut is_heard, mut j) = (vec![false; reference.len()], 0);
    for i in 0..reference.len() {
        while j < transcript.len()
            && common[i * width + j + 1] == common[i * width + j]
            && reference[i] != transcript[j]
        {
            j += 1;
        }
        if j < transcript.len() && reference[i] == transcript[j] {
            (is_heard[i], j) = (true, j + 1);
        }
    }
    is_heard
}

/// A transcript with the words of characters that recognisers write in place of words.
#[must_use]
pub fn spell_symbols(text: &str) -> String {
    const SPELLED: [(char, &str); 4] = [('&', " and "), ('@', " at "), ('#', " number "), ('/', " slash ")];
    let spelled =
        SPELLED.into_iter().fold(text.to_owned(), |text, (symbol, word)| text.replace(symbol, word));
    spelled.replace("No. ", "number ").replace("no. ", "number ")
}

/// Normalised words: lower case, no punctuation, one spelling for each spoken word. Each character counts as a word in scripts
/// without spaces.
#[must_use]
pub fn normalise(text: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(text.len());
    for letter in text.to_lowercase().chars().filter(|letter| !matches!(letter, '\'' | '’')) {
        match letter {
            letter if is_word_by_itself(letter) => spaced.extend([' ', letter, ' ']),
            letter if letter.is_alphanumeric() => spaced.push(letter),
            _ => spaced.push(' '),
        }
    }
    spaced.split_whitespace().map(|word| canonical_spelling(word).to_owned()).collect()
}

/// True for Chinese characters and Japanese syllables.
fn is_word_by_itself(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// The canonical spelling of words that recognisers write in several ways.
fn canonical_spelling(word: &str) -> &str {
    const NUMBERS: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    match word {
        "mr" => "mister",
        "metre" => "meter",
        "metres" => "meters",
        digits => digits.parse().ok().and_then(|at: usize| NUMBERS.get(at).copied()).unwrap_or(digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_missing_and_added_words_count() {
        let errors = |reference, transcript| WordErrors::between(reference, transcript);
        assert_eq!(errors("Ask not, what!", "ask NOT what"), WordErrors { wrong: 0, words: 3 });
        assert_eq!(errors("ask not what", "ask what then"), WordErrors { wrong: 2, words: 3 });
        assert_eq!(errors("ask not what", ""), WordErrors { wrong: 3, words: 3 });
        let sum: WordErrors = [errors("a b", "a"), errors("c", "c")].into_iter().sum();
        assert_eq!((sum, sum.rate()), (WordErrors { wrong: 1, words: 3 }, 1.0 / 3.0));
        assert_eq!(errors("", "noise").rate(), 1.0);
    }

    #[test]
    fn spellings_of_a_spoken_word_are_equal() {
        assert_eq!(normalise("Mr. Dashwood's 10 metres"), ["mister", "dashwoods", "ten", "meters"]);
        assert_eq!(normalise("8 of spades, 1234"), ["eight", "of", "spades", "1234"]);
        assert_eq!(normalise("你好, world"), ["你", "好", "world"]);
    }
}
