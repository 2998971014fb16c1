//! Tests of formats: what the client hears at other rates and in files.

use super::*;

#[test]
fn resampled_speech_is_heard_to_its_last_sample() {
    // One piece, and pieces of which the last comes after the end.
    for (rate_hz, pieces, is_late) in [8_000, 16_000, 44_100, 48_000]
        .into_iter()
        .flat_map(|rate_hz| [(rate_hz, 1, false), (rate_hz, 7, false), (rate_hz, 2, true)])
    {
        let (mut floor, now) = floor();
        floor.set_format(format(Encoding::S16le, rate_hz)).unwrap();
        let speech = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
        for (at, piece) in SECOND.chunks(SECOND.len().div_ceil(pieces)).enumerate() {
            if is_late && at == 1 {
                floor.finish(now, speech);
            }
            floor.push_audio(now, speech, piece);
        }
        if !is_late {
            floor.finish(now, speech);
        }
        play(&mut floor, now);
        let heard = client_audio(&mut floor);
        let samples: Vec<i16> = heard.as_chunks().0.iter().map(|two| i16::from_le_bytes(*two)).collect();
        assert_eq!(samples.len(), rate_hz as usize, "{rate_hz} Hz in {pieces} pieces");
        // The filter rings for a few samples at the end of a constant.
        let end = &samples[samples.len() - rate_hz as usize / 100..samples.len() - rate_hz as usize / 500];
        assert!(end.iter().all(|sample| (7_000..9_400).contains(sample)), "{rate_hz} Hz: {end:?}");
    }
}

#[test]
fn late_audio_of_a_finished_speech_leaves_nothing_for_the_next() {
    for rate_hz in [16_000, 44_100, 48_000] {
        let (mut floor, now) = floor();
        floor.set_format(format(Encoding::S16le, rate_hz)).unwrap();
        let first = floor.begin(now, SpeechSource::Model, "a".into(), String::new());
        floor.push_audio(now, first, &SECOND[..4_800]);
        floor.finish(now, first);
        floor.push_audio(now, first, &SECOND[..4_800]);
        let second = floor.begin(now, SpeechSource::Model, "b".into(), String::new());
        floor.push_audio(now, second, &[0.0; 4_800]);
        floor.finish(now, second);
        for ms in (0..2_000).step_by(20) {
            floor.advance(now + Duration::from_millis(ms));
        }
        let (mut of_first, mut of_second) = (0, Vec::new());
        while let Some(action) = pop(&mut floor) {
            match action {
                Action::ToClient(ClientEvent::Audio(audio)) if audio.turn == first => {
                    of_first += audio.bytes.len() / 2;
                }
                Action::ToClient(ClientEvent::Audio(audio)) => of_second.extend_from_slice(&audio.bytes),
                _ => {}
            }
        }
        assert!(
            of_first.abs_diff(rate_hz as usize * 4 / 10) < rate_hz as usize / 100,
            "{rate_hz}: {of_first}"
        );
        assert!(
            of_second.iter().all(|byte| *byte == 0),
            "{rate_hz}: the filter's tail opens the next speech"
        );
        assert!(of_second.len() / 2 >= rate_hz as usize / 5, "{rate_hz}: {}", of_second.len());
    }
}

/// Audio bytes to the client, in order.
fn client_audio(floor: &mut Floor) -> Vec<u8> {
    let bytes = |action| match action {
        Action::ToClient(ClientEvent::Audio(audio)) => Some(audio.bytes),
        _ => None,
    };
    std::iter::from_fn(|| pop(floor)).filter_map(bytes).flatten().collect()
}

/// Plays everything, and returns the instant of the end.
fn play(floor: &mut Floor, mut at: Instant) -> Instant {
    while let Some(next) = floor.next_timeout(at) {
        at = next;
        floor.advance(at);
    }
    at
}

#[test]
fn file_formats_are_streams_that_end_with_each_speech() {
    for encoding in [Encoding::Mp3, Encoding::OggOpus] {
        let (mut floor, now) = floor();
        floor.set_format(format(encoding, MODEL_RATE_HZ)).unwrap();
        let mut at = now;
        let mut heard = Vec::new();
        for _ in 0..2 {
            let id = floor.begin(at, SpeechSource::Text, "t".into(), String::new());
            floor.push_audio(at, id, &SECOND);
            floor.finish(at, id);
            let end = play(&mut floor, at);
            assert_eq!((end - at).as_millis(), 1000, "the pace is that of the samples");
            at = end;
            heard.push(client_audio(&mut floor));
        }
        assert_eq!(heard[0], heard[1], "each speech is encoded alone");
        let magic: &[u8] = if encoding == Encoding::Mp3 { &[0xff, 0xf3] } else { b"OggS" };
        assert!(heard[0].starts_with(magic) && heard[0].len() > 3000, "{:?}", heard[0].len());
    }
}

#[test]
fn wav_header_comes_once_for_each_format() {
    let (mut floor, now) = floor();
    let mut at = now;
    let mut bytes = Vec::new();
    for new_format in [true, false, true] {
        if new_format {
            floor.set_format(format(Encoding::Wav, MODEL_RATE_HZ)).unwrap();
        }
        // Cut before it was heard: the header is still due.
        let cut = floor.begin(at, SpeechSource::Text, "t".into(), String::new());
        floor.cancel(at, SpeechSource::Text);
        assert!(floor.speech_mut(cut).is_none());
        let id = floor.begin(at, SpeechSource::Text, "t".into(), String::new());
        floor.push_audio(at, id, &SECOND);
        floor.finish(at, id);
        at = play(&mut floor, at);
        bytes.push(client_audio(&mut floor).len());
    }
    assert_eq!(bytes, [48_044, 48_000, 48_044]);
}

#[test]
fn interrupted_stream_begins_anew() {
    let (mut floor, now) = floor();
    floor.set_format(format(Encoding::Mp3, 22_050)).unwrap();
    let speak = |floor: &mut Floor, at| {
        let id = floor.begin(at, SpeechSource::Text, "t".into(), String::new());
        floor.push_audio(at, id, &SECOND);
        floor.finish(at, id);
    };
    speak(&mut floor, now);
    let end = play(&mut floor, now);
    let whole = client_audio(&mut floor);
    speak(&mut floor, end);
    let cut_at = end + Duration::from_millis(500);
    floor.advance(cut_at);
    floor.cancel(cut_at, SpeechSource::Text);
    assert!(client_audio(&mut floor).len() < whole.len());
    speak(&mut floor, cut_at);
    play(&mut floor, cut_at);
    assert_eq!(client_audio(&mut floor), whole, "nothing of the cut speech is in it");
}

#[test]
fn burst_of_a_file_format_is_encoded_in_small_steps() {
    let (mut floor, now) = floor();
    floor.options.playout.pace = PlayoutPace::Burst;
    floor.options.frame_max_bytes = 16_384;
    floor.pace = PlayoutPacer::new(None, Duration::ZERO);
    floor.set_format(format(Encoding::Mp3, MODEL_RATE_HZ)).unwrap();
    let id = floor.begin(now, SpeechSource::Text, "t".into(), String::new());
    for _ in 0..20 {
        floor.push_audio(now, id, &SECOND);
    }
    let (mut steps, mut longest) = (0, 0);
    let mut heard = client_audio(&mut floor).len();
    floor.finish(now, id);
    while floor.is_busy() {
        floor.advance(now);
        let step = client_audio(&mut floor).len();
        (steps, longest, heard) = (steps + 1, longest.max(step), heard + step);
    }
    assert!(steps < 100 && longest < 12_000 * 2, "{steps} steps, the longest has {longest} bytes");
    assert!((240_000..242_000).contains(&heard), "20 s at 96 kbit/s: {heard} bytes");
}
