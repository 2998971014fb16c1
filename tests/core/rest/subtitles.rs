//! Subtitles of recordings whose words are known: cues within their limits, at the time of their words, with every word once.
//!
//! The simulated model returns the words that were spoken in the audio of each question. `word_times.json` has their times in the
//! recordings, by forced alignment.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use voxbridge::media::transcript::{
    Segment,
    cues::{Cue, CueRules, cues_of},
    segments::divided,
};

use super::*;

/// Goals: share of the cues within the limits, and mean distance of their starts from those of their words.
const WITHIN_LIMITS_MIN: f64 = 0.99;
const START_ERROR_MAX_MS: f64 = 300.0;

/// A recording and its words.
struct SpokenText {
    samples: Vec<i16>,
    words: Vec<SpokenWord>,
    /// Where the last question was found.
    last_found: AtomicUsize,
}

struct SpokenWord {
    text: String,
    samples: Range<usize>,
}

impl SpokenText {
    /// At least this many seconds of the seven recordings, with these pauses. Without, only their speech is joined, but for one
    /// with pauses of its own.
    fn new(seconds: usize, mut pause_ms: Option<impl FnMut() -> u64>) -> Self {
        let times: BTreeMap<String, Vec<(String, u64, u64)>> =
            serde_json::from_str(include_str!("word_times.json")).unwrap();
        let (mut samples, mut words) = (Vec::new(), Vec::new());
        let is_taken = |file: &str| pause_ms.is_some() || file != "jfk_16k.wav";
        let taken: Vec<_> = times.iter().filter(|(file, _)| is_taken(file)).collect();
        for (file, spoken) in taken.into_iter().cycle() {
            if samples.len() >= seconds * 16_000 {
                break;
            }
            let audio = recording(file);
            let speech = match pause_ms {
                Some(_) => 0..audio.len(),
                None => spoken[0].1 as usize * 16..spoken[spoken.len() - 1].2 as usize * 16,
            };
            let shift = samples.len().wrapping_sub(speech.start);
            words.extend(spoken.iter().map(|(text, from_ms, to_ms)| {
                let at = |ms: u64| shift.wrapping_add(ms as usize * 16);
                SpokenWord { text: text.clone(), samples: at(*from_ms)..at(*to_ms) }
            }));
            samples.extend_from_slice(&audio[speech]);
            samples.extend(zeros(pause_ms.as_mut().map_or(0, |pause_ms| pause_ms())));
        }
        samples.extend(zeros(1000));
        Self { samples, words, last_found: AtomicUsize::new(0) }
    }

    /// The words in this audio.
    fn recognise(&self, request: EngineRequest) -> EngineAnswer {
        let EngineRequest::Recognise(question) = request else { panic!("nothing is spoken") };
        let audio: Vec<i16> = question.iter().map(|sample| (sample * 32_768.0).round() as i16).collect();
        // Questions on four lanes come nearly in order.
        let near = self.last_found.load(Relaxed).saturating_sub(60 * 16_000);
        let is_here = |at: &usize| self.samples[*at..].starts_with(&audio);
        let start = (near..=self.samples.len() - audio.len()).find(is_here).expect("audio of the recording");
        self.last_found.store(start, Relaxed);
        let middle = |word: &SpokenWord| word.samples.start.midpoint(word.samples.end);
        let words = self.words.iter().filter(|word| (start..start + audio.len()).contains(&middle(word)));
        EngineAnswer::Transcript(Ok(words.map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")))
    }

    /// Transcribes the recording, and checks that every word comes once.
    fn transcribe(&self, engine: fn(EngineRequest) -> EngineAnswer) -> Vec<Segment> {
        let mut harness = open_words(engine);
        harness.send_json(&json!({"type": "configure", "estimated_word_times": true}));
        upload(&mut harness, &self.samples);
        assert_finishes(&mut harness);
        let transcripts = harness.events("transcript").into_iter();
        let segments: Vec<Segment> =
            transcripts.map(|it| serde_json::from_value(it.clone()).unwrap()).collect();
        let heard: Vec<&str> = segments.iter().flat_map(|segment| segment.text.split_whitespace()).collect();
        let spoken: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(heard, spoken);
        segments
    }

    /// Checks the segments and cues of these utterances.
    fn check(&self, name: &str, utterances: &[Segment]) {
        let rules = CueRules::default();
        let segments: Vec<Segment> = utterances.iter().cloned().flat_map(divided).collect();
        let cues: Vec<Cue> = segments.iter().flat_map(|segment| cues_of(segment, &rules)).collect();
        let is_within = |cue: &&Cue| {
            cue.lines.len() <= rules.max_lines
                && cue.lines.iter().all(|line| line.chars().count() <= rules.max_line)
                && cue.end_ms - cue.start_ms <= rules.max_cue_ms
        };
        let share = cues.iter().filter(is_within).count() as f64 / cues.len() as f64;
        let (mut word, mut errors_ms) = (0, Vec::new());
        for cue in &cues {
            errors_ms.push(cue.start_ms.abs_diff(self.words[word].samples.start as u64 / 16) as f64);
            word += cue.lines.iter().map(|line| line.split_whitespace().count()).sum::<usize>();
        }
        assert_eq!(word, self.words.len());
        errors_ms.sort_by(f64::total_cmp);
        let mean_ms = errors_ms.iter().sum::<f64>() / errors_ms.len() as f64;
        let longest = segments.iter().map(|segment| segment.end_ms - segment.start_ms).max().unwrap();
        println!(
            "{name}: {} utterances, {} segments, longest {longest} ms; {} cues, {:.1} % within limits; start error mean {mean_ms:.0} ms, \
             median {:.0}, 95 % {:.0}, worst {:.0}; {} of {} cuts in a word",
            utterances.len(),
            segments.len(),
            cues.len(),
            share * 100.0,
            errors_ms[errors_ms.len() / 2],
            errors_ms[errors_ms.len() * 95 / 100],
            errors_ms[errors_ms.len() - 1],
            self.cuts_in_words(utterances),
            utterances.windows(2).filter(|pair| pair[0].end_ms == pair[1].start_ms).count(),
        );
        assert!(share >= WITHIN_LIMITS_MIN && mean_ms <= START_ERROR_MAX_MS);
        assert!(longest <= 8_500, "a segment of {longest} ms");
    }

    /// Cuts more than 40 ms within a word.
    fn cuts_in_words(&self, segments: &[Segment]) -> usize {
        let is_in_word = |pair: &&[Segment]| {
            let cut = pair[0].end_ms as usize * 16;
            let inner = |word: &SpokenWord| word.samples.start + 640..word.samples.end.saturating_sub(640);
            pair[0].end_ms == pair[1].start_ms && self.words.iter().any(|word| inner(word).contains(&cut))
        };
        segments.windows(2).filter(is_in_word).count()
    }
}

#[test]
fn cues_of_ten_minutes_with_pauses_are_short_and_on_time() {
    static TEXT: OnceLock<SpokenText> = OnceLock::new();
    let mut rng = fastrand::Rng::with_seed(11);
    let text = TEXT.get_or_init(|| SpokenText::new(600, Some(|| rng.u64(300..3_000))));
    let segments = text.transcribe(|request| TEXT.get().unwrap().recognise(request));
    text.check("ten minutes with pauses", &segments);
}

#[test]
fn cues_of_continuous_speech_are_short_and_on_time() {
    static TEXT: OnceLock<SpokenText> = OnceLock::new();
    let text = TEXT.get_or_init(|| SpokenText::new(300, None::<fn() -> u64>));
    let segments = text.transcribe(|request| TEXT.get().unwrap().recognise(request));
    assert!(segments.iter().all(|segment| segment.end_ms - segment.start_ms <= 29_500));
    text.check("continuous speech", &segments);
}

/// The model begins its answer to each question with a capital and ends it with a full stop, as all models do.
#[test]
fn speech_that_is_cut_without_a_pause_stays_one_sentence() {
    for (speech_ms, pause_ms, expected) in [
        (75_000, 0, &["The man saw John", "the man saw John", "the man saw John."][..]),
        // Speech that pauses where it is cut.
        (24_000, 200, &["The man saw John.", "The man saw John."]),
        // Speech that ends.
        (10_000, 1000, &["The man saw John.", "The man saw John."]),
    ] {
        let said = |_| EngineAnswer::Transcript(Ok("The man saw John.".into()));
        let mut harness = open_words(said);
        harness.send_json(&json!({"type": "configure", "estimated_word_times": true}));
        let speech = match pause_ms {
            0 => voice(speech_ms),
            _ => [voice(speech_ms), zeros(pause_ms), voice(speech_ms)].concat(),
        };
        upload(&mut harness, &[speech, zeros(1000)].concat());
        assert_finishes(&mut harness);
        let transcripts = harness.events("transcript");
        let texts: Vec<_> = transcripts.iter().map(|it| it["text"].as_str().unwrap()).collect();
        assert_eq!(texts, expected, "{pause_ms} ms");
        for transcript in transcripts {
            let words = transcript["words"].as_array().unwrap().iter().map(|it| it["word"].as_str().unwrap());
            assert_eq!(words.collect::<Vec<_>>().join(" "), transcript["text"]);
        }
    }
}

fn open_words(engine: fn(EngineRequest) -> EngineAnswer) -> Harness {
    let mut config =
        HarnessConfig { client: "rest", query: String::new(), ..HarnessConfig::with_faults(&[]) };
    config.simulator.workers = 4;
    config.simulator.use_engines = true;
    config.engines = Some(engine);
    Harness::new(config)
}
