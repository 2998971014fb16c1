//! Phone calls with real speech and real engines: pipecat's unmodified TwilioFrameSerializer is the other side.

use super::*;

const RECORDING: &str = "librivox_0880_16k.wav";
const WORDS: &str = "he was not an ill disposed young man";
/// A phone's 8 kHz costs recognition little (mappings/notes/telephony.md#twilio). Two of ten words may be wrong.
const WER: f64 = 0.21;

/// A bridge whose clients get this profile, and the engines behind its simulated model.
async fn start(profile: &str) -> Option<(Bench, Arc<SharedEngines>)> {
    let engines = shared_engines_for_clients().await?;
    let config = Config { profile: Some(profile.to_owned()), ..Config::default() };
    let simulator = SimulatorConfig { record: true, ..SimulatorConfig::default() };
    let options = Options { simulator, config, engines: Some(engines.clone()), ..Options::default() };
    Some((Bench::with_options(options).await, engines))
}

/// Makes a call with these parameters; returns what came, and the words that the caller heard.
async fn call(bench: &Bench, engines: &SharedEngines, name: &str, parameters: &[&str]) -> (Value, String) {
    let heard: PathBuf = scratch(&format!("call-{name}")).join("heard.wav");
    let mut client = python("twilio_call.py", &["pipecat", "aiohttp", "websockets-17.4"]);
    // Twilio dials only wss.
    let path = row("Twilio Media Streams").path("wss://HOST", '"').to_owned();
    client.arg(format!("ws://{}{path}", bench.address())).arg(recording(RECORDING)).arg(&heard);
    client.args(parameters);
    let came: Value = serde_json::from_str(&run(client).await).unwrap();
    assert_eq!((&came["spelled_alike"], &came["close"]), (&json!(true), &json!(1000)), "{came}");
    let (samples, _) = wav::read(&std::fs::read(&heard).unwrap(), Duration::from_secs(120)).unwrap();
    (came, engines.recognise(samples).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_answers_the_caller() {
    let Some((bench, engines)) = start("conversation").await else { return };
    let (came, heard) = call(&bench, &engines, "conversation", &["language=en"]).await;
    let expected = format!("you said {WORDS}");
    assert!(word_error_rate(&expected, &heard) <= WER, "{heard}");
    assert_eq!((came["marks"].as_array().unwrap().len(), &came["clears"]), (1, &json!(0)), "{came}");
}

#[tokio::test(flavor = "multi_thread")]
async fn barge_in_silences_the_phone_and_gets_an_answer_of_its_own() {
    let Some((bench, engines)) = start("conversation").await else { return };
    let (came, heard) = call(&bench, &engines, "interrupted", &["interrupt=yes"]).await;
    assert_eq!(came["clears"], 1, "{came}");
    // The caller hears at most the beginning of the first answer, and then the second one alone.
    assert!(came["heard_before_clear_ms"].as_u64() < Some(2500), "{came}");
    assert!(word_error_rate(&format!("you said {WORDS}"), &heard) <= WER, "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn speech_profile_greets_and_transcribes_the_caller() {
    let Some((bench, engines)) = start("speech").await else { return };
    let say = "The train to London leaves at half past nine.";
    let (came, heard) = call(&bench, &engines, "speech", &[&format!("say={say}")]).await;
    assert!(word_error_rate(say, &heard) <= WER, "{heard}");
    assert_eq!((came["marks"].as_array().unwrap().len(), &came["clears"]), (1, &json!(0)), "{came}");
    let questions = bench.recorder.asr_audio();
    assert_eq!(questions.len(), 1, "one utterance reaches the model");
    let words = engines.recognise(questions[0].clone()).await.unwrap();
    assert!(word_error_rate(WORDS, &words) <= WER, "{words}");
}
