//! `[setup_page]`: the page that tells clients where to connect.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::SetupSlot;
use crate::spelling::{
    check::values::{JsonPointer, UrlPath},
    template::{Template, deserialize_template},
};

/// The page that tells clients where to connect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupPage {
    /// Path.
    pub path: UrlPath,
    /// Its answer, JSON.
    #[serde(deserialize_with = "answer")]
    pub answer: Template<SetupSlot>,
    /// Its answer to a client that asks for a call by WebRTC.
    #[serde(default, deserialize_with = "call_answer")]
    pub call_answer: Option<Template<SetupSlot>>,
    /// Its answer to a wrong request; without it, the usual error.
    #[serde(default, deserialize_with = "refusal")]
    pub refusal: Option<Template<SetupSlot>>,
    /// Query parameter of the URL with a client secret for the sender's key; the page then answers GET, too.
    pub signature: Option<String>,
    /// Query parameters of the URL, and where the request's body has them.
    #[serde(default)]
    pub parameters: BTreeMap<String, JsonPointer>,
}

/// A template with the slots of an answer, or of a refusal.
fn template<'de, D: Deserializer<'de>>(from: D, is_refusal: bool) -> Result<Template<SetupSlot>, D::Error> {
    let is_known = |slot: &SetupSlot| match slot {
        SetupSlot::Message => is_refusal,
        SetupSlot::Url | SetupSlot::Key | SetupSlot::Version => !is_refusal,
        SetupSlot::Id | SetupSlot::UnixMs | SetupSlot::Time => true,
    };
    let slots: Vec<_> = SetupSlot::ALL.into_iter().filter(is_known).map(|slot| (slot.name(), slot)).collect();
    deserialize_template(from, &slots)
}

fn answer<'de, D: Deserializer<'de>>(from: D) -> Result<Template<SetupSlot>, D::Error> {
    template(from, false)
}

fn call_answer<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Template<SetupSlot>>, D::Error> {
    template(from, false).map(Some)
}

fn refusal<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Template<SetupSlot>>, D::Error> {
    template(from, true).map(Some)
}
