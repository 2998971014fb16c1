//! Header of a trace, its first line: the setup of the session, from which a replay opens it again.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::redact::{AudioRetention, Redactor, fill_with_silence};
use crate::{
    audio::pcm,
    bridge::Bridge,
    client::Codec,
    session::{DEFAULT_VOICE, RelaySetup, SessionSetup, VoiceCatalog},
    spelling::{
        ClientMapping, Library, MappingKind, Profile,
        upstream::{Dialects, ServedDialect},
    },
    vocabulary::VoiceSample,
};

/// Setup of a recorded session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// Format version, [`super::VERSION`].
    pub trace: u32,
    /// Version of voxbridge that recorded the trace.
    pub voxbridge: String,
    /// Client protocol.
    pub client: String,
    /// Other client protocols that the first message could have chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Profile.
    pub profile: String,
    /// Dialect of the first upstream.
    pub dialect: String,
    /// Dialects of the other upstreams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_dialects: Vec<String>,
    /// Query string of the client connection.
    pub query: String,
    /// Seed of the session's random numbers.
    pub seed: u64,
    /// Start of the session, ns since 1970.
    pub opened_unix_ns: u64,
    /// Idle timeout, ms.
    pub idle_ms: u64,
    /// Maximum duration of the session, ms; 0 means unlimited.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub session_max_ms: u64,
    /// A model judges the ends of turns.
    #[serde(default, skip_serializing_if = "is_false")]
    pub turn_judge: bool,
    /// The client is another voxbridge, which is about to ask.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asks_soon: bool,
    /// Default language of the session.
    pub language: String,
    /// Audio that the trace keeps.
    pub audio: AudioRetention,
    /// Configured voices, as JSON strings of base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub voices: BTreeMap<String, String>,
    /// Speech models that clients may name; empty if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tts_models: Vec<String>,
    /// Source of every mapping used that is not built in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mappings: Vec<MappingText>,
}

/// Source of a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingText {
    /// Kind of the mapping.
    pub kind: MappingKind,
    /// Name of the mapping.
    pub name: String,
    /// Complete TOML text.
    pub source: String,
}

/// Parts of a session beside its [`SessionSetup`].
#[derive(Debug, Clone, Copy)]
pub struct SessionParts<'p> {
    /// Library with the mappings.
    pub library: &'p Library,
    /// Client protocol.
    pub client: &'p ClientMapping,
    /// Dialects of the upstreams.
    pub dialects: &'p Dialects,
    /// Query string of the client connection.
    pub query: &'p str,
    /// Start of the session, since 1970.
    pub opened_unix: Duration,
}

impl TraceHeader {
    /// Header of a session, not yet redacted.
    pub fn new(parts: SessionParts<'_>, setup: &SessionSetup) -> Self {
        let (voices, tts_models) = setup.voice_catalog.voices_and_models();
        Self {
            idle_ms: setup.audio_in.idle_ms,
            session_max_ms: setup.session_max_ms,
            turn_judge: setup.has_turn_judge,
            asks_soon: setup.asks_soon,
            language: setup.profile.hear.language.clone(),
            voices: voices.iter().map(|(name, voice)| (name.clone(), to_json(voice))).collect(),
            tts_models: tts_models.to_vec(),
            ..Self::from_parts(parts, &[], &setup.profile, setup.seed)
        }
    }

    /// Header of a relayed session, not yet redacted; `others` are further candidate client protocols.
    pub fn relayed(parts: SessionParts<'_>, others: &[Arc<ClientMapping>], setup: &RelaySetup) -> Self {
        let idle_ms = setup.idle_ms.or(setup.profile.relay.as_ref().map(|relay| relay.idle_ms));
        Self {
            idle_ms: idle_ms.unwrap_or_default(),
            session_max_ms: setup.session_max_ms,
            ..Self::from_parts(parts, others, &setup.profile, setup.seed)
        }
    }

    /// Adds the configured voice of clients that name none.
    #[must_use]
    pub fn with_default_voice(mut self, voice: Option<&VoiceSample>) -> Self {
        self.voices.extend(voice.map(|voice| (DEFAULT_VOICE.to_owned(), to_json(voice))));
        self
    }

    fn from_parts(
        parts: SessionParts<'_>,
        others: &[Arc<ClientMapping>],
        profile: &Profile,
        seed: u64,
    ) -> Self {
        let SessionParts { library, client, dialects, query, opened_unix } = parts;
        let mut dialects = dialects.iter().map(|dialect| dialect.name.clone());
        let (dialect, other_dialects) = (dialects.next().unwrap_or_default(), dialects.collect::<Vec<_>>());
        let others: Vec<String> = others.iter().map(|other| other.name.clone()).collect();
        let clients =
            std::iter::once(&client.name).chain(&others).map(|name| (MappingKind::Client, name.clone()));
        let upstreams = std::iter::once(&dialect).chain(&other_dialects);
        let used = clients.chain(upstreams.map(|name| (MappingKind::Upstream, name.clone())));
        let bases =
            library.inheritance_chain(&profile.name).into_iter().map(|name| (MappingKind::Profile, name));
        let text = |(kind, name): (MappingKind, String)| {
            let source = library.source(kind, &name).filter(|_| !library.is_embedded(kind, &name))?;
            Some(MappingText { kind, name, source: source.to_owned() })
        };
        Self {
            trace: super::VERSION,
            voxbridge: env!("CARGO_PKG_VERSION").to_owned(),
            client: client.name.clone(),
            profile: profile.name.clone(),
            query: query.to_owned(),
            seed,
            opened_unix_ns: u64::try_from(opened_unix.as_nanos()).unwrap_or(u64::MAX),
            idle_ms: 0,
            session_max_ms: 0,
            turn_judge: false,
            asks_soon: false,
            language: String::new(),
            audio: AudioRetention::None,
            voices: BTreeMap::new(),
            tts_models: Vec::new(),
            mappings: used.chain(bases).filter_map(text).collect(),
            others,
            dialect,
            other_dialects,
        }
    }

    /// Redacts secrets and audio, and notes which audio the trace keeps.
    pub(super) fn redact(&mut self, audio: AudioRetention, redactor: &mut Redactor) {
        self.audio = audio;
        self.query = redactor.redact_query(&self.query);
        self.voices.values_mut().for_each(|voice| *voice = redactor.redact_voice_sample(voice));
    }

    /// Adds the recorded mappings to a library, in which they take precedence.
    ///
    /// # Errors
    /// This version cannot read a mapping of the trace.
    pub fn library(&self, mut library: Library) -> Result<Library, String> {
        let file = |mapping: &MappingText| {
            (format!("{} {} of the trace", mapping.kind.name(), mapping.name), mapping.source.clone())
        };
        library.add_all(self.mappings.iter().map(file).collect()).map_err(|problem| problem.to_string())?;
        Ok(library)
    }

    /// Opens the session again at this instant, with the mappings of this library.
    ///
    /// # Errors
    /// A mapping is missing.
    pub fn open_bridge(&self, now: Instant, library: &Library) -> Result<Bridge, String> {
        let (client, dialects) = (library.client(&self.client)?, self.dialects(library)?);
        let unix_s = Duration::from_nanos(self.opened_unix_ns).as_secs_f64();
        if client.is_relayed() {
            let (profile, idle_ms) = (library.profile(&self.profile)?, Some(self.idle_ms));
            let others = self.others.iter().map(|other| library.client(other));
            let clients = std::iter::once(Ok(client.clone())).chain(others).collect::<Result<Vec<_>, _>>()?;
            let setup =
                RelaySetup { profile, idle_ms, session_max_ms: self.session_max_ms, unix_s, seed: self.seed };
            let bridge = Bridge::open_relay(now, &clients, &self.query, dialects, setup);
            return Ok(match self.voices.get(DEFAULT_VOICE) {
                Some(json) => bridge.with_default_voice(from_json(json)),
                None => bridge,
            });
        }
        let mut codec = Codec::new(client.clone(), unix_s);
        let connect = codec.decode_query(&self.query);
        let setup = self.setup(&client, &dialects, library.profile(&self.profile)?);
        Ok(Bridge::open(now, codec, connect, dialects, setup))
    }

    /// Dialects of the upstreams. Each serves everything that it can.
    fn dialects(&self, library: &Library) -> Result<Dialects, String> {
        let names = std::iter::once(&self.dialect).chain(&self.other_dialects);
        let dialect = |name: &String| Ok(ServedDialect { mapping: library.upstream(name)?, serves: None });
        let dialects = names.map(dialect).collect::<Result<Vec<_>, String>>()?;
        Dialects::new(dialects).ok_or_else(|| "the trace names no dialect".to_owned())
    }

    fn setup(&self, client: &ClientMapping, dialects: &Dialects, profile: Arc<Profile>) -> SessionSetup {
        let mut profile_with_language = (*profile).clone();
        profile_with_language.hear.language.clone_from(&self.language);
        let voice = |(name, json): (&String, &String)| (name.clone(), from_json(json));
        let voices = VoiceCatalog::new(self.voices.iter().map(voice).collect(), self.tts_models.clone());
        let mut setup = SessionSetup::new(client, Arc::new(profile_with_language), dialects, self.seed);
        setup.audio_in.idle_ms = self.idle_ms;
        setup.session_max_ms = self.session_max_ms;
        setup.has_turn_judge = self.turn_judge;
        setup.asks_soon = self.asks_soon;
        setup.voice_catalog = Arc::new(voices);
        setup
    }
}

/// A voice as a JSON string of base64, raw float32.
fn to_json(voice: &VoiceSample) -> String {
    let mut json = String::from("\"");
    pcm::encode_base64_f32(&voice.samples, &mut json);
    json + "\""
}

/// A voice from a JSON string of base64. Redacted audio is silence of the same length.
fn from_json(json: &str) -> VoiceSample {
    let (base64, _) = fill_with_silence(json.trim_matches('"'));
    let mut samples = Vec::new();
    // A text that is not base64 of samples becomes an empty voice sample.
    let _ = pcm::decode_base64_f32(&base64, &mut samples);
    VoiceSample::new(samples.into_iter().map(pcm::to_i16).collect::<Vec<_>>())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
