//! The target of the checks: an upstream, its modes, and the texts and voice of the sessions.

use std::sync::Arc;

use crate::{
    audio::SPEECH_RATE_HZ,
    config::UpstreamConfig,
    session::lanes::voice_encoding::VoiceEncodingChoice,
    spelling::UpstreamMapping,
    vocabulary::{
        ChatMessage, ChatTurn, ConversationInit, EntryPart, LanePurpose, LaneRequest, Mode, Role, UnitInput,
        VoiceEncoding, VoiceSample,
    },
};

/// Upstream to check, with the mode and the texts to use.
#[derive(Clone)]
pub(crate) struct CheckTarget {
    pub(crate) config: UpstreamConfig,
    pub(crate) dialect: Arc<UpstreamMapping>,
    /// Mode to check.
    pub(crate) mode: Mode,
    /// Other modes that the routes need.
    pub(crate) other_modes: Vec<Mode>,
    pub(crate) texts: SessionTexts,
}

/// Texts and voice of the sessions.
#[derive(Clone)]
pub(crate) struct SessionTexts {
    /// System prompt of a conversation.
    pub(crate) prompt: String,
    /// Settings of a conversation, a JSON object.
    pub(crate) config: Arc<str>,
    /// Prompt for the transcription of a recording in a chat.
    pub(crate) transcribe_prompt: String,
    /// Default voice.
    pub(crate) voice: Option<VoiceSample>,
}

impl SessionTexts {
    /// Command that opens a session in this mode.
    pub(super) fn init_command(&self, mode: Mode, encoding: Option<VoiceEncoding>) -> LaneRequest {
        let voice = self.voice.clone().filter(|_| encoding.is_some());
        let command = match mode {
            Mode::Chat => LaneRequest::Init(voice),
            Mode::Audio | Mode::Video => LaneRequest::InitConversation(Box::new(ConversationInit {
                prompt: self.prompt.clone(),
                config: self.config.clone(),
                voice,
                voice_name: None,
            })),
        };
        VoiceEncodingChoice::new(encoding.into_iter().collect()).encode_voice(command).0
    }

    /// Command that sends one silent second, as a unit of a conversation or as a recording; or a greeting to a server that
    /// transcribes only in connections opened for that.
    pub(super) fn question_command(&self, dialect: &UpstreamMapping, mode: Mode) -> LaneRequest {
        let audio = Arc::new(vec![0; SPEECH_RATE_HZ as usize]);
        match mode {
            Mode::Chat if dialect.queries.contains_key(&LanePurpose::Transcribe) => greeting(),
            Mode::Chat => LaneRequest::Transcribe { prompt: self.transcribe_prompt.clone().into(), audio },
            Mode::Audio | Mode::Video => LaneRequest::Append(UnitInput {
                audio,
                input_id: "".into(),
                force_listen: false,
                frame: None,
            }),
        }
    }
}

/// A question that is answered in a few written words.
fn greeting() -> LaneRequest {
    let greeting = ChatMessage { role: Role::User, parts: vec![EntryPart::Text("Hello.".to_owned())] };
    LaneRequest::Chat(Box::new(ChatTurn {
        instructions: "Answer in one word.".to_owned(),
        messages: vec![greeting],
        max_tokens: 64,
        ..ChatTurn::default()
    }))
}
