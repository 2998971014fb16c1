//! Messages of clients of the model's own protocol, in both dialects.

use super::*;

/// The client's dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayDialect {
    Legacy,
    Current,
}

impl RelayDialect {
    pub(crate) fn opening(self) -> Value {
        let prompt = "You are a helpful assistant.";
        match self {
            Self::Legacy => json!({"type": "session.update", "session": {"instructions": prompt}}),
            Self::Current => json!({"type": "session.init", "payload": {"system_prompt": prompt}}),
        }
    }

    pub(crate) fn append(self, samples: &[i16]) -> Value {
        let bytes: Vec<u8> =
            samples.iter().flat_map(|sample| (f32::from(*sample) / 32_768.0).to_le_bytes()).collect();
        let mut input = json!({"audio": STANDARD.encode(bytes), "force_listen": false});
        match self {
            Self::Legacy => {
                input["type"] = json!("input_audio_buffer.append");
                input
            }
            Self::Current => json!({"type": "input.append", "input": input}),
        }
    }
}

/// A chat question.
pub(crate) fn chat_message(text: &str) -> Value {
    json!({"type": "input.append", "input": {
        "messages": [{"role": "user", "content": text}], "streaming": true, "tts": {"enabled": true},
        "use_tts_template": true,
    }})
}

#[track_caller]
pub(crate) fn assert_close(client: &Client, code: u16) {
    let last: Vec<_> = client.received.iter().rev().take(2).collect();
    assert!(
        matches!(last[..], [ClientFrame::End(None), ClientFrame::Close(came, _)] if *came == code),
        "{}",
        describe_received(client)
    );
}

/// Short description of the received frames; events may hold megabytes of audio.
pub(crate) fn describe_received(client: &Client) -> String {
    let short = |frame: &ClientFrame| match frame {
        ClientFrame::Event(event) => {
            let whole = event.to_string();
            whole.chars().take(200).collect()
        }
        other => format!("{other:?}"),
    };
    client.received.iter().map(short).collect::<Vec<_>>().join("\n")
}
