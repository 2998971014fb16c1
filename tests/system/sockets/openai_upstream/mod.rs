//! Servers of OpenAI's Realtime protocol as upstreams: vLLM-Omni's turn handler and speech-to-speech, both without a model, and
//! voxbridge itself.

mod chain;
mod pools;
mod ports;
mod turns;

use super::*;

/// The server at this address, as an upstream of the dialect.
pub(crate) fn realtime_upstream(address: SocketAddr) -> UpstreamConfig {
    UpstreamConfig {
        url: format!("ws://{address}/v1/realtime"),
        dialect: "openai-realtime".into(),
        ..UpstreamConfig::with_default_dialect()
    }
}

/// A bridge in front of this server.
async fn bench_at(address: SocketAddr) -> Bench {
    Bench::of(Config { upstream: vec![realtime_upstream(address)], ..Config::default() }).await
}

/// A client of OpenAI's protocol, with these settings of its session.
async fn openai_client(bench: &Bench, settings: Value) -> Client {
    let mut client = bench.dial("/openai/v1/realtime?model=gpt-realtime").await;
    client.wait_for_event("session.created").await;
    let mut session = json!({"type": "realtime", "output_modalities": ["audio"]});
    session.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    client.send_json(json!({"type": "session.update", "session": session})).await;
    client.wait_for_event("session.updated").await;
    client
}

/// What a client gets in answer to one question.
#[derive(Debug, PartialEq)]
struct Answered {
    status: String,
    text: String,
    audio: Vec<i16>,
    calls: Vec<(String, String)>,
}

impl Answered {
    fn of(frames: &[ClientFrame]) -> Self {
        let (mut text, mut audio, mut calls, mut status) =
            (String::new(), Vec::new(), Vec::new(), String::new());
        for frame in frames {
            let ClientFrame::Event(event) = frame else { continue };
            let words = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            match frame.kind() {
                "response.output_audio_transcript.delta" | "response.output_text.delta" => {
                    text += &words("delta");
                }
                "response.output_audio.delta" => audio.extend(STANDARD.decode(words("delta")).unwrap()),
                "response.function_call_arguments.done" => calls.push((words("call_id"), words("arguments"))),
                "response.done" => status = event["response"]["status"].as_str().unwrap().to_owned(),
                _ => {}
            }
        }
        Self { status, text, audio: samples(&audio), calls }
    }
}

/// Asks for a response, and reads it.
async fn respond(client: &mut Client) -> Answered {
    let from = client.received.len();
    client.send_json(json!({"type": "response.create"})).await;
    client.wait_for_event("response.done").await;
    Answered::of(&client.received[from..])
}

/// Writes a question, and reads the answer.
async fn ask(client: &mut Client, question: &str) -> Answered {
    add_item(
        client,
        &json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}),
    )
    .await;
    respond(client).await
}

async fn add_item(client: &mut Client, item: &Value) {
    client.send_json(json!({"type": "conversation.item.create", "item": item})).await;
}

/// Says something, 16 kHz, and then nothing, until the voice detector ends the turn and the answer is complete.
async fn say(client: &mut Client, said: &[i16]) -> Answered {
    let from = client.received.len();
    // 24 kHz, as OpenAI's clients send it.
    let louder: Vec<i16> = said
        .iter()
        .flat_map(|sample| [*sample, *sample])
        .enumerate()
        .filter(|(at, _)| at % 4 != 3)
        .map(|(_, sample)| sample)
        .collect();
    for frame in louder.chunks(2400).map(<[i16]>::to_vec).chain(std::iter::repeat_n(vec![0; 2400], 20)) {
        let audio = STANDARD.encode(bytes(&frame));
        client.send_json(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    }
    client.wait_for_event("response.done").await;
    Answered::of(&client.received[from..])
}

/// Tools of a client: one that tells the weather.
fn weather_tools() -> Value {
    let parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!({"tools": [{"type": "function", "name": "get_weather", "description": "Weather", "parameters": parameters}]})
}
