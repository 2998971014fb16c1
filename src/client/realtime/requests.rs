//! Reads `response.create`: the request for an answer, and the fields that the response repeats. Everything in it has a bound.

use std::borrow::Cow;

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    Realtime,
    added_item::{AddedItem, ITEM_MAX_BYTES, read_item},
    commands::read_message,
    events::EventLabels,
    fields::{
        TEXT_MAX_BYTES, missing, read_array, read_object, read_small, read_text, shortened, wrong_type,
        wrong_value,
    },
    held_requests::{HeldRequest, ResponseServers},
    items::Item,
    response::{RequestedResponse, Response},
    session::{check_tool_choice, max_tokens, read_modalities, read_temperature},
    shape::MAX_OUTPUT_TOKENS,
    tool_servers::MCP,
    tools::{ReadTools, TOOL_FIELDS, settle_choice, update_offer},
};
use crate::{
    client::{
        json_text::{Fields, read_str},
        mapped::RequestHandler,
    },
    error::{Error, ErrorKind},
    spelling::client::RealtimeEvent,
    vocabulary::{AnswerRequest, ClientRequest, Entry, EntryId, ToolChoice, ToolOffer},
};

/// Longest id of a referenced item, bytes.
const ITEM_ID_MAX_BYTES: usize = 256;
/// Most requests whose answers have not begun.
const REQUESTS_MAX: usize = 16;
/// Memory of all these requests together, bytes.
const REQUESTS_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Most items of a request's own input.
const INPUT_ITEMS_MAX: usize = 256;
/// OpenAI's bounds of `metadata`: pairs, characters of a key, characters of a value.
const METADATA_MAX: (usize, usize, usize) = (16, 64, 512);

/// Code and message of the error of a response that was requested in full duplex.
const NO_REQUESTS: (&str, &str) = (
    "response_not_supported",
    "The model of this profile speaks when it decides to, so that no response can be requested. The profile `assistant` \
     answers requests.",
);

/// A `response.create` that was read.
struct ReadRequest {
    request: AnswerRequest,
    /// The fields that the response repeats.
    requested: RequestedResponse,
    servers: ResponseServers,
}

impl<L: EventLabels> Realtime<L> {
    pub(super) fn create_response(
        &mut self,
        message: &Fields<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let fields = message.given("response").map(|fields| read_object(fields, "response"));
        let fields = fields.transpose()?.unwrap_or_default();
        let is_out_of_band = fields.get("conversation").and_then(read_str).as_deref() == Some("none");
        // One outside of the conversation waits for its turn, if requests have turns.
        let waits = is_out_of_band && !self.hears_only;
        if let Some(active) = self.responses.front().filter(|_| !waits) {
            return Err(Error::new(ErrorKind::AnswerInProgress, active.id()));
        }
        let ReadRequest { request, requested, servers } = self.read_request(&fields, is_out_of_band)?;
        if self.hears_only {
            let (code, message) = NO_REQUESTS;
            self.fail_response(requested, code, message);
            return Ok(());
        }
        if self.takes_turns {
            self.check_room(&requested)?;
            if !servers.declared.is_empty() {
                return self.hold_request(request, requested, servers, handle);
            }
            // Keeps the fields that the response repeats, until the answer begins.
            self.requests.push_back(requested);
        }
        handle(ClientRequest::Answer(Box::new(request)));
        Ok(())
    }

    /// Answers a request with a response that has failed. An error would end several clients, which ask for a greeting.
    pub(super) fn fail_response(&mut self, requested: RequestedResponse, code: &str, message: &str) {
        self.reply_ended_response(requested, |response| {
            response.failure = Some(("invalid_request_error", code.to_owned(), message.to_owned()));
            response.set_status(false, false);
        });
    }

    /// Answers a request with a response that ends at once.
    pub(super) fn reply_ended_response(
        &mut self,
        requested: RequestedResponse,
        end: impl FnOnce(&mut Response),
    ) {
        self.failed_requests += 1;
        let id = format!("resp_{:08x}f{:07x}", self.events.seed, self.failed_requests);
        let mut response = Response::new(0, id, String::new(), requested, &self.session);
        let created = json!({ "response": response.to_json(&self.session, self.events.is_beta) });
        self.reply(RealtimeEvent::ResponseCreated, created);
        end(&mut response);
        let done = json!({ "response": response.to_json(&self.session, self.events.is_beta) });
        self.reply(RealtimeEvent::ResponseDone, done);
    }

    /// Rejects a request if too many wait for their answers.
    fn check_room(&self, requested: &RequestedResponse) -> Result<(), Error> {
        let waiting = || self.requests.iter().chain(self.held_requests.iter().map(HeldRequest::requested));
        let bytes: usize = waiting().map(|waiting| waiting.bytes).sum();
        if waiting().count() >= REQUESTS_MAX || bytes + requested.bytes > REQUESTS_MAX_BYTES {
            let detail = format!(
                "Too many responses wait for their turn: at most {REQUESTS_MAX}, of {REQUESTS_MAX_BYTES} bytes together."
            );
            return Err(Error::new(ErrorKind::Invalid, detail).of_field("response"));
        }
        Ok(())
    }

    /// Reads `response`: the request for the session, and the fields that the response repeats.
    fn read_request(&mut self, fields: &Fields<'_>, is_out_of_band: bool) -> Result<ReadRequest, Error> {
        let instructions = fields.given("instructions");
        let instructions = instructions.map(|text| read_text(text, "response.instructions", TEXT_MAX_BYTES));
        let speaks =
            ["output_modalities", "modalities"].into_iter().find_map(|key| Some((key, fields.given(key)?)));
        let speaks = speaks.map(|(key, names)| read_modalities(names, &format!("response.{key}")));
        let max = ["max_output_tokens", "max_response_output_tokens"];
        let max = max.into_iter().find_map(|key| Some((key, fields.given(key)?)));
        let max = max.map(|(key, max)| (max, format!("response.{key}")));
        if let Some((max, path)) = &max {
            MAX_OUTPUT_TOKENS.check(max, path)?;
        }
        let max_output_tokens = max.map(|(max, path)| read_small(max, &path)).transpose()?;
        let temperature = fields.given("temperature");
        let temperature = temperature.map(|value| read_temperature(value, "response.temperature"));
        let (tools, servers) = self.read_tools(fields)?;
        let metadata = fields.given("metadata").map_or(Ok(Value::Null), read_metadata)?;
        let entries = fields.given("input").map(|input| self.read_input(input)).transpose()?;
        let mut request = AnswerRequest {
            instructions: instructions.transpose()?,
            speaks: speaks.transpose()?,
            max_tokens: max_output_tokens.as_ref().and_then(max_tokens),
            temperature: temperature.transpose()?.flatten(),
            entries,
            tools,
            is_remembered: !is_out_of_band,
            by_client: true,
            bytes: 0,
        };
        request.bytes = request.count_bytes();
        let requested = RequestedResponse {
            metadata,
            speaks: request.speaks,
            is_out_of_band,
            max_output_tokens,
            // The session's tools are not offered where the response names its own.
            server_tools: fields.given("tools").map(|_| [].into()),
            bytes: request.bytes,
        };
        Ok(ReadRequest { request, requested, servers })
    }

    /// Reads the tools of an answer that differ from the session's, and the servers that it names. Where none can be called, a
    /// choice that requires a call is refused, and others are noted.
    fn read_tools(&mut self, fields: &Fields<'_>) -> Result<(Option<ToolOffer>, ResponseServers), Error> {
        const CHOICE: &str = "response.tool_choice";
        let mut named = ResponseServers::default();
        if self.session.refuses_tools {
            if let Some(choice) = fields.given("tool_choice") {
                check_tool_choice(choice, CHOICE)?;
            }
            if fields.given("tools").is_some_and(|tools| tools.get() != "[]") {
                self.ignore("response.create", "tools", "the model calls no tools here");
            }
            return Ok((None, named));
        }
        let mut offer = None;
        for (key, value) in TOOL_FIELDS.into_iter().filter_map(|key| Some((key, fields.given(key)?))) {
            let offer = offer.get_or_insert_with(|| self.session.offer());
            if key == "tool_choice" && named.take_choice(value, CHOICE)? {
                offer.choice = ToolChoice::Auto;
                continue;
            }
            let server_tools = self.session.server_tools.clone();
            let ReadTools { left_out, servers } =
                update_offer(offer, key, value, &format!("response.{key}"), &server_tools)?;
            for kind in left_out {
                self.ignore_tools(&kind);
            }
            match servers.is_empty() || self.session.takes_tool_servers {
                true => named.declared.extend(servers),
                false => self.ignore_tools(MCP),
            }
        }
        if let Some(offer) = &mut offer {
            settle_choice(offer, |_| false, fields.given("tool_choice").is_some(), CHOICE)?;
        }
        Ok((offer, named))
    }

    /// Notes tools of a type that is not called.
    fn ignore_tools(&mut self, kind: &str) {
        let because = format!("tools of type {kind:?} are not called");
        self.ignore("response.create", "tools", &because);
    }

    /// Reads the items of a response's own input.
    fn read_input(&mut self, input: &RawValue) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        let (mut text_bytes, mut bytes) = (0, 0);
        for (at, item) in read_array(input, "response.input", INPUT_ITEMS_MAX)?.into_iter().enumerate() {
            let path = format!("response.input[{at}]");
            let fields = read_object(item, &path)?;
            let number = self.items.allocate();
            let is_reference = fields.get("type").and_then(read_str).as_deref() == Some("item_reference");
            let added = match is_reference {
                true => self.read_referenced(&fields, &path, number)?,
                false => read_item(&fields, &path, String::new(), number, self.session.input)?,
            };
            let entry = Entry { id: number, role: added.role, parts: added.parts };
            text_bytes += added.item.json().len();
            bytes += entry.bytes();
            if text_bytes > ITEM_MAX_BYTES || bytes > REQUESTS_MAX_BYTES {
                let bounds = format!(
                    "at most {ITEM_MAX_BYTES} bytes beside audio and pictures, and {REQUESTS_MAX_BYTES} bytes with them"
                );
                return Err(wrong_value("response.input", &bounds));
            }
            if !entry.parts.is_empty() {
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}

impl<L: EventLabels> Realtime<L> {
    /// Reads an item of the conversation that a response's own input refers to: its words, calls and results. Its audio and
    /// pictures are not kept as JSON.
    fn read_referenced(
        &mut self,
        reference: &Fields<'_>,
        path: &str,
        number: EntryId,
    ) -> Result<AddedItem, Error> {
        let path = format!("{path}.id");
        let id = read_text(reference.given("id").ok_or_else(|| missing(&path))?, &path, ITEM_ID_MAX_BYTES)?;
        let item = self.items.position(&id).and_then(|at| self.items.at(at)).map(Item::json);
        let Some(json) = item.map(Cow::into_owned) else {
            let detail = format!("Item with id '{}' not found.", shortened(&id));
            return Err(Error::new(ErrorKind::UnknownEntry, detail).of_field(path));
        };
        let read = read_message(&json)
            .and_then(|fields| read_item(&fields, &path, String::new(), number, self.session.input));
        if !read.as_ref().is_ok_and(|added| !added.parts.is_empty()) {
            self.ignore("response.create", "input", "the referenced item has no words (yet)");
        }
        Ok(read.unwrap_or_else(|_| AddedItem::empty(number)))
    }
}

/// Reads `metadata`, within OpenAI's bounds.
fn read_metadata(metadata: &RawValue) -> Result<Value, Error> {
    const PATH: &str = "response.metadata";
    let (pairs_max, key_max, value_max) = METADATA_MAX;
    let fields = read_object(metadata, PATH)?;
    if fields.iter().count() > pairs_max {
        return Err(wrong_value(PATH, &format!("at most {pairs_max} pairs")));
    }
    let mut read = Map::new();
    for (key, value) in fields.iter() {
        let words = read_str(value).ok_or_else(|| wrong_type(PATH, "strings as values", value))?;
        if key.chars().count() > key_max || words.chars().count() > value_max {
            let bounds = format!("keys of at most {key_max} characters and values of at most {value_max}");
            return Err(wrong_value(PATH, &bounds));
        }
        read.insert(key.to_owned(), words.into());
    }
    Ok(Value::Object(read))
}
