//! Marks inside a line: emphasis, code, links, pictures, addresses, tags and entities of HTML.

/// Longest label of a link, and longest stretch of emphasis or code, bytes. Marks that are further apart do not belong together.
const SPAN_MAX_BYTES: usize = 500;
/// Longest address of a link, bytes.
const ADDRESS_MAX_BYTES: usize = 2000;
/// Longest path of an address that is read, characters.
const READ_PATH_MAX_CHARS: usize = 40;

/// Names of HTML's tags that are dropped.
const TAGS: &str = " a abbr article aside audio b big blockquote body br button center cite code col colgroup dd del details div dl \
    dt em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins kbd label li link main mark \
    meta nav ol p picture pre q s samp script section small source span strike strong style sub summary sup table tbody td tfoot th \
    thead title tr tt u ul var video ";
/// Those among them that stand inside words.
const TAGS_IN_WORDS: &str =
    " a abbr b big cite code del em font i ins kbd mark q s samp small span strike strong sub sup tt u var ";

/// Entities of HTML with names.
const ENTITIES: [(&str, char); 10] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", ' '),
    ("ndash", '–'),
    ("mdash", '—'),
    ("hellip", '…'),
    ("copy", '©'),
];

/// The words of a line.
pub(super) fn spoken_words(line: &str) -> String {
    let mut scan = Scan { line, at: 0, out: String::with_capacity(line.len()), open: Vec::new() };
    while let Some(letter) = scan.rest().chars().next() {
        if !scan.take_mark(letter) {
            scan.out.push(letter);
            scan.at += letter.len_utf8();
        }
    }
    scan.out
}

/// True for the start of an address of the web.
pub(super) fn starts_as_url(text: &str) -> bool {
    ["http://", "https://", "www.", "mailto:"].iter().any(|start| starts_with(text, start))
}

struct Scan<'t> {
    line: &'t str,
    at: usize,
    out: String,
    /// Ends of emphasis that was begun: position and length of the marks.
    open: Vec<(usize, usize)>,
}

impl<'t> Scan<'t> {
    fn rest(&self) -> &'t str {
        &self.line[self.at..]
    }

    fn before(&self) -> Option<char> {
        self.line[..self.at].chars().next_back()
    }

    /// Takes a mark, and writes the words that it stands for. False if the letter is none.
    fn take_mark(&mut self, letter: char) -> bool {
        let rest = self.rest();
        let taken = match letter {
            '\\' => escaped(rest).map(|(letter, length)| (letter.to_string(), length)),
            '`' => Some(code(rest)),
            '!' if rest[1..].starts_with('[') => {
                link(&rest[1..], None).map(|(text, length)| (spoken_words(text), 1 + length))
            }
            '[' => footnote(rest)
                .or_else(|| link(rest, self.before()).map(|(text, length)| (spoken_words(text), length))),
            '<' => address_in_angles(rest).or_else(|| tag(rest)),
            '&' => entity(rest),
            '*' | '_' | '~' => self.emphasis(letter),
            'h' | 'w' | 'H' | 'W' | 'm' if !self.before().is_some_and(char::is_alphanumeric) => url(rest),
            _ => None,
        };
        let Some((words, length)) = taken else { return false };
        self.out += &words;
        self.at += length;
        true
    }

    /// Drops the marks of emphasis; those of calculations and names are kept.
    fn emphasis(&mut self, mark: char) -> Option<(String, usize)> {
        let rest = self.rest();
        let length = rest.len() - rest.trim_start_matches(mark).len();
        let kept = Some((rest[..length].to_owned(), length));
        if let Some(end) = self.open.iter().position(|(at, count)| (*at, *count) == (self.at, length)) {
            self.open.swap_remove(end);
            return Some((String::new(), length));
        }
        let (before, after) = (self.before(), rest[length..].chars().next());
        let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        let is_ascii_word =
            |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
        if after.is_none_or(char::is_whitespace) || mark == '~' && length != 2 {
            return kept;
        }
        // Calculations have operators between single letters and numbers, and names have lines between words.
        let joins_names =
            is_word(before) && is_word(after) && (mark == '_' || length == 1 && is_ascii_word(before));
        let joins_numbers =
            [before, after].iter().all(|neighbour| neighbour.is_some_and(|letter| letter.is_ascii_digit()));
        if joins_numbers || joins_names && !self.is_stressed_part(mark, length) {
            return kept;
        }
        match self.emphasis_end(mark, length) {
            Some(end) => {
                self.open.push((end, length));
                Some((String::new(), length))
            }
            None => kept,
        }
    }

    /// True for an asterisk in a word whose other one is in the same word, with some letters on each side: `un*believ*able`.
    fn is_stressed_part(&self, mark: char, length: usize) -> bool {
        let word = |text: &str| text.chars().take_while(|letter| letter.is_alphabetic()).count();
        let behind = &self.rest()[length..];
        let inner = behind.find(|letter: char| !letter.is_alphabetic()).unwrap_or(behind.len());
        let ahead = self.line[..self.at].chars().rev().take_while(|letter| letter.is_alphabetic()).count();
        mark == '*'
            && ahead > 1
            && word(behind) > 1
            && behind[inner..].starts_with('*')
            && word(&behind[inner + 1..]) > 1
    }

    /// The position of the marks that end emphasis which begins here.
    fn emphasis_end(&self, mark: char, length: usize) -> Option<usize> {
        let start = self.at + length;
        let span = up_to(&self.line[start..], SPAN_MAX_BYTES);
        let mut at = 0;
        while let Some(found) = span[at..].find(mark) {
            let begin = at + found;
            let count = span[begin..].len() - span[begin..].trim_start_matches(mark).len();
            at = begin + count;
            let (before, after) = (span[..begin].chars().next_back(), self.line[start + at..].chars().next());
            let follows_word = before.is_some_and(|letter| !letter.is_whitespace());
            let ends_word = mark != '_' || !after.is_some_and(char::is_alphanumeric);
            if count == length && follows_word && ends_word {
                return Some(start + begin);
            }
        }
        None
    }
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

/// The text up to this length.
fn up_to(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// A letter after a backslash that would be a mark without it.
fn escaped(rest: &str) -> Option<(char, usize)> {
    let letter = rest[1..].chars().next().filter(|letter| "\\`*_{}[]()<>#+-.!|~&".contains(*letter))?;
    Some((letter, 2))
}

/// Code between backticks as it is. Backticks that are not closed are dropped.
fn code(rest: &str) -> (String, usize) {
    let length = rest.len() - rest.trim_start_matches('`').len();
    let marks = &rest[..length];
    let span = up_to(&rest[length..], SPAN_MAX_BYTES);
    let mut at = 0;
    while let Some(found) = span[at..].find('`') {
        let begin = at + found;
        let count = span[begin..].len() - span[begin..].trim_start_matches('`').len();
        if count == marks.len() {
            return (span[..begin].trim().to_owned(), length + begin + count);
        }
        at = begin + count;
    }
    (String::new(), length)
}

/// A reference to a footnote, which is not read.
fn footnote(rest: &str) -> Option<(String, usize)> {
    let (label, _) = up_to(rest.strip_prefix("[^")?, SPAN_MAX_BYTES).split_once(']')?;
    (!label.is_empty() && !label.contains(char::is_whitespace)).then(|| (String::new(), label.len() + 3))
}

/// The text of a link `[text](address)` or `[text][name]`, and the length of the link.
fn link(rest: &str, before: Option<char>) -> Option<(&str, usize)> {
    let label = bracketed(up_to(rest, SPAN_MAX_BYTES), '[', ']')?;
    let behind = &rest[label.len() + 2..];
    let is_index = before.is_some_and(char::is_alphanumeric);
    if behind.starts_with('(') {
        let address = bracketed(up_to(behind, ADDRESS_MAX_BYTES), '(', ')')?;
        let is_address = !is_index || address.contains(['/', '.', '#', ':']);
        let is_one_word = match address.split_once(char::is_whitespace) {
            None => true,
            Some((_, title)) => title.trim_start().starts_with(['"', '\'', '(']) || address.starts_with('<'),
        };
        return (is_address && is_one_word).then(|| (label, label.len() + address.len() + 4));
    }
    let name = bracketed(up_to(behind, SPAN_MAX_BYTES), '[', ']').filter(|_| !is_index)?;
    Some((label, label.len() + name.len() + 4))
}

/// The text between the first bracket and the one that closes it.
fn bracketed(text: &str, open: char, close: char) -> Option<&str> {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' => is_escaped = true,
            letter if letter == open => depth += 1,
            letter if letter == close => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[1..at]);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// An address of the web or of mail between angle brackets.
fn address_in_angles(rest: &str) -> Option<(String, usize)> {
    let (address, _) = up_to(&rest[1..], ADDRESS_MAX_BYTES).split_once('>')?;
    if address.contains(char::is_whitespace) {
        return None;
    }
    let is_mail = address.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    (starts_as_url(address) || is_mail).then(|| (spoken_url(address), address.len() + 2))
}

/// A tag of HTML, which is not read. Most separate words.
fn tag(rest: &str) -> Option<(String, usize)> {
    let (inside, _) = up_to(&rest[1..], SPAN_MAX_BYTES).split_once('>')?;
    let tag = inside.trim_start_matches('/').trim_end_matches('/');
    let name = tag.split(char::is_whitespace).next().filter(|name| !name.is_empty())?;
    let attributes = tag[name.len()..].trim();
    let name = format!(" {} ", name.to_ascii_lowercase());
    let is_tag = TAGS.contains(&name) && (attributes.is_empty() || attributes.contains('='));
    let words = if TAGS_IN_WORDS.contains(&name) { "" } else { " " };
    is_tag.then(|| (words.to_owned(), inside.len() + 2))
}

/// A character that is written as `&name;` or `&#number;`.
fn entity(rest: &str) -> Option<(String, usize)> {
    let (name, _) = up_to(&rest[1..], 10).split_once(';')?;
    let letter = match name.strip_prefix('#') {
        Some(number) => {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?).filter(|letter| !letter.is_control())?
        }
        None => ENTITIES.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((letter.to_string(), name.len() + 2))
}

/// An address of the web in the middle of a text.
fn url(rest: &str) -> Option<(String, usize)> {
    if !starts_as_url(rest) {
        return None;
    }
    let end =
        rest.find(|letter: char| letter.is_whitespace() || "<>\"`|".contains(letter) || letter >= '\u{2E80}');
    let mut url = &rest[..end.unwrap_or(rest.len())];
    // Marks that end a sentence or close a bracket are not part of it.
    loop {
        let trimmed = url.trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_', ']']);
        let closes = trimmed.ends_with(')') && trimmed.matches('(').count() < trimmed.matches(')').count();
        let trimmed = if closes { &trimmed[..trimmed.len() - 1] } else { trimmed };
        if trimmed.len() == url.len() {
            break;
        }
        url = trimmed;
    }
    let host = url.split_once("//").map_or(url, |(_, host)| host);
    host.contains(char::is_alphanumeric).then(|| (spoken_url(url), url.len()))
}

/// An address as it is read: its host, and its path if that is short.
fn spoken_url(url: &str) -> String {
    let starts = ["http://", "https://", "mailto:", "www."];
    let short =
        starts.iter().fold(url, |url, start| if starts_with(url, start) { &url[start.len()..] } else { url });
    let short = short.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    match short.split_once('/') {
        Some((host, path)) if path.chars().count() > READ_PATH_MAX_CHARS || path.contains('%') => {
            host.to_owned()
        }
        _ => short.to_owned(),
    }
}
