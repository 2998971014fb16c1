//! Families of clients that mapping files serve: the stock clients with a script in each file's `[[tested_with]]`, in the cells
//! that it names. Other files here run the clients that have `tests` there.
//!
//! A script of `tests/families` drives one client in one cell, and prints what came as one line of JSON. A script that drives several
//! clients has a family for each: `NAME CLIENT`.

use std::collections::BTreeSet;

use voxbridge::{
    config::TcpConfig,
    spelling::{
        Library,
        tested_with::{TestCell, TestedClient},
    },
};
use voxbridge_test_support::programs::{fetch_packages, python};

use super::{client_programs::client_turn, *};

const RECORDING: &str = "librivox_0880_16k.wav";
const RECORDED_WORDS: &str = "he was not an ill disposed young man";
const TEXT: &str = "The train to London leaves at half past nine.";
/// Longer than any client takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);
/// Two of ten words may be wrong, because telephones and codecs cost some.
const WER: f64 = 0.25;
/// Most audio of an interrupted answer after the sign of the interruption, s: what was under way.
const LATE_AUDIO_MAX_S: f64 = 0.5;

/// One test for each script's family, and the list of all.
macro_rules! families {
    ($($(#[$attribute:meta])* $test:ident $family:literal,)*) => {
        const FAMILIES: &[&str] = &[$($family),*];
        $(
            #[tokio::test(flavor = "multi_thread")]
            $(#[$attribute])*
            async fn $test() {
                run_family($family).await;
            }
        )*
    };
}

families! {
    ai_sdk "ai_sdk",
    ai_sdk_assemblyai "ai_sdk assemblyai",
    ai_sdk_deepgram "ai_sdk deepgram",
    ai_sdk_elevenlabs "ai_sdk elevenlabs",
    ai_sdk_elevenlabs_stream "ai_sdk elevenlabs_stream",
    ai_sdk_openai "ai_sdk openai",
    ai_sdk_openai_stream "ai_sdk openai_stream",
    assemblyai "assemblyai",
    #[ignore = "takes Asterisk from Debian's unstable release, which changes"]
    asterisk "asterisk",
    #[ignore = "takes Asterisk from Debian's unstable release, which changes"]
    asterisk_in_plain_text "asterisk_text",
    audiosocket "audiosocket",
    cartesia "cartesia",
    dashscope "dashscope_tasks",
    deepgram "deepgram",
    deepgram_rust_agent "deepgram_rust agent",
    deepgram_rust_flux "deepgram_rust flux",
    deepgram_rust_flux_speak "deepgram_rust flux_speak",
    deepgram_rust_listen "deepgram_rust listen",
    deepgram_rust_rest "deepgram_rust rest",
    deepgram_rust_speak "deepgram_rust speak",
    elevenlabs "elevenlabs",
    elevenlabs_in_a_browser "elevenlabs_client",
    exotel "exotel",
    freeswitch "freeswitch",
    funasr "funasr",
    gemini "gemini",
    gladia "gladia",
    jambonz "jambonz",
    javascript_deepgram_agent "javascript_sdks",
    javascript_cartesia_speak "javascript_sdks cartesia_speak",
    javascript_cartesia_turns "javascript_sdks cartesia_turns",
    javascript_elevenlabs "javascript_sdks elevenlabs",
    javascript_speechmatics "javascript_sdks speechmatics",
    livekit_assemblyai "livekit_plugins assemblyai",
    livekit_cartesia "livekit_plugins cartesia",
    livekit_cartesia_tts "livekit_plugins cartesia_tts",
    livekit_cartesia_whisper "livekit_plugins cartesia_whisper",
    livekit_deepgram "livekit_plugins deepgram",
    livekit_deepgram_flux "livekit_plugins deepgram_flux",
    livekit_deepgram_flux_tts "livekit_plugins deepgram_flux_tts",
    livekit_deepgram_tts "livekit_plugins deepgram_tts",
    livekit_elevenlabs "livekit_plugins elevenlabs",
    livekit_elevenlabs_dialogue "livekit_plugins elevenlabs_dialogue",
    livekit_elevenlabs_tts "livekit_plugins elevenlabs_tts",
    livekit_gemini "livekit_plugins gemini",
    livekit_gladia "livekit_plugins gladia",
    livekit_node_cartesia "livekit_node cartesia",
    livekit_node_cartesia_tts "livekit_node cartesia_tts",
    livekit_node_deepgram "livekit_node deepgram",
    livekit_node_deepgram_flux "livekit_node deepgram_flux",
    livekit_node_deepgram_tts "livekit_node deepgram_tts",
    livekit_node_elevenlabs "livekit_node elevenlabs",
    livekit_node_elevenlabs_tts "livekit_node elevenlabs_tts",
    livekit_node_gemini "livekit_node gemini",
    livekit_node_openai_realtime "livekit_node openai_realtime",
    livekit_node_openai_stt "livekit_node openai_stt",
    livekit_openai_live "livekit_plugins openai_live",
    livekit_openai_realtime "livekit_plugins openai_realtime",
    livekit_openai_stt "livekit_plugins openai_stt",
    livekit_qwen_omni "livekit_plugins qwen_omni",
    livekit_soniox "livekit_plugins soniox",
    livekit_soniox_tts "livekit_plugins soniox_tts",
    livekit_speechmatics "livekit_plugins speechmatics",
    livekit_speechmatics_tts "livekit_plugins speechmatics_tts",
    livekit_speechmatics_vad "livekit_plugins speechmatics_vad",
    pipecat_assemblyai "pipecat_services assemblyai",
    pipecat_cartesia "pipecat_services cartesia",
    pipecat_cartesia_http "pipecat_services cartesia_http",
    pipecat_cartesia_tts "pipecat_services cartesia_tts",
    pipecat_cartesia_turns "pipecat_services cartesia_turns",
    pipecat_deepgram "pipecat_services deepgram",
    pipecat_deepgram_flux "pipecat_services deepgram_flux",
    pipecat_deepgram_flux_tts "pipecat_services deepgram_flux_tts",
    pipecat_deepgram_http "pipecat_services deepgram_http",
    pipecat_deepgram_tts "pipecat_services deepgram_tts",
    pipecat_elevenlabs "pipecat_services elevenlabs",
    pipecat_elevenlabs_dialogue "pipecat_services elevenlabs_dialogue",
    pipecat_elevenlabs_http "pipecat_services elevenlabs_http",
    pipecat_elevenlabs_tts "pipecat_services elevenlabs_tts",
    pipecat_elevenlabs_vad "pipecat_services elevenlabs_vad",
    pipecat_gemini "pipecat_services gemini",
    pipecat_gemini_live "pipecat_services gemini_live",
    pipecat_gladia "pipecat_services gladia",
    pipecat_openai_live "pipecat_services",
    pipecat_openai_realtime "pipecat_services openai_realtime",
    pipecat_openai_stt "pipecat_services openai_stt",
    pipecat_soniox "pipecat_services soniox",
    pipecat_soniox_tts "pipecat_services soniox_tts",
    openai_live "openai_live",
    pipecat_speechmatics "pipecat_services speechmatics",
    pipecat_speechmatics_tts "pipecat_services speechmatics_tts",
    pipecat_speechmatics_vad "pipecat_services speechmatics_vad",
    plivo "plivo",
    python_sdks "python_sdks",
    python_dashscope_asr "python_sdks dashscope_asr",
    python_dashscope_tts "python_sdks dashscope_tts",
    python_funasr "python_sdks funasr",
    python_whisper_live "python_sdks whisper_live",
    python_yakyak "python_sdks yakyak",
    qwen_omni "qwen",
    rest_by_cartesia "rest_cartesia",
    rest_by_elevenlabs "rest_elevenlabs",
    rest_by_speechmatics "rest_speechmatics",
    sherpa_onnx "sherpa_onnx",
    sherpa_onnx_offline "sherpa_onnx_offline",
    soniox "soniox",
    speechmatics "speechmatics",
    speechmatics_agent_stt "speechmatics_agent",
    speechmatics_recordings "speechmatics_batch",
    telnyx "telnyx",
    vonage "vonage",
    whisper_live "whisper_live",
    wyoming "wyoming",
}

/// Protocols whose clients can dial only `/` and show no sign there.
const ROUTED: [&str; 2] = ["sherpa-onnx", "sherpa-onnx-offline"];

/// The family whose client is a page.
const BROWSER: &str = "elevenlabs_client";

/// A client of a family, and the mapping file that names it.
struct Subject {
    protocol: String,
    /// Listener of a protocol on bare TCP.
    listener: Option<String>,
    tested: TestedClient,
    script: String,
}

/// The family of a script: its name up to the first dot, as scripts of one family share a list of packages, and the client that it is
/// to drive, if it has several.
fn family_of(script: &str) -> String {
    let (file, chosen) = script.split_once(' ').unwrap_or((script, ""));
    let name = file.split('.').next().unwrap_or_default();
    format!("{name} {chosen}").trim_end().to_owned()
}

fn subjects() -> Vec<Subject> {
    let library = Library::embedded().unwrap();
    let of_file = |client: &Arc<voxbridge::spelling::ClientMapping>| {
        let protocol = client.name.clone();
        let listener = client.tcp.as_ref().map(|tcp| tcp.listener.clone());
        client.tested_with.clone().into_iter().filter_map(move |tested| {
            let script = tested.script.clone()?;
            Some(Subject { protocol: protocol.clone(), listener: listener.clone(), tested, script })
        })
    };
    library.clients().flat_map(of_file).collect()
}

#[test]
fn each_family_has_a_test() {
    let named: BTreeSet<_> = subjects().iter().map(|it| family_of(&it.script)).collect();
    assert_eq!(named, FAMILIES.iter().map(|name| (*name).to_owned()).collect());
}

async fn run_family(family: &str) {
    let Some(packages) = packages_of(family) else { return };
    let Some(engines) = shared_engines().await else { return };
    let mut running = JoinSet::new();
    for subject in subjects().into_iter().filter(|it| family_of(&it.script) == family) {
        let bench = Arc::new(start_bench(&subject, &engines).await);
        for cell in subject.tested.cells.clone() {
            let name = format!("{} {}: {}", subject.protocol, subject.tested.client, cell.name());
            let address = subject.listener.as_ref().map(|_| bench.tcp_address(0));
            let url = address.map(|address| format!("tcp://{address}"));
            let client = (subject.script.clone(), subject.tested.tls);
            let run = run_cell((bench.clone(), url), engines.clone(), client, cell, packages.clone());
            running.spawn(async move { (name, run.await) });
        }
    }
    let results = running.join_all().await;
    let faults: Vec<_> = results
        .iter()
        .filter_map(|(name, fault)| Some(format!("{name}: {}", fault.as_ref().err()?)))
        .collect();
    assert!(!results.is_empty() && faults.is_empty(), "{faults:#?}");
}

/// The packages of a family, or its program. Families without a list of their own use pipecat, whose serializers are the server's end of phone
/// calls. `None` skips the test.
fn packages_of(family: &str) -> Option<Vec<PathBuf>> {
    let family = family.split(' ').next().unwrap_or_default();
    let list = project().join("tests/families").join(family);
    if family == BROWSER {
        installed(&ensure("command -v chromium", "chromium", "install Chromium"))?;
    }
    if !list.is_dir() && !["txt", "npm"].iter().any(|kind| list.with_extension(kind).exists()) {
        let dir = installed_clients()?;
        if family.starts_with("asterisk") {
            installed(&fetch_packages("families/asterisk"))?;
        }
        return Some(["pipecat", "aiohttp", "websockets-17.4", "openai"].map(|name| dir.join(name)).into());
    }
    installed(&fetch_packages(&format!("families/{family}"))).map(|packages| vec![packages.clone()])
}

async fn start_bench(subject: &Subject, engines: &Arc<SharedEngines>) -> Bench {
    // One worker for each cell; other tests cover the queue.
    let simulator = SimulatorConfig { workers: 16, ..SimulatorConfig::default() };
    let mut config = Config { profile: subject.tested.profile.clone(), ..Config::default() };
    if ROUTED.contains(&subject.protocol.as_str()) {
        let route = RouteConfig::catch_all("speech");
        let protocol = Some(subject.protocol.clone());
        config.routes.push(RouteConfig { path: "/".to_owned(), protocol, ..route });
    }
    let listener = subject.listener.clone().into_iter();
    config.tcp.extend(listener.map(|protocol| TcpConfig {
        protocol,
        listen: Some("127.0.0.1:0".to_owned()),
        ..TcpConfig::default()
    }));
    let engines: Arc<SharedEngines> = engines.clone();
    Bench::with_options(Options { simulator, config, engines: Some(engines), ..Options::default() }).await
}

/// Runs the client in this cell. The error says what is wrong with that which came.
async fn run_cell(
    (bench, url): (Arc<Bench>, Option<String>),
    engines: Arc<SharedEngines>,
    (script, tls): (String, bool),
    cell: TestCell,
    packages: Vec<PathBuf>,
) -> Result<(), String> {
    let dir = scratch(&format!("family-{}-{}-{}", family_of(&script), bench.address().port(), cell.name()));
    let heard = dir.join("heard.wav");
    let mut client = program(&script, &packages);
    let url = match (url, tls) {
        (Some(url), _) => url,
        (None, false) => format!("http://{}", bench.address()),
        (None, true) => {
            let certificate = certs::self_signed("localhost");
            let address = certs::serve_tls(bench.address(), certs::acceptor(&certificate)).await;
            let trusted = dir.join("trusted.pem");
            std::fs::write(&trusted, &certificate.0).unwrap();
            client.env("SSL_CERT_FILE", &trusted).env("NODE_EXTRA_CA_CERTS", &trusted);
            format!("https://localhost:{}", address.port())
        }
    };
    client.args([cell.name(), &url]).arg(recording(RECORDING)).arg(&heard).arg(TEXT);
    let weight = if family_of(&script) == BROWSER { ClientWeight::Browser } else { ClientWeight::Script };
    let came = run(client, weight).await?;
    let words = |of: &str| came[of].as_str().unwrap_or_default().to_owned();
    let spoken = || async {
        let samples = decoded(std::fs::read(&heard).unwrap_or_default());
        engines.recognise(samples).await.unwrap_or_default()
    };
    let are_close = |reference: &str, words: &str| word_error_rate(reference, words) <= WER;
    let is_right = match cell {
        TestCell::Transcription => match came["turns"].as_array() {
            // The client spoke the recording several times.
            Some(turns) => {
                turns.iter().all(|words| are_close(RECORDED_WORDS, words.as_str().unwrap_or_default()))
            }
            None => are_close(RECORDED_WORDS, &words("text")),
        },
        TestCell::Speech => are_close(TEXT, &spoken().await),
        // The simulated model repeats what it heard; in full duplex, `you said` stands before it.
        TestCell::Conversation => {
            let repeats = |words: &str| {
                are_close(RECORDED_WORDS, words) || are_close(&format!("you said {RECORDED_WORDS}"), words)
            };
            let (text, user) = (words("text"), words("user"));
            // A client that types its question gets words only, and the beginning of the question among them.
            let is_typed = came["audio_s"] == 0.0 && text.contains(&TEXT[..TEXT.len() / 2]);
            is_typed
                || (repeats(&spoken().await)
                    && (text.is_empty() || repeats(&text))
                    && (user.is_empty() || are_close(RECORDED_WORDS, &user)))
        }
        TestCell::Interruption => {
            came["audio_s"].as_f64() > Some(0.0)
                && came["stopped"] == true
                && came["late_audio_s"].as_f64().is_some_and(|late| late <= LATE_AUDIO_MAX_S)
        }
        TestCell::Error => !words("error").is_empty(),
        TestCell::Close => came["clean"] == true,
    };
    if is_right { Ok(()) } else { Err(format!("{came}, heard {:?}", spoken().await)) }
}

/// The samples of a file in any format, at 16 kHz.
fn decoded(file: Vec<u8>) -> Vec<f32> {
    let Ok(mut decoder) = Decoder::open(file.into(), DecodeLimits::default()) else { return Vec::new() };
    let chunks = std::iter::from_fn(|| decoder.next_chunk()?.ok());
    chunks.flatten().map(pcm::to_f32).collect()
}

/// Last line that the client's script printed. The error is what it complained about.
async fn run(mut client: Command, weight: ClientWeight) -> Result<Value, String> {
    let _turn = client_turn(weight).await;
    let running = client.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(PATIENCE, running).await.map_err(|_| "the client does not end".to_owned())?.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let came = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    // Libraries log to the same place as failures.
    came.filter(|_| output.status.success()).ok_or_else(|| format!("{}: {out}{err}", output.status))
}

/// The script with the packages of its family and of nothing else.
fn program(script: &str, packages: &[PathBuf]) -> Command {
    let (file, chosen) = script.split_once(' ').map_or((script, None), |(file, chosen)| (file, Some(chosen)));
    let path = project().join("tests/families").join(file);
    let mut command;
    if let Some(project) = file.strip_suffix(".rs") {
        command = Command::new(packages[0].join(project));
        command.args(chosen);
        return command;
    }
    if file.ends_with(".py") {
        command = python(&path, packages).into();
    } else {
        let modules = packages[0].join("node_modules");
        // Some lists have a Node of their own, newer than the system's.
        let own = modules.join("node/bin/node");
        command = if own.exists() { Command::new(own) } else { Command::new("node") };
        command.env("NODE_PATH", modules).arg(path);
    }
    command.args(chosen);
    command
}
