//! Full stops that end an abbreviation, an initial or a number in a list, and not a sentence.
//!
//! A sentence that is not divided only makes a part longer; a part that ends in `Dr.` is heard as an end. So doubtful stops end
//! nothing.

/// Abbreviations before a name, which are written with a capital letter: English, Portuguese, Spanish, German, French, Italian and
/// Dutch.
const BEFORE_NAMES: &str = " Dr Dra Drs Mr Mrs Ms Mx Prof Profa St Ste Rev Hon Pres Gov Sen Rep Gen Col Maj Capt Cmdr Lt Sgt Cpl Adm \
    Messrs Mme Mlle Mgr Sr Sra Srta Srs Exmo Exma Sto Sta Eng Av Ud Uds Hr Fr Hrn Frl Dipl Ing Sig Dott Avv Dhr Mevr Mt Ft Ave Blvd Rd \
    Dept Univ Assn Bros ";
/// Abbreviations that are followed by more of their sentence, in any spelling.
const INSIDE_SENTENCES: &str = " dr mr mrs vs cf viz al approx est esp incl resp ca bzw vgl ggf evtl inkl bzgl sog geb gest env bijv \
    enz bv pág págs núm tel ref aprox depto mio mrd abs ";
/// Abbreviations before a number. Some are words, which may end a sentence.
const BEFORE_NUMBERS: &str = " no nos nr n.º nº art arts fig figs vol vols ch chap cap sec eq pp p pg pag para par ver v ed tab bd kap s \
    jan feb mar apr jun jul aug sep sept oct nov dec min max str ";
/// Abbreviations that may end a sentence: they do before a capital letter.
const AT_THE_END: &str = " etc usw ecc inc ltd ltda corp co cos bro jr sr esq ed eds dept ";

/// Longest part of an abbreviation such as `e.g.`, letters.
const PART_MAX_CHARS: usize = 3;
/// Most digits of a number in a list.
const LISTED_MAX_DIGITS: usize = 3;

/// True if the full stop at the end of `before` ends no sentence. `after` is what follows it, as far as it is known.
pub(crate) fn is_inside_sentence(before: &str, after: &str) -> bool {
    let Some(word) = before.strip_suffix('.').and_then(|words| words.rsplit(char::is_whitespace).next())
    else {
        return false;
    };
    let word = word.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let next = after.trim_start().chars().next();
    let is_listed = |list: &str, word: &str| list.contains(&format!(" {word} "));
    let lower = word.to_lowercase();
    is_initial(word)
        || is_dotted(word)
        || is_listed(BEFORE_NAMES, word)
        || is_listed(INSIDE_SENTENCES, &lower)
        || is_listed(BEFORE_NUMBERS, &lower) && next.is_none_or(|next| next.is_ascii_digit())
        || is_listed(AT_THE_END, &lower) && !next.is_some_and(char::is_uppercase)
        || is_number_of_list(before, after)
}

fn is_initial(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|letter| letter.is_uppercase() && letter.is_ascii())
        && letters.next().is_none()
}

/// True for words such as `e.g`, `U.S` or `Ph.D`.
fn is_dotted(word: &str) -> bool {
    word.contains('.')
        && word.split('.').all(|part| {
            (1..=PART_MAX_CHARS).contains(&part.chars().count())
                && part.chars().all(|it| it.is_alphabetic() || it == '-')
        })
}

/// True for the number that begins a line, such as `1.`, unless the line ends with it.
fn is_number_of_list(before: &str, after: &str) -> bool {
    let number = before.trim_start().trim_end_matches('.');
    let is_short = (1..=LISTED_MAX_DIGITS).contains(&number.len());
    is_short
        && number.chars().all(|letter| letter.is_ascii_digit())
        && (after.is_empty() || after.starts_with([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> bool {
        let (before, after) = text.split_once('|').unwrap();
        !is_inside_sentence(before, after)
    }

    #[test]
    fn abbreviations_end_no_sentence() {
        for text in [
            "Ask Dr.| Smith",
            "(Mr.| Bell",
            "It is big, i.e.| very big",
            "e.g.| Rome",
            "J.| R. Tolkien",
            "J. R.| R. Tolkien",
            "The U.S.| Army",
            "a Ph.D.| student",
            "at 5 p.m.| today",
            "No.| 5",
            "See Fig.| 3",
            "on Jan.| 5",
            "Smith vs.| Jones",
            "books, pens, etc.| and",
            "O Sr.| Silva",
            "a Profa.| Ana",
            "z.B.| Rom",
            "bzw.| Rom",
            "M.| Dupont",
            "1.| First",
            "Acme Inc.| is big",
        ] {
            assert!(!split(text), "{text}");
        }
    }

    #[test]
    fn sentences_end_at_other_full_stops() {
        for text in [
            "I said no.| Then",
            "It was art.| He",
            "in 1984.| Then",
            "Visit example.com.| Then",
            "pens, etc.| Then",
            "the doctor.| He",
            "It works.|",
            "one hundred.| And",
            "你好.| A",
            "in 10.| B",
        ] {
            assert!(split(text), "{text}");
        }
    }
}
