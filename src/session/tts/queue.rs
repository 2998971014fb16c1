//! Texts that wait their turn: gathered piece by piece, spoken in the order they were flushed, each flush told after its
//! last audio. Nothing here speaks; [`super::synthesizer`] does, one text at a time.

use std::collections::VecDeque;

/// Most letters that may wait, gathered ones among them: an hour of speech.
const MOST_CHARS: usize = 60_000;
/// Most texts and flushes that may wait.
const MOST_WAITING: usize = 256;

/// What is to be done when its turn comes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Speak this.
    Text(String),
    /// Tell that all before it was spoken: the flush of that number.
    Flushed(u32),
}

/// One session's texts.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    gathered: String,
    waiting: VecDeque<Waiting>,
    /// Letters of all that waits.
    chars: usize,
    flushes: u32,
    clears: u32,
}

impl Texts {
    /// Gathers a piece of text.
    ///
    /// # Errors
    /// Too much waits already, in words; the piece is not taken.
    pub(crate) fn append(&mut self, text: &str) -> Result<(), String> {
        let chars = text.chars().count();
        if self.chars + chars > MOST_CHARS {
            return Err(format!(
                "more than {MOST_CHARS} characters wait to be spoken; this text is not taken"
            ));
        }
        // Sentences come as they are; the pieces of a word do, too.
        if self.gathered.ends_with(['.', '!', '?']) && text.starts_with(char::is_uppercase) {
            self.gathered.push(' ');
        }
        self.gathered.push_str(text);
        self.chars += chars;
        Ok(())
    }

    /// What was gathered is to be spoken, and its end to be told.
    ///
    /// # Errors
    /// Too much waits already, in words; what was gathered stays.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(format!(
                "more than {MOST_WAITING} texts wait to be spoken; flush when some of them are"
            ));
        }
        self.rest();
        self.waiting.push_back(Waiting::Flushed(self.flushes));
        self.flushes += 1;
        Ok(())
    }

    /// What was gathered is to be spoken; nobody waits to be told.
    pub(crate) fn rest(&mut self) {
        let text = std::mem::take(&mut self.gathered);
        if text.trim().is_empty() {
            self.chars -= text.chars().count().min(self.chars);
        } else {
            self.waiting.push_back(Waiting::Text(text));
        }
    }

    /// Forgets all that waits; the number of this clear.
    pub(crate) fn clear(&mut self) -> u32 {
        self.forget();
        let number = self.clears;
        self.clears += 1;
        number
    }

    /// Forgets all that waits.
    pub(crate) fn forget(&mut self) {
        self.gathered.clear();
        self.waiting.clear();
        self.chars = 0;
    }

    /// Whether something waits its turn.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What comes next.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front();
        if let Some(Waiting::Text(text)) = &next {
            self.chars -= text.chars().count().min(self.chars);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_into_texts_and_flushes_keep_their_order() {
        let mut texts = Texts::default();
        for piece in ["Hel", "lo.", "How are", " you?"] {
            texts.append(piece).unwrap();
        }
        texts.flush().unwrap();
        texts.flush().unwrap();
        texts.append("Bye").unwrap();
        texts.rest();
        assert_eq!(texts.next(), Some(Waiting::Text("Hello. How are you?".into())));
        assert_eq!(texts.next(), Some(Waiting::Flushed(0)));
        assert_eq!(texts.next(), Some(Waiting::Flushed(1)));
        assert_eq!(texts.next(), Some(Waiting::Text("Bye".into())));
        assert_eq!((texts.next(), texts.chars), (None, 0));
    }

    #[test]
    fn what_waits_is_bounded_and_can_be_forgotten() {
        let mut texts = Texts::default();
        let piece = "a".repeat(2000);
        let taken = (0..100).take_while(|_| texts.append(&piece).is_ok()).count();
        assert_eq!(taken, MOST_CHARS / 2000);
        let flushed = (0..1000).take_while(|_| texts.flush().is_ok()).count();
        assert!(flushed <= MOST_WAITING && texts.is_waiting());
        assert_eq!((texts.clear(), texts.clear()), (0, 1));
        assert!(texts.next().is_none() && texts.append(&piece).is_ok());
    }
}
