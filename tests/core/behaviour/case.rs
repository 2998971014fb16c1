//! The cases: each client protocol with the profiles and servers that serve it.

use std::{fmt, sync::Arc};

use voxbridge::spelling::{Profile, UpstreamMapping, compatibility::check_compatible};

use super::*;

/// A kind of server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    /// Name of its dialect.
    pub(super) dialect: &'static str,
    simulated: SimDialect,
    backend: Backend,
    version: VllmVersion,
    /// It holds one session at a time.
    pub(super) has_one_session: bool,
    /// It is voxbridge before the simulated server.
    is_bridge: bool,
}

const fn server(
    name: &'static str,
    dialect: &'static str,
    simulated: SimDialect,
    backend: Backend,
) -> Server {
    Server {
        name,
        dialect,
        simulated,
        backend,
        version: VllmVersion::V0_30,
        has_one_session: false,
        is_bridge: false,
    }
}

/// All kinds. The HTTP servers are scripted.
static SERVERS: [Server; 14] = [
    server("PyTorch", "minicpm-o", SimDialect::Current, Backend::Pytorch),
    server("C++", "minicpm-o", SimDialect::Current, Backend::Cpp),
    Server {
        has_one_session: true,
        ..server("llama.cpp-omni", "llama-cpp-omni", SimDialect::LlamaCppOmni, Backend::Cpp)
    },
    server("legacy", "minicpm-o-legacy", SimDialect::Legacy { follows_document: false }, Backend::Pytorch),
    server(
        "documented legacy",
        "minicpm-o-legacy",
        SimDialect::Legacy { follows_document: true },
        Backend::Pytorch,
    ),
    server("vLLM-Omni 0.30", "vllm-omni", SimDialect::VllmOmni, Backend::Pytorch),
    Server {
        version: VllmVersion::V0_32,
        ..server("vLLM-Omni 0.32", "vllm-omni", SimDialect::VllmOmni, Backend::Pytorch)
    },
    server("SGLang-Omni", "sglang-omni", SimDialect::SglangOmni, Backend::Pytorch),
    server("OpenAI", "openai-realtime", SimDialect::OpenaiRealtime(RealtimeServer::Openai), Backend::Cpp),
    server(
        "vLLM-Omni in turns",
        "openai-realtime",
        SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni),
        Backend::Pytorch,
    ),
    Server {
        is_bridge: true,
        ..server("voxbridge", "openai-realtime", SimDialect::Current, Backend::Pytorch)
    },
    server("vLLM-Omni by HTTP", "vllm-omni-http", SimDialect::Current, Backend::Pytorch),
    server("SGLang-Omni by HTTP", "sglang-omni-http", SimDialect::Current, Backend::Pytorch),
    server("OpenAI audio", "openai-audio", SimDialect::Current, Backend::Pytorch),
];

/// A client with a profile on a server.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) client: &'static Arc<ClientMapping>,
    pub(super) profile: &'static Arc<Profile>,
    pub(super) server: &'static Server,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} on {}", self.client.name, self.profile.name, self.server.name)
    }
}

/// The embedded mappings.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::embedded().unwrap())
}

impl Case {
    /// The client on the usual server.
    pub(super) fn is_usual(&self) -> bool {
        self.server.name == "PyTorch"
    }

    /// The client in the profile that it has by default.
    pub(super) fn has_default_profile(&self) -> bool {
        self.profile.name == self.client.default_profile.as_deref().unwrap_or("speech")
    }

    pub(super) fn mapped_client(&self) -> MappedClient {
        MappedClient::new(self.client)
    }

    /// True if the model hears all the time and speaks unasked.
    pub(super) fn converses(&self) -> bool {
        self.profile.dialogue.is_some()
    }

    /// True if the model answers in turns.
    pub(super) fn answers(&self) -> bool {
        self.profile.answers.is_some()
    }

    pub(super) fn upstream(&self) -> Arc<UpstreamMapping> {
        library().upstream(self.server.dialect).unwrap()
    }

    pub(super) fn is_http(&self) -> bool {
        self.upstream().is_http()
    }

    /// A session of this case.
    pub(super) fn config(&self) -> HarnessConfig {
        let mut config = HarnessConfig {
            library: library().clone(),
            upstream: self.server.dialect,
            has_second_bridge: self.server.is_bridge,
            ..HarnessConfig::of(&self.client.name, &self.profile.name, &self.mapped_client().query())
        };
        if self.server.name == "vLLM-Omni 0.30" {
            // It has no voice of its own.
            let voice = VoiceSample::new(vec![1000; 16_000]);
            config.voices = VoiceCatalog::new(BTreeMap::from([("default".to_owned(), voice)]), Vec::new());
        }
        let simulator = &mut config.simulator;
        simulator.dialect = self.server.simulated;
        simulator.backend = self.server.backend;
        simulator.vllm_version = self.server.version;
        // Of voxbridge, each session takes as many as one of the client.
        simulator.workers = if self.server.is_bridge { 4 } else { 2 };
        simulator.record = false;
        config
    }
}

/// Every client in its own profile, and in a conversation if it can have one, on the usual server.
pub(super) fn on_usual_server() -> impl Iterator<Item = Case> {
    all().filter(Case::is_usual)
}

/// The same on every kind of server.
pub(super) fn on_all_servers() -> impl Iterator<Item = Case> {
    all()
}

/// Every client that can have answers in turns, whatever its own profile is, on every kind of server with a WebSocket.
pub(super) fn in_turns() -> impl Iterator<Item = Case> {
    let profile = library().profiles().find(|profile| profile.name == "assistant").unwrap();
    let clients = library().clients().filter(|client| !client.is_relayed());
    clients.flat_map(move |client| {
        let fits = move |server: &&'static Server| {
            let upstream = library().upstream(server.dialect).unwrap();
            !upstream.is_http() && check_compatible(client, profile, &upstream).is_ok()
        };
        SERVERS.iter().filter(fits).map(move |server| Case { client, profile, server })
    })
}

fn all() -> impl Iterator<Item = Case> {
    // Relayed clients speak the model's own protocol: their messages pass unchanged, and have tests of their own.
    let clients = library().clients().filter(|client| !client.is_relayed());
    clients.flat_map(|client| {
        let is_tried = |profile: &&'static Arc<Profile>| {
            let own = client.default_profile.as_deref().unwrap_or("speech");
            profile.name == own || profile.name == "conversation"
        };
        let profiles = library().profiles().filter(is_tried);
        profiles.flat_map(move |profile| {
            let fits = move |server: &&'static Server| {
                check_compatible(client, profile, &library().upstream(server.dialect).unwrap()).is_ok()
            };
            SERVERS.iter().filter(fits).map(move |server| Case { client, profile, server })
        })
    })
}

#[test]
fn every_embedded_client_has_a_case() {
    let missing: Vec<_> = library()
        .clients()
        .filter(|client| !client.is_relayed())
        .filter(|client| {
            !on_usual_server().any(|case| case.client.name == client.name && case.has_default_profile())
        })
        .map(|client| &client.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let servers =
        SERVERS.iter().filter(|server| !on_all_servers().any(|case| case.server.name == server.name));
    assert_eq!(servers.map(|server| server.name).collect::<Vec<_>>(), [""; 0], "a server without a client");
}
