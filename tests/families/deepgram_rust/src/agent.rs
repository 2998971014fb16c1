//! The Voice Agent.

use std::collections::VecDeque;

use deepgram::agent::{
    AgentEvent, AgentEventStream, AgentHandle, AgentResponse,
    audio::{AudioConfig, AudioContainer, AudioInput, AudioInputEncoding, AudioOutput, AudioOutputEncoding},
    listen::{AgentListenProvider, AgentListenSettings, DeepgramListenV2Provider},
    messages::{
        FunctionCallResponseMessage, InjectAgentMessageMessage, InjectUserMessageMessage, UpdatePromptMessage,
    },
    settings::{AgentConfig, InlineAgentConfig, SettingsMessage},
    speak::{DeepgramSpeakModel, DeepgramSpeakProvider, SpeakProvider, SpeakSettings},
    think::{OpenAiModel, OpenAiThinkProvider, ThinkFunction, ThinkProvider, ThinkSettings},
};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::{IN_HZ, OUT_HZ, Outcome, PIECE_BYTES, Task, pace, seconds};

/// A session, and what came.
struct Talk {
    handle: AgentHandle,
    events: AgentEventStream,
    audio: Vec<u8>,
    /// Types of the messages.
    kinds: Vec<String>,
    words: Vec<Value>,
    /// What the microphone will hear; it is off without.
    microphone: Option<VecDeque<Vec<u8>>>,
    pace: tokio::time::Interval,
}

fn settings(input: AudioInputEncoding, greeting: Option<&str>) -> SettingsMessage {
    let output = AudioOutput::new().with_encoding(AudioOutputEncoding::Linear16).with_sample_rate(OUT_HZ);
    let output = output.with_container(AudioContainer::None);
    let parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let think = ThinkSettings::new(ThinkProvider::OpenAi(OpenAiThinkProvider::new(OpenAiModel::Gpt4oMini)))
        .with_prompt("Answer in one sentence.")
        .with_function(ThinkFunction::new("get_weather", "The weather of a place.", parameters));
    let listen = AgentListenProvider::DeepgramV2(DeepgramListenV2Provider::new("flux-general-en"));
    let speak = SpeakProvider::Deepgram(DeepgramSpeakProvider::new(DeepgramSpeakModel::Aura2ThaliaEn));
    let mut agent =
        InlineAgentConfig::from_parts(AgentListenSettings::new(listen), think, SpeakSettings::new(speak));
    if let Some(greeting) = greeting {
        agent = agent.with_greeting(greeting);
    }
    let audio = AudioConfig::new(Some(AudioInput::new(input, IN_HZ)), Some(output));
    SettingsMessage::new(audio, AgentConfig::inline(agent))
}

impl Talk {
    async fn open(task: &Task) -> Outcome<Self> {
        let url = format!("{}/v1/agent/converse", task.base_url.replacen("http", "ws", 1));
        let (handle, events) = task.client.agent().start_at_url(&url).await?;
        let mut talk = Self {
            handle,
            events,
            audio: Vec::new(),
            kinds: Vec::new(),
            words: Vec::new(),
            microphone: None,
            pace: pace(),
        };
        talk.until("Welcome").await?;
        Ok(talk)
    }

    async fn start(task: &Task, greeting: Option<&str>) -> Outcome<Self> {
        let mut talk = Self::open(task).await?;
        talk.handle.send_settings(settings(AudioInputEncoding::Linear16, greeting)).await?;
        talk.until("SettingsApplied").await?;
        Ok(talk)
    }

    /// The next message, as JSON; `None` is audio. The microphone goes on meanwhile.
    async fn next(&mut self) -> Outcome<Option<Value>> {
        loop {
            tokio::select! {
                _ = self.pace.tick(), if self.microphone.is_some() => {
                    let piece = self.microphone.as_mut().and_then(VecDeque::pop_front);
                    self.handle.send_data(piece.unwrap_or_else(|| vec![0; PIECE_BYTES])).await?;
                }
                event = self.events.next() => return self.note(event.ok_or("the connection closed")??),
            }
        }
    }

    fn note(&mut self, event: AgentEvent) -> Outcome<Option<Value>> {
        let response = match event {
            AgentEvent::Audio(piece) => {
                self.audio.extend_from_slice(&piece);
                return Ok(None);
            }
            AgentEvent::Json(AgentResponse::Unknown(message)) => {
                return Err(format!("unknown: {message}").into());
            }
            AgentEvent::Json(response) => response,
            _ => return Err("an unknown event".into()),
        };
        let message = serde_json::to_value(response)?;
        self.kinds.push(message["type"].as_str().unwrap_or_default().to_owned());
        if message["type"] == "ConversationText" {
            self.words.push(message.clone());
        }
        Ok(Some(message))
    }

    async fn until(&mut self, kind: &str) -> Outcome {
        loop {
            if let Some(message) = self.next().await? {
                if message["type"] == kind {
                    return Ok(message);
                }
                if message["type"] == "Error" || message["type"] == "Warning" {
                    return Err(message.to_string().into());
                }
            }
        }
    }

    fn words_of(&self, role: &str) -> String {
        let of_role = self.words.iter().filter(|text| text["role"] == role);
        of_role.filter_map(|text| text["content"].as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Closes the session. True if its events end without an error.
    async fn close(mut self) -> Outcome<bool> {
        self.handle.close().await?;
        while let Some(event) = self.events.next().await {
            self.note(event?)?;
        }
        Ok(true)
    }
}

pub async fn run(task: &Task) -> Outcome {
    match task.cell.as_str() {
        "conversation" => converse(task).await,
        "interruption" => interrupt(task).await,
        "speech" => speak(task).await,
        "error" => {
            let mut talk = Talk::open(task).await?;
            talk.handle.send_settings(settings(AudioInputEncoding::Speex, None)).await?;
            let error = talk.until("Error").await?;
            Ok(json!({"error": format!("{}: {}", error["code"], error["description"])}))
        }
        _ => Ok(json!({"clean": Talk::start(task, None).await?.close().await?})),
    }
}

/// A spoken question, a new prompt, and a question that needs a function.
async fn converse(task: &Task) -> Outcome {
    let mut talk = Talk::start(task, None).await?;
    talk.microphone = Some(task.pieces().collect());
    talk.until("AgentAudioDone").await?;
    while talk.words_of("assistant").is_empty() {
        talk.next().await?;
    }
    talk.microphone = None;
    let audio_s = task.keep(&talk.audio)?;
    let (user, text) = (talk.words_of("user"), talk.words_of("assistant"));
    let order = ["UserStartedSpeaking", "AgentThinking", "AgentStartedSpeaking", "AgentAudioDone"];
    let kinds: Vec<_> = talk.kinds.iter().filter(|kind| order.contains(&kind.as_str())).collect();
    assert_eq!(kinds, order);
    talk.handle.keep_alive().await?;
    talk.handle.send_update_prompt(UpdatePromptMessage::new("Answer in two sentences.")).await?;
    talk.until("PromptUpdated").await?;
    talk.words.clear();
    talk.handle
        .send_inject_user_message(InjectUserMessageMessage::new("What is the weather in Rome?"))
        .await?;
    let request = talk.until("FunctionCallRequest").await?;
    let call = &request["functions"][0];
    let parameters: Value = serde_json::from_str(call["arguments"].as_str().ok_or("no arguments")?)?;
    let content = format!("sunny in {}", parameters["city"].as_str().unwrap_or_default());
    let id = call["id"].as_str().ok_or("no id")?;
    let answer = FunctionCallResponseMessage::with_id(id, "get_weather", content);
    talk.handle.send_function_call_response(answer).await?;
    talk.until("AgentAudioDone").await?;
    let called = talk.words_of("assistant");
    assert!(called.contains("sunny in Rome"), "{called}");
    talk.close().await?;
    Ok(json!({"text": text, "user": user, "audio_s": audio_s, "called": called}))
}

async fn interrupt(task: &Task) -> Outcome {
    let mut talk = Talk::start(task, None).await?;
    talk.handle.send_inject_user_message(InjectUserMessageMessage::new(&task.text)).await?;
    while talk.audio.is_empty() {
        talk.next().await?;
    }
    talk.microphone = Some(task.pieces().collect());
    talk.until("UserStartedSpeaking").await?;
    let before = std::mem::take(&mut talk.audio);
    talk.until("AgentThinking").await?;
    Ok(json!({"audio_s": seconds(&before), "stopped": true, "late_audio_s": seconds(&talk.audio)}))
}

/// The greeting, and a message for the agent to say.
async fn speak(task: &Task) -> Outcome {
    let mut talk = Talk::start(task, Some(&task.text)).await?;
    talk.until("AgentAudioDone").await?;
    let audio_s = task.keep(&std::mem::take(&mut talk.audio))?;
    talk.handle.send_inject_agent_message(InjectAgentMessageMessage::new("One more thing.")).await?;
    talk.until("AgentAudioDone").await?;
    assert_eq!(talk.words_of("assistant"), format!("{} One more thing.", task.text));
    Ok(json!({"audio_s": audio_s, "second_audio_s": seconds(&talk.audio)}))
}
