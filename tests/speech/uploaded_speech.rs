//! Words of uploaded recordings, with real engines: quiet speech, and speech that goes on for longer than the model hears at a time.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use voxbridge_test_support::bench::recording;

use super::*;

/// Texts of one sentence each, with few places to pause.
const SENTENCES: [&str; 4] = [
    "When the committee met again in the old town hall on the hill above the river nobody remembered who had first proposed the new \
     bridge but everyone agreed that John and his brother had drawn the plans before the winter came.",
    "We walked for three hours through the forest without seeing another person and when we finally reached the lake the sun had \
     already gone down behind the mountains so that we had to wait there in the dark.",
    "The doctor asked him whether he had slept well since the operation and he answered that he had not closed his eyes for two \
     nights because the man in the next room talked about his horses and his daughters.",
    "As soon as the film begins you notice that the director is interested in faces more than in words since for almost ten minutes \
     nobody speaks and we only watch a woman who waits on the platform of a station in the rain.",
];

async fn bench(engines: Arc<SharedEngines>) -> Bench {
    Bench::with_options(Options {
        simulator: SimulatorConfig { workers: 4, record: false, ..instant_simulator() },
        engines: Some(engines),
        ..Options::default()
    })
    .await
}

/// Uploads a recording at 16 kHz, and returns the verbose JSON.
async fn transcribe(server: SocketAddr, samples: &[i16]) -> Value {
    const BOUNDARY: &str = "end-of-part";
    let field = |name: &str, value: &str| {
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n");
    let start = field("model", "x") + &field("response_format", "verbose_json") + &file;
    let body =
        [start.as_bytes(), &wav::write_s16(samples, 16_000), format!("\r\n--{BOUNDARY}--\r\n").as_bytes()]
            .concat();
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.0\r\nhost: {server}\r\ncontent-type: multipart/form-data; boundary={BOUNDARY}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(server).await.unwrap();
    socket.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    serde_json::from_str(body).unwrap()
}

fn floats(samples: &[i16]) -> Vec<f32> {
    samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_recordings_have_as_many_words_right_as_loud_ones() {
    let Some(engines) = shared_engines().await else { return };
    let bench = bench(engines).await;
    let spoken =
        "And you always want to see it in the superlative degree. He was not an ill disposed young man.";
    let pause = vec![0; 12_000];
    let loud = [recording("arctic_a0007"), pause.clone(), recording("librivox_0880"), pause].concat();
    let peak = loud.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
    for peak_dbfs in [-20, -38, -50] {
        let gain = 10_f32.powf(peak_dbfs as f32 / 20.0) * 32_768.0 / f32::from(peak);
        let quiet: Vec<i16> = floats(&loud).iter().map(|sample| pcm::to_i16(sample * gain)).collect();
        let text = transcribe(bench.address(), &quiet).await["text"].as_str().unwrap().to_owned();
        let errors = word_errors(&normalise(spoken), &normalise(&text));
        println!("{peak_dbfs} dBFS: {errors} words wrong: {text}");
        assert!(errors <= 2, "{peak_dbfs} dBFS: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speech_without_pauses_has_as_many_words_right_as_its_sentences() {
    let Some(engines) = shared_engines().await else { return };
    let bench = bench(engines.clone()).await;
    let (mut speech, mut apart) = (Vec::new(), Vec::new());
    for sentence in SENTENCES {
        let spoken = engines.speak(sentence.into()).await.unwrap();
        let spoken = wav::resample_all(&spoken, 24_000, 16_000).unwrap();
        let loud = |sample: &f32| sample.abs() > 0.01;
        let (start, end) = (spoken.iter().position(loud).unwrap(), spoken.iter().rposition(loud).unwrap());
        apart.push(engines.recognise(spoken.clone()).await.unwrap());
        speech.extend(spoken[start..end].iter().map(|sample| pcm::to_i16(*sample)));
    }
    speech.extend(vec![0; 16_000]);
    let answer = transcribe(bench.address(), &speech).await;
    assert!(answer.get("incomplete").is_none(), "{answer:#}");
    let text = answer["text"].as_str().unwrap();
    let expected = normalise(&SENTENCES.join(" "));
    let errors = |text: &str| word_errors(&expected, &normalise(text));
    println!(
        "{} s: {} of {} words wrong, {} apart: {text}",
        speech.len() / 16_000,
        errors(text),
        expected.len(),
        errors(&apart.join(" "))
    );
    assert!(errors(text) <= errors(&apart.join(" ")) + 2, "{text}\n{apart:?}");
    // Sentences of the text begin with these words, and no others.
    let starts = text.split_inclusive(['.', '?', '!']).map(|sentence| normalise(sentence).into_iter().next());
    let false_starts: Vec<_> =
        starts.flatten().filter(|word| !["when", "we", "the", "as"].contains(&word.as_str())).collect();
    assert!(false_starts.is_empty(), "{false_starts:?}: {text}");
    let lengths = answer["segments"].as_array().unwrap().iter();
    let longest =
        lengths.map(|it| it["end"].as_f64().unwrap() - it["start"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(longest <= 8.5, "a segment of {longest} s");
}
