//! A client's events and their forms.

use serde_json::{Map, Value};

use super::{
    schema::{Extras, Field, Form, check_object, optional, required, wrong_word},
    wire::Rejected,
};
use crate::RealtimeServer;

/// Longest id of an event, and of an item.
const EVENT_ID_MAX_CHARS: usize = 512;
const ITEM_ID_MAX_CHARS: usize = 32;

const AUDIO_FORMAT: Form = Form::Tagged(
    "type",
    &[
        ("audio/pcm", Form::Object(&[TYPE, optional("rate", Form::Exactly(24_000))])),
        ("audio/pcmu", Form::Object(&[TYPE])),
        ("audio/pcma", Form::Object(&[TYPE])),
    ],
);
const TYPE: Field = required("type", Form::Text);
const MILLISECONDS: Form = Form::Nullable(&Form::Integer { min: 0, max: 600_000 });
const FLAG: Form = Form::Nullable(&Form::Boolean);
const ANY_TEXT: Form = Form::Nullable(&Form::Text);
const MODALITIES: Form = Form::List(&Form::Word(&["text", "audio"]));
const TURN_DETECTION: Form = Form::Nullable(&Form::Tagged(
    "type",
    &[
        (
            "server_vad",
            Form::Object(&[
                TYPE,
                optional("threshold", Form::Nullable(&Form::Number { min: 0.0, max: 1.0 })),
                optional("prefix_padding_ms", MILLISECONDS),
                optional("silence_duration_ms", MILLISECONDS),
                optional("idle_timeout_ms", MILLISECONDS),
                optional("create_response", FLAG),
                optional("interrupt_response", FLAG),
            ]),
        ),
        (
            "semantic_vad",
            Form::Object(&[
                TYPE,
                optional("eagerness", Form::Word(&["low", "medium", "high", "auto"])),
                optional("create_response", FLAG),
                optional("interrupt_response", FLAG),
            ]),
        ),
    ],
));
const INPUT: Form = Form::Object(&[
    optional("format", AUDIO_FORMAT),
    optional(
        "noise_reduction",
        Form::Nullable(&Form::Object(&[
            required("type", Form::Word(&["near_field", "far_field"])),
            optional("strength", Form::Number { min: 0.0, max: f64::INFINITY }),
        ])),
    ),
    optional(
        "transcription",
        Form::Nullable(&Form::Object(&[
            optional("model", Form::Text),
            optional("language", ANY_TEXT),
            optional("languages", Form::Any),
            optional("prompt", ANY_TEXT),
            optional("keywords", Form::Any),
            optional("delay", ANY_TEXT),
        ])),
    ),
    optional("turn_detection", TURN_DETECTION),
]);
const OUTPUT: Form = Form::Object(&[
    optional("format", AUDIO_FORMAT),
    optional("voice", Form::OrObject(&Form::Text, &Form::Object(&[required("id", Form::Text)]))),
    optional("speed", Form::Number { min: 0.25, max: 1.5 }),
]);
const TOOLS: Form = Form::List(&Form::Tagged(
    "type",
    &[
        (
            "function",
            Form::Object(&[
                TYPE,
                required("name", Form::Id(64)),
                optional("description", Form::Text),
                optional("parameters", Form::Any),
            ]),
        ),
        ("mcp", Form::Any),
    ],
));
const TOOL_CHOICE: Form = Form::OrObject(
    &Form::Word(&["none", "auto", "required"]),
    &Form::Object(&[
        required("type", Form::Word(&["function", "mcp"])),
        optional("name", Form::Text),
        optional("server_label", Form::Text),
    ]),
);
const MAX_TOKENS: Form = Form::OrWord("inf", &Form::Integer { min: 1, max: 4096 });
const REALTIME_SESSION: Form = Form::Object(&[
    TYPE,
    optional("model", Form::Text),
    optional("output_modalities", MODALITIES),
    optional("instructions", Form::Text),
    optional("audio", Form::Object(&[optional("input", INPUT), optional("output", OUTPUT)])),
    optional("tools", TOOLS),
    optional("tool_choice", TOOL_CHOICE),
    optional("parallel_tool_calls", FLAG),
    optional("max_output_tokens", MAX_TOKENS),
    optional("tracing", Form::Any),
    optional("truncation", Form::Any),
    optional("prompt", Form::Any),
    optional("include", Form::Any),
    optional("reasoning", Form::Any),
]);
const TRANSCRIPTION_SESSION: Form = Form::Object(&[
    TYPE,
    optional("audio", Form::Object(&[optional("input", INPUT)])),
    optional("include", Form::Any),
]);
const SESSION: Form =
    Form::Tagged("type", &[("realtime", REALTIME_SESSION), ("transcription", TRANSCRIPTION_SESSION)]);

/// Members of a message with content of this form.
const fn message_fields(content: Form) -> [Field; 6] {
    [TYPE, ROLE, ID, OBJECT, STATUS, required("content", content)]
}

const ID: Field = optional("id", Form::Id(ITEM_ID_MAX_CHARS));
const OBJECT: Field = optional("object", Form::Word(&["realtime.item"]));
const STATUS: Field = optional("status", Form::Word(&["completed", "incomplete", "in_progress"]));
const ROLE: Field = required("role", Form::Text);
const INPUT_TEXT: (&str, Form) = ("input_text", Form::Object(&[TYPE, required("text", Form::Text)]));
const USER_MESSAGE: [Field; 6] = message_fields(Form::List(&Form::Tagged(
    "type",
    &[
        INPUT_TEXT,
        (
            "input_audio",
            Form::Object(&[TYPE, required("audio", Form::Text), optional("transcript", ANY_TEXT)]),
        ),
        (
            "input_image",
            Form::Object(&[
                TYPE,
                required("image_url", Form::Text),
                optional("detail", Form::Word(&["auto", "low", "high"])),
            ]),
        ),
    ],
)));
/// Words of the assistant; its audio cannot be given, which is no fault of form.
const ASSISTANT_MESSAGE: [Field; 6] = message_fields(Form::List(&Form::Tagged(
    "type",
    &[
        ("output_text", Form::Object(&[TYPE, required("text", Form::Text)])),
        (
            "output_audio",
            Form::Object(&[TYPE, optional("audio", ANY_TEXT), optional("transcript", ANY_TEXT)]),
        ),
    ],
)));
const SYSTEM_MESSAGE: [Field; 6] = message_fields(Form::List(&Form::Tagged("type", &[INPUT_TEXT])));
const MESSAGE: Form = Form::Tagged(
    "role",
    &[
        ("user", Form::Object(&USER_MESSAGE)),
        ("assistant", Form::Object(&ASSISTANT_MESSAGE)),
        ("system", Form::Object(&SYSTEM_MESSAGE)),
    ],
);
const ITEM: Form = Form::Tagged(
    "type",
    &[
        ("message", MESSAGE),
        (
            "function_call",
            Form::Object(&[
                TYPE,
                ID,
                OBJECT,
                STATUS,
                required("name", Form::Text),
                required("arguments", Form::Text),
                optional("call_id", Form::Id(ITEM_ID_MAX_CHARS)),
            ]),
        ),
        (
            "function_call_output",
            Form::Object(&[
                TYPE,
                ID,
                OBJECT,
                STATUS,
                required("call_id", Form::Id(ITEM_ID_MAX_CHARS)),
                required("output", Form::Text),
            ]),
        ),
        ("item_reference", Form::Object(&[TYPE, required("id", Form::Text)])),
    ],
);

const RESPONSE: Form = Form::Object(&[
    optional("conversation", Form::Nullable(&Form::Word(&["auto", "none"]))),
    optional("input", Form::Nullable(&Form::List(&ITEM))),
    optional("instructions", ANY_TEXT),
    optional("output_modalities", MODALITIES),
    optional("max_output_tokens", MAX_TOKENS),
    optional("metadata", Form::Any),
    optional("tools", TOOLS),
    optional("tool_choice", TOOL_CHOICE),
    optional("audio", Form::Object(&[optional("output", OUTPUT)])),
    optional("parallel_tool_calls", FLAG),
    optional("prompt", Form::Any),
    optional("reasoning", Form::Any),
]);
const ITEM_ID: Field = required("item_id", Form::Text);

/// An event that OpenAI takes in calls by WebRTC. The package parses it and has no use for it.
const OF_CALLS: &str = "output_audio_buffer.clear";

/// A client's events, and their own members.
const EVENTS: [(&str, &[Field]); 10] = [
    ("session.update", &[required("session", SESSION)]),
    ("input_audio_buffer.append", &[required("audio", Form::Text)]),
    ("input_audio_buffer.commit", &[]),
    ("input_audio_buffer.clear", &[]),
    (
        "conversation.item.create",
        &[required("item", ITEM), optional("previous_item_id", Form::Nullable(&Form::Text))],
    ),
    (
        "conversation.item.truncate",
        &[
            ITEM_ID,
            required("content_index", Form::Integer { min: 0, max: i64::MAX }),
            required("audio_end_ms", Form::Integer { min: 0, max: i64::MAX }),
        ],
    ),
    ("conversation.item.delete", &[ITEM_ID]),
    ("conversation.item.retrieve", &[ITEM_ID]),
    ("response.create", &[optional("response", Form::Nullable(&RESPONSE))]),
    ("response.cancel", &[optional("response_id", Form::Nullable(&Form::Text))]),
];

/// A client's event: its type, its id and its members.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: &'static str,
    pub(super) members: Map<String, Value>,
}

/// Parses an event; returns its id, too, if it has one.
pub(super) fn parse(text: &str, server: RealtimeServer) -> (Option<String>, Result<Request, Rejected>) {
    let Ok(Value::Object(mut members)) = serde_json::from_str(text) else {
        let message = "We could not parse the JSON body of your request. The API expects a JSON object.";
        return (None, Err(unfit(Rejected::new("invalid_json", message), server)));
    };
    let event_id = members.get("event_id").and_then(Value::as_str).map(str::to_owned);
    if server == RealtimeServer::VllmOmni && members.get("type").is_some_and(|kind| *kind == OF_CALLS) {
        let message = format!("Unknown event type: {OF_CALLS}");
        return (event_id, Err(Rejected::new("invalid_event", message)));
    }
    let kind = check_event(&mut members, server).map_err(|rejected| unfit(rejected, server));
    (event_id, kind.map(|kind| Request { kind, members }))
}

/// The error for an event of another form. The package has one for all.
fn unfit(rejected: Rejected, server: RealtimeServer) -> Rejected {
    match server {
        RealtimeServer::Openai => rejected,
        RealtimeServer::VllmOmni => {
            Rejected::new("invalid_event", "Invalid or unrecognized client event").anonymous()
        }
    }
}

fn check_event(members: &mut Map<String, Value>, server: RealtimeServer) -> Result<&'static str, Rejected> {
    let given = members.get("type").and_then(Value::as_str).ok_or_else(|| {
        Rejected::new("missing_required_parameter", "Missing required parameter: 'type'.").at("type")
    })?;
    let names = EVENTS.map(|(name, _)| name);
    let (kind, own) = EVENTS
        .into_iter()
        .find(|(name, _)| *name == given)
        .ok_or_else(|| wrong_word(given, &names, "type"))?;
    let common = [optional("event_id", Form::Nullable(&Form::Id(EVENT_ID_MAX_CHARS))), TYPE];
    let extras = if server == RealtimeServer::Openai { Extras::Refuse } else { Extras::Drop };
    let fields: Vec<Field> = common.iter().chain(own).copied().collect();
    check_object(members, &fields, "", extras)?;
    Ok(kind)
}
