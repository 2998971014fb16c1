//! Quality of the real speech engines: transcription of the shipped recordings, round trips, and errors after
//! a crash.

use serde::Deserialize;
use tokio::time::Instant;
use voxbridge::simulator::process::{EngineError, find_engines};
use voxbridge_test_support::{programs::send_signal, wait::wait_until};

use super::engines::{engines_dir, own_engines};
use super::*;

/// One of 94 words is wrong ("clubs" becomes "cloves"). Other processors round differently, so three more may
/// be wrong.
const RECORDINGS_WER: f64 = 0.045;
/// The worst recording has that one error among its nine words.
const RECORDING_WER: f64 = 0.25;

#[derive(Deserialize)]
struct Recording {
    file: String,
    transcript: String,
}

fn speech_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech")
}

fn recordings() -> Vec<(Recording, Vec<f32>)> {
    let manifest = std::fs::read_to_string(speech_dir().join("manifest.json")).unwrap();
    let recordings: Vec<Recording> = serde_json::from_str(&manifest).unwrap();
    recordings.into_iter().map(|r| (samples(&r.file), r)).map(|(s, r)| (r, s)).collect()
}

fn samples(file: &str) -> Vec<f32> {
    let mut wav = hound::WavReader::open(speech_dir().join(file)).unwrap();
    assert_eq!((wav.spec().sample_rate, wav.spec().channels), (16_000, 1), "{file}");
    wav.samples::<i16>().map(|s| f32::from(s.unwrap()) / 32_768.0).collect()
}

/// 24 kHz to 16 kHz by linear interpolation of every third sample. Good enough, since flite's speech ends at
/// 8 kHz.
fn resample_to_16_khz(speech: &[f32]) -> Vec<f32> {
    speech.chunks_exact(3).flat_map(|s| [s[0], (s[1] + s[2]) / 2.0]).collect()
}

#[tokio::test]
async fn recordings_are_transcribed() {
    let Some(engines) = shared_engines().await else { return };
    let (mut errors, mut words) = (0, 0);
    for (recording, samples) in recordings() {
        let seconds = samples.len() as f64 / 16_000.0;
        let started = Instant::now();
        let text = engines.recognise(samples).await.unwrap();
        let took = started.elapsed().as_secs_f64();
        let wer = word_error_rate(&recording.transcript, &text);
        println!("{}: {seconds:.1} s heard in {took:.2} s, WER {wer:.3}: {text}", recording.file);
        assert!(wer <= RECORDING_WER, "{}: {wer:.3}: {text}", recording.file);
        let expected = normalise(&recording.transcript);
        errors += word_errors(&expected, &normalise(&text));
        words += expected.len();
    }
    println!("{errors} of {words} words are wrong");
    assert!(errors as f64 <= words as f64 * RECORDINGS_WER, "{errors} of {words} words wrong");
}

/// The noise is as loud as in the 8 kHz recording of the Vosk server, in which only one sentence of three had words.
/// A bridge sends such noise before an utterance, because its detector needs a while to find the start.
#[tokio::test]
async fn noise_before_a_sentence_does_not_hide_its_words() {
    let Some(engines) = shared_engines().await else { return };
    let mut random = fastrand::Rng::with_seed(1);
    let mut noise =
        |samples: usize| -> Vec<f32> { (0..samples).map(|_| (random.f32() - 0.5) * 0.005).collect() };
    let speech = samples("goforward_16k.wav");
    let audio = [noise(12_000), speech, noise(4_800)].concat();
    let text = engines.recognise(audio).await.unwrap();
    assert_eq!(normalise(&text).join(" "), "go forward ten meters");
    assert_eq!(engines.recognise(noise(32_000)).await.unwrap(), "", "noise has no words");
}

#[tokio::test]
async fn long_audio_is_transcribed_in_segments() {
    let Some(engines) = shared_engines().await else { return };
    let (mut said, mut audio) = (String::new(), Vec::new());
    for (recording, samples) in recordings() {
        said = format!("{said} {}", recording.transcript);
        audio.extend(samples);
    }
    assert!(audio.len() > 30 * 16_000, "only {} s", audio.len() / 16_000);
    let text = engines.recognise(audio).await.unwrap();
    let wer = word_error_rate(&said, &text);
    println!("WER {wer:.3}: {text}");
    assert!(wer <= RECORDINGS_WER, "{wer:.3}: {text}");
}

#[tokio::test]
async fn synthesized_sentences_are_transcribed_back() {
    let Some(engines) = shared_engines().await else { return };
    for sentence in [
        "The train to London leaves at half past nine.",
        "She opened the window and looked out over the garden.",
    ] {
        let speech = engines.speak(sentence.into()).await.unwrap();
        let seconds = speech.len() as f64 / 24_000.0;
        assert!((1.5..6.0).contains(&seconds), "{seconds} s of speech");
        let peak = speech.iter().fold(0.0f32, |peak, s| peak.max(s.abs()));
        assert!((0.1..=1.0).contains(&peak), "peak {peak}");
        let text = engines.recognise(resample_to_16_khz(&speech)).await.unwrap();
        println!("{text}");
        assert!(word_error_rate(sentence, &text) <= 0.12, "{text}");
    }
}

#[tokio::test]
async fn silence_yields_empty_transcript() {
    let Some(engines) = shared_engines().await else { return };
    assert_eq!(engines.recognise(Vec::new()).await.unwrap(), "");
    assert_eq!(engines.recognise(vec![0.1; 1_000]).await.unwrap(), "");
    assert_eq!(engines.recognise(vec![0.0; 32_000]).await.unwrap(), "");
    assert_eq!(engines.recognise(vec![f32::NAN; 32_000]).await.unwrap(), "");
    assert!(engines.speak(String::new()).await.unwrap().is_empty());
    assert!(engines.speak(" … !".into()).await.unwrap().is_empty());
}

#[tokio::test]
async fn rejected_request_does_not_affect_next() {
    let Some(engines) = own_engines().await else { return };
    for text in ["你好".to_owned(), "too long ".repeat(2_000)] {
        let error = engines.speak(text).await.unwrap_err();
        assert!(matches!(error, EngineError::Refused(_)), "{error}");
    }
    assert!(!engines.speak("-h".into()).await.unwrap().is_empty(), "text that looks like an option is text");
}

#[tokio::test]
async fn abandoned_request_keeps_answer_order() {
    let Some(engines) = own_engines().await else { return };
    let jfk = samples("jfk_16k.wav");
    let abandoned = timeout(Duration::from_millis(20), engines.recognise(jfk)).await;
    assert!(abandoned.is_err(), "transcription of 11 s is not done after 20 ms");
    let text = engines.recognise(samples("librivox_0880_16k.wav")).await.unwrap();
    assert!(word_error_rate("he was not an ill disposed young man", &text) <= RECORDING_WER, "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn engine_process_death_fails_all_requests() {
    let Some(engines) = own_engines().await else { return };
    let jfk = samples("jfk_16k.wav");
    let (first, second, ()) =
        tokio::join!(engines.recognise(jfk.repeat(5)), engines.speak("Never spoken.".into()), async {
            // Any time within the recognition, which takes seconds.
            tokio::time::sleep(Duration::from_millis(100)).await;
            send_signal(engines.process_id(), "-KILL");
        });
    for error in
        [first.unwrap_err(), second.unwrap_err(), engines.speak("Nor this.".into()).await.unwrap_err()]
    {
        assert_eq!(error.to_string(), "speech engines stopped: signal: 9 (SIGKILL)");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn engine_process_ends_with_last_handle() {
    let Some(engines) = own_engines().await else { return };
    let process = PathBuf::from(format!("/proc/{}", engines.process_id()));
    assert!(process.exists());
    drop(engines);
    // A killed child stays in the process table until the runtime has reaped it.
    wait_until("the process ends", || !process.exists()).await;
}

#[test]
fn engine_directory_is_complete() {
    let Some(dir) = engines_dir() else { return };
    find_engines(&dir).unwrap();
}

#[test]
fn word_comparison_ignores_spelling() {
    assert_eq!(normalise("Mr. Smith’s ill-disposed, man!"), ["mister", "smiths", "ill", "disposed", "man"]);
    assert_eq!(word_error_rate("one two three four", "One, two; three -- four."), 0.0);
    assert_eq!(word_error_rate("one two three four", "one too three"), 0.5);
    assert_eq!(word_error_rate("one two", ""), 1.0);
    assert_eq!(word_error_rate("one", "one two three"), 2.0);
    assert_eq!(word_error_rate("", ""), 0.0);
}
