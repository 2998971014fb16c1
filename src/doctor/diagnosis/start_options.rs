//! Diagnoses that name the option with which a server must be started, by its dialect.
//!
//! Source: the command lines and deployment files of the packages sglang-omni 0.1.9, vllm-omni 0.30.0 and 0.32.0rc1.

use super::{CheckedServer, Diagnosis};
use crate::{doctor::symptom::Symptom, vocabulary::EndKind};

/// `None` where the general diagnosis says all.
pub(super) fn diagnose(server: &CheckedServer, symptom: &Symptom) -> Option<Diagnosis> {
    let what = match symptom {
        Symptom::RecoverableError(_) => "could not answer",
        _ => "opened no session",
    };
    let seen = format!("{} {what}: {}.", server.authority, symptom.summary());
    let (cause, advice) = match server.dialect.as_str() {
        "sglang-omni" => sglang_omni(symptom)?,
        "vllm-omni" => vllm_omni(symptom)?,
        "openai-realtime" => openai_realtime(symptom)?,
        _ => return None,
    };
    let start = server.start.as_ref().map_or_else(String::new, |start| format!(" It is started by: {start}"));
    Some(Diagnosis::new(seen, cause, format!("{advice}{start}")))
}

const fn sglang_omni(symptom: &Symptom) -> Option<(&'static str, &'static str)> {
    Some(match symptom {
        Symptom::HttpStatus { status: 503, is_html: false, .. } => (
            "All sessions of the server are taken (two, unless its file says otherwise), or its model is still loading.",
            "Wait until GET /v1/realtime/capabilities answers 200. If it does, raise `max_sessions` in the file named by the server's --config.",
        ),
        Symptom::HttpStatus { status: 403 | 404, .. } => (
            "The server was started without --enable-realtime, it is the deployment for speech over HTTP, or the URL names `session_id` or another `model`.",
            "Start the full-duplex deployment with --enable-realtime, and leave the query out of the URL.",
        ),
        _ => return None,
    })
}

/// Words about a server that holds no conversations: those of its route, and those about the capabilities of its session,
/// which a deployment in turns opens since version 0.31.
const TURN_DEPLOYMENT_SIGNS: [&str; 4] =
    ["not available", "not enabled", "implementation_level", "unsupported_model"];

fn vllm_omni(symptom: &Symptom) -> Option<(&'static str, &'static str)> {
    let (kind, detail) = match symptom {
        Symptom::SessionEnded { kind, detail, .. } => (kind, detail),
        Symptom::RecoverableError(detail) => return refused_audio(detail),
        _ => return None,
    };
    Some(match kind {
        EndKind::QueueFull => (
            "All sessions of the server are taken: 4, or 16 since version 0.31, unless its deployment says otherwise.",
            "Raise `max_sessions` under `duplex_session`, and `max_num_seqs` of the stages, in a copy of the deployment's file, and name the copy with --deploy-config.",
        ),
        _ if TURN_DEPLOYMENT_SIGNS.iter().any(|sign| detail.contains(sign)) => (
            "The server runs a turn-based deployment or a model that only takes turns, or the URL has ?duplex=0.",
            "For answers in turns, set dialect = \"openai-realtime\" for this upstream. For conversations, start the server with MiniCPM-o and without --deploy-config minicpmo_4_5_turn.yaml or minicpmo_4_5_turn_mrv2.yaml (its file must say `session_mode: duplex`), and leave the query out of the URL.",
        ),
        _ if detail.contains("ref_audio") => (
            "This version of the server opens a conversation only with a voice sample, and the configuration has none.",
            "Name one: [voices] default = \"FILE.wav\". The server itself has no option for it.",
        ),
        _ => return None,
    })
}

fn openai_realtime(symptom: &Symptom) -> Option<(&'static str, &'static str)> {
    let detail = match symptom {
        Symptom::HttpStatus { status: 401, .. } => "invalid_api_key",
        Symptom::HttpStatus { status: 429, .. } => "rate_limit_exceeded",
        Symptom::HttpStatus { status: 503, is_html: false, .. } => "server_busy",
        Symptom::SessionEnded { detail, .. } | Symptom::RecoverableError(detail) => detail,
        _ => return None,
    };
    let is = |codes: &[&str]| codes.iter().any(|code| detail.contains(code));
    Some(if is(&["missing_model", "model_not_found", "unsupported_model", "invalid_model"]) {
        (
            "The server needs the name of one of its models, or does not have the one that is configured.",
            "Set `model` of the [[upstream]] to one of the server's models (GET /v1/models).",
        )
    } else if is(&["invalid_api_key"]) {
        (
            "The server does not accept the key.",
            "Set `token` or `token_file` of the [[upstream]] to a valid key; Azure takes it in token_header = \"api-key\".",
        )
    } else if is(&["insufficient_quota", "billing"]) {
        (
            "The account has no quota left.",
            "Check the plan and the billing of the account that the key belongs to.",
        )
    } else if is(&["rate_limit_exceeded", "server_busy"]) {
        (
            "The server takes no further session now: its limit of sessions or of requests is reached.",
            "Wait, raise the limit, or set `max_sessions` of the [[upstream]] to what the server takes.",
        )
    } else if is(&["Out-of-band", "not supported", "Realtime API is not available"]) {
        (
            "The deployment lacks what was asked for.",
            "Set `serves` of this upstream to what it has, such as [\"answer\"], and add another for the rest.",
        )
    } else {
        return None;
    })
}

/// Errors about audio, after which the session of vLLM-Omni goes on.
fn refused_audio(detail: &str) -> Option<(&'static str, &'static str)> {
    Some(match detail.split(':').next()? {
        "input_backpressure" => (
            "The server has no room for audio: its model does not process what it was given.",
            "Check the log of the stages and their GPU, and restart the server.",
        ),
        "bad_audio" | "bad_event" => (
            "The model of the deployment takes other audio than MiniCPM-o, which takes 16000 Hz in units of one second.",
            "Serve MiniCPM-o.",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{diagnosis::diagnose, step::DoctorStep};

    fn advice(dialect: &str, step: DoctorStep, symptom: &Symptom) -> String {
        let server = CheckedServer {
            dialect: dialect.to_owned(),
            start: Some("serve --port 1".to_owned()),
            ..CheckedServer::default()
        };
        diagnose(&server, step, symptom, None).advice
    }

    #[test]
    fn advice_names_the_server_s_own_options() {
        let status = |status| Symptom::HttpStatus { status, server: None, is_html: false };
        let ended = |kind, detail: &str| Symptom::SessionEnded {
            detail: detail.to_owned(),
            kind,
            code: None,
            had_voice: false,
        };
        let (upgrade, init, answer) = (DoctorStep::Upgrade, DoctorStep::Init, DoctorStep::Answer);
        let refused = |detail: &str| Symptom::RecoverableError(detail.to_owned());
        for (dialect, step, symptom, option) in [
            ("sglang-omni", upgrade, status(503), "`max_sessions`"),
            ("sglang-omni", upgrade, status(403), "--enable-realtime"),
            ("vllm-omni", init, ended(EndKind::QueueFull, "resource_exhausted"), "--deploy-config"),
            (
                "vllm-omni",
                init,
                ended(EndKind::Other, "Realtime API is not available"),
                "session_mode: duplex",
            ),
            ("vllm-omni", init, ended(EndKind::Other, "VAD realtime is not enabled"), "session_mode: duplex"),
            (
                "vllm-omni",
                init,
                ended(EndKind::UnfitStillOpen, "implementation_level is not named"),
                "minicpmo_4_5_turn_mrv2.yaml",
            ),
            ("vllm-omni", init, ended(EndKind::Other, "ref_audio_required: x"), "[voices] default"),
            (
                "vllm-omni",
                init,
                ended(EndKind::Other, "unsupported_model: x"),
                "dialect = \"openai-realtime\"",
            ),
            ("vllm-omni", answer, refused("input_backpressure: too many pending input bytes"), "GPU"),
            ("vllm-omni", answer, refused("bad_event: sample_rate_hz must be 24000"), "Serve MiniCPM-o"),
            ("openai-realtime", init, ended(EndKind::Other, "missing_model: x"), "Set `model`"),
            ("openai-realtime", init, ended(EndKind::Misconfigured, "unsupported_model: x"), "/v1/models"),
            ("openai-realtime", upgrade, status(401), "`token`"),
            ("openai-realtime", upgrade, status(429), "`max_sessions`"),
            ("openai-realtime", answer, ended(EndKind::Misconfigured, "insufficient_quota: x"), "billing"),
            ("openai-realtime", answer, refused("x: Out-of-band responses are not supported"), "serves"),
            ("llama-cpp-omni", DoctorStep::Tcp, Symptom::ConnectionRefused, "correct the port"),
        ] {
            let advice = advice(dialect, step, &symptom);
            assert!(advice.contains(option), "{dialect}, {symptom:?}: {advice}");
            assert!(advice.ends_with("started by: serve --port 1"), "{dialect}, {symptom:?}: {advice}");
        }
        assert!(
            advice("vllm-omni", upgrade, &status(503)).contains("the proxy"),
            "not the server's own answer"
        );
    }
}
