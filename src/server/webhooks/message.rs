//! One message of a webhook, and its signature (Standard Webhooks, "Webhook structure" and "Signature scheme").

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::json;

use super::WebhookEvent;
use crate::{date::rfc3339, secret::random_hex, server::unix_now};

/// Prefix of secrets.
const SECRET_PREFIX: &str = "whsec_";
/// Sizes of secrets, bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs messages.
#[derive(Clone)]
pub struct SigningKey(Arc<Key>);

impl SigningKey {
    /// The key of a secret in its usual form, `whsec_` and base64.
    ///
    /// # Errors
    /// A message, which never quotes the secret.
    pub fn from_secret(secret: &str) -> Result<Self, String> {
        let form = format!(
            "must be `{SECRET_PREFIX}` and the base64 of {} to {} bytes",
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        );
        let bytes = secret.trim().strip_prefix(SECRET_PREFIX).and_then(|text| STANDARD.decode(text).ok());
        let bytes = bytes.filter(|bytes| SECRET_BYTES.contains(&bytes.len())).ok_or(form)?;
        Ok(Self(Arc::new(Key::new(HMAC_SHA256, &bytes))))
    }

    /// The header `webhook-signature` of a message that is sent at this Unix time, in seconds.
    pub(super) fn signature(&self, message: &WebhookMessage, unix_s: u64) -> String {
        let head = format!("{}.{unix_s}.", message.id);
        let signed = [head.as_bytes(), &message.body].concat();
        format!("v1,{}", STANDARD.encode(sign(&self.0, &signed)))
    }
}

/// A message, the same at every attempt.
#[derive(Debug, Clone)]
pub(super) struct WebhookMessage {
    pub(super) id: Arc<str>,
    pub(super) body: Bytes,
}

impl WebhookMessage {
    /// A message about something that happens now.
    pub(super) fn new(event: WebhookEvent, data: serde_json::Value) -> Self {
        let timestamp = rfc3339(unix_now().as_secs_f64());
        let body = json!({ "type": event.name(), "timestamp": timestamp, "data": data });
        // Ids need only be unique.
        let id = random_hex::<16>().unwrap_or_else(|| format!("{:032x}", fastrand::u128(..)));
        Self { id: format!("msg_{id}").into(), body: body.to_string().into() }
    }
}
