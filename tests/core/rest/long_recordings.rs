//! Long recordings: every sentence in order and at its time, on all workers, without a model for the silence.

use voxbridge::audio::vad::rms_dbfs;

use super::*;

/// Most audio that a session may hold: the limit of waiting speech, a frame, and an utterance that is being received.
const HELD_MAX: Duration = Duration::from_secs(150 + 8 + 30);

/// Recordings joined with pauses, and where each of them has its speech, in samples.
struct LongRecording {
    samples: Vec<i16>,
    sentences: Vec<Range<usize>>,
}

impl LongRecording {
    /// At least this long, with a minute of silence after every tenth sentence.
    fn new(length: Duration) -> Self {
        let files =
            ["librivox_0870_16k.wav", "librivox_0880_16k.wav", "librivox_0920_16k.wav", "jfk_16k.wav"];
        let mut files = files.map(recording);
        // Half a second of breath follows the words of this one.
        files[3].truncate(16 * 10_250);
        let (mut samples, mut sentences) = (zeros(700), Vec::new());
        let mut rng = fastrand::Rng::with_seed(7);
        for (number, file) in (1..).zip(files.iter().cycle()) {
            if samples.len() as u64 > length.as_secs() * 16_000 {
                break;
            }
            let speech = speech_in(file);
            sentences.push(samples.len() + speech.start..samples.len() + speech.end);
            samples.extend_from_slice(file);
            let pause_ms = if number % 10 == 0 { 60_000 } else { rng.u64(400..5_000) };
            samples.extend(zeros(pause_ms));
        }
        Self { samples, sentences }
    }
}

/// From the first to the last 20 ms that are at most 15 dB softer than the loudest.
fn speech_in(samples: &[i16]) -> Range<usize> {
    let levels: Vec<f32> = samples.chunks_exact(320).map(rms_dbfs).collect();
    let loudest = levels.iter().copied().fold(f32::MIN, f32::max);
    let is_loud = |level: &f32| *level > loudest - 15.0;
    let (first, last) = (levels.iter().position(is_loud).unwrap(), levels.iter().rposition(is_loud).unwrap());
    first * 320..(last + 1) * 320
}

/// Transcribes a recording of this length on four workers, and checks everything.
fn check_recording(length: Duration) {
    let file = LongRecording::new(length);
    let mut harness = open_request(4, &[]);
    let mut most_held = Duration::ZERO;
    for frame in file.samples.chunks(16_000) {
        harness.run_until(|harness| !harness.report().needs_backpressure, secs(600)).unwrap();
        harness.send_binary(&bytes_of(frame));
        most_held = most_held.max(harness.bridge().audio_totals().unwrap().waiting);
    }
    harness.send_json(&json!({"type": "finish"}));
    assert_finishes(&mut harness);
    assert!(most_held < HELD_MAX, "{most_held:?}");
    assert_eq!(parallel::most_at_a_time(&harness), 4);
    assert!(harness.events("error").is_empty(), "{:?}", harness.events("error"));
    let transcripts = harness.events("transcript");
    assert_eq!(transcripts.len(), harness.question_audio.len());
    // Pieces of the recording as reported to the client, each in the sentence that it belongs to.
    let mut found: Vec<Vec<Range<usize>>> = vec![Vec::new(); file.sentences.len()];
    let mut last_end = 0;
    for transcript in &transcripts {
        let at = |key: &str| transcript[key].as_u64().unwrap() as usize * 16;
        let spoken = at("start_ms")..at("end_ms");
        assert!(last_end <= spoken.start && spoken.start < spoken.end, "{transcript}");
        last_end = spoken.end;
        let sentence = file.sentences.iter().position(|it| it.start < spoken.end && spoken.start < it.end);
        found[sentence.unwrap_or_else(|| panic!("no speech in {transcript}"))].push(spoken);
    }
    for (sentence, pieces) in file.sentences.iter().zip(&found) {
        let (first, last) = (pieces.first().expect("a sentence is missing"), pieces.last().unwrap());
        for (reported, real) in [(first.start, sentence.start), (last.end, sentence.end)] {
            let difference_ms = reported.abs_diff(real) / 16;
            assert!(difference_ms <= 300, "{difference_ms} ms beside {:.2} s", real as f64 / 16_000.0);
        }
    }
    check_pieces(&file, &harness, last_end);
}

/// Checks that the questions hold every sample of speech, and no silence but that beside speech.
fn check_pieces(file: &LongRecording, harness: &Harness, end: usize) {
    let mut pieces: Vec<Range<usize>> = Vec::new();
    for question in &harness.question_audio {
        let piece: Vec<i16> = question.iter().map(|sample| (sample * 32_768.0).round() as i16).collect();
        let near = pieces.last().map_or(0, |last: &Range<usize>| last.end);
        pieces.push(find_piece(file, &piece, near));
    }
    assert!(pieces.last().unwrap().end >= end);
    let asked: usize = pieces.iter().map(Range::len).sum();
    let spoken: usize = file.sentences.iter().map(Range::len).sum();
    assert!(asked < spoken + pieces.len() * 16 * 1500, "{asked} samples asked about, {spoken} spoken");
    for sentence in &file.sentences {
        let inside = pieces.iter().filter(|piece| piece.start < sentence.end && sentence.start < piece.end);
        let covered: usize =
            inside.map(|piece| piece.end.min(sentence.end) - piece.start.max(sentence.start)).sum();
        // A pause within a sentence may end a piece; the next one begins with its pre-roll.
        assert!(covered * 100 >= sentence.len() * 85, "{covered} of {} samples", sentence.len());
    }
}

/// The first place from `near` on at which the recording is this piece.
fn find_piece(file: &LongRecording, piece: &[i16], near: usize) -> Range<usize> {
    let head = &piece[..64];
    let starts = (near..=file.samples.len() - piece.len()).filter(|at| file.samples[*at..].starts_with(head));
    let start = starts.into_iter().find(|at| file.samples[*at..].starts_with(piece));
    let start = start.unwrap_or_else(|| panic!("no such audio after {} s", near / 16_000));
    start..start + piece.len()
}

#[test]
fn ten_minutes_of_sentences_are_transcribed_in_order() {
    check_recording(secs(600));
}

#[test]
#[ignore = "an hour of audio takes half a minute"]
fn hour_of_sentences_is_transcribed_in_order() {
    check_recording(secs(3600));
}
