//! Replays exchanges captured from a real Macaw server and compares what the client is told.
//!
//! `tests/golden/macaw*/` holds the exchanges; where voxbridge means to differ, `tests/golden/differences.toml` says so
//! and why. A difference that is listed and does not occur fails as much as one that occurs and is not listed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::exchange::{Act, Exchange, Item, collapsed};
use crate::pair::{Pair, PairConfig, Seen};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use voxbridge::{
    error::{Error, ErrorKind},
    session::VoiceBook,
};

/// Sets of exchanges: an engine without partials, and one with them.
const SETS: [&str; 2] = ["macaw", "macaw-partials"];

/// The models the captured server had; the speech model is the second.
const MODELS: [&str; 2] = ["faster-whisper-tiny", "kokoro-v1"];

/// How far the detectors may be apart: another one, other speech, and frames of up to 256 ms that only it is bound to.
const VAD_TOLERANCE_MS: u64 = 350;

/// Captured values that belong to the moment.
const OF_THE_MOMENT: [&str; 6] =
    ["timestamp_ms", "duration_ms", "total_duration_ms", "start_ms", "end_ms", "delay_ms"];

/// The deliberate differences.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    everywhere: Vec<General>,
    exchange: Vec<Special>,
}

/// A difference in every exchange where it can occur.
#[derive(Debug, Deserialize)]
struct General {
    reason: String,
    #[serde(flatten)]
    rule: Rule,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Rule {
    /// A connection that ended without a close frame ends with this one.
    Ends { ends_with: u16 },
    /// An event that a captured exchange without any may be given.
    Extra { extra: String },
    /// Fields of an event that have other values.
    Fields { event: String, fields: Vec<String> },
    /// A message in other words.
    Message { captured: String, told: String },
}

/// One exchange that goes otherwise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Special {
    /// `SET/NAME`.
    name: String,
    reason: String,
    /// The whole of it: events with the values that matter, `binary` and `close` in the place of a type.
    expect: Vec<Map<String, Value>>,
    /// The client sends `session.close` two seconds after its last captured step.
    #[serde(default)]
    goes_on: bool,
}

/// What was found different.
#[derive(Debug, Default)]
struct Findings {
    problems: Vec<String>,
    /// General rules that were needed, by index.
    used: BTreeSet<usize>,
}

#[test]
fn every_captured_exchange_is_answered_as_the_real_server_did() {
    let differences: Differences = toml::from_str(include_str!("../golden/differences.toml")).unwrap();
    let exchanges: BTreeMap<String, Exchange> = SETS
        .iter()
        .flat_map(|set| Exchange::all(set).into_iter().map(move |(name, one)| (format!("{set}/{name}"), one)))
        .collect();
    assert_eq!(exchanges.len(), 61, "exchanges are missing");
    let fields = fields_by_event(exchanges.values());
    let (mut problems, mut used) = (Vec::new(), BTreeSet::new());
    for (name, exchange) in &exchanges {
        let special = differences.exchange.iter().find(|special| special.name == *name);
        let pair = replay(exchange, special.is_some_and(|special| special.goes_on));
        let findings = judge(exchange, &pair, special, &differences.everywhere, &fields);
        problems.extend(findings.problems.iter().map(|problem| format!("{name}: {problem}")));
        used.extend(findings.used);
    }
    problems.extend(unused(&differences, &used, &exchanges));
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// Every field the real server was seen to give an event.
fn fields_by_event<'e>(exchanges: impl Iterator<Item = &'e Exchange>) -> BTreeMap<String, BTreeSet<String>> {
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in exchanges.flat_map(Exchange::answers) {
        if let Item::Event(event) = &item {
            fields.entry(item.name()).or_default().extend(event.keys().cloned());
        }
    }
    fields
}

fn unused(
    differences: &Differences,
    used: &BTreeSet<usize>,
    exchanges: &BTreeMap<String, Exchange>,
) -> Vec<String> {
    let general = differences.everywhere.iter().enumerate().filter(|(index, _)| !used.contains(index));
    let general = general.map(|(_, general)| format!("listed and never needed: {general:?}"));
    let special = differences.exchange.iter().filter(|special| !exchanges.contains_key(&special.name));
    let special = special.map(|special| format!("there is no exchange {}", special.name));
    let reasons = differences.everywhere.iter().map(|general| &general.reason);
    let reasons = reasons.chain(differences.exchange.iter().map(|special| &special.reason));
    assert!(reasons.into_iter().all(|reason| reason.len() > 20), "a difference without a reason");
    general.chain(special).collect()
}

/// Does what the client did, at the same times, until everything is over.
fn replay(exchange: &Exchange, goes_on: bool) -> Pair {
    let mut pair = open(exchange);
    let mut acts = exchange.acts();
    if goes_on {
        let after = acts.last().map_or(Duration::ZERO, |(at, _)| *at) + Duration::from_secs(2);
        acts.push((after, Act::Text(json!({"type": "session.close"}).to_string())));
    }
    for (at, act) in acts {
        pair.advance(at.saturating_sub(pair.now()));
        match act {
            Act::Text(text) => pair.client_text(&text),
            Act::Binary(bytes) => pair.client_binary(&bytes),
            Act::Close => pair.close_client(),
        }
    }
    pair.advance(Duration::from_secs(60));
    pair
}

fn open(exchange: &Exchange) -> Pair {
    let mut config = PairConfig {
        voices: VoiceBook::new(BTreeMap::new(), vec![MODELS[1].to_owned()]),
        ..PairConfig::with_faults(&exchange.simulate.faults.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (simulate, timing) = (&exchange.simulate, &mut config.simulator.timing);
    timing.first_delta = simulate.first_delta_ms.map_or(timing.first_delta, Duration::from_millis);
    timing.speech_second = simulate.speech_second_ms.map_or(timing.speech_second, Duration::from_millis);
    config.simulator.workers = simulate.workers.unwrap_or(config.simulator.workers);
    let (path, query) = exchange.connect.split_once('?').unwrap_or((&exchange.connect, ""));
    assert!(config.library.clients_at(path).any(|client| client.name == "macaw"), "{path}");
    config.query = query.to_owned();
    // What the routes would say that know these models only.
    let model = query.split('&').find_map(|pair| pair.strip_prefix("model="));
    match model {
        None => Pair::refused(config, &Error::new(ErrorKind::NoModel, "")),
        Some(model) if !MODELS.contains(&model) => {
            Pair::refused(config, &Error::new(ErrorKind::UnknownModel, model))
        }
        Some(_) => Pair::new(config),
    }
}

fn judge(
    exchange: &Exchange,
    pair: &Pair,
    special: Option<&Special>,
    everywhere: &[General],
    fields: &BTreeMap<String, BTreeSet<String>>,
) -> Findings {
    let told = told(pair);
    let as_captured = compare(&exchange.answers(), &told, everywhere);
    let mut findings = match special {
        None => as_captured,
        Some(_) if as_captured.problems.is_empty() => Findings {
            problems: vec!["listed as different and no longer so".to_owned()],
            ..Findings::default()
        },
        Some(special) => {
            Findings { problems: compare_special(&special.expect, &told), used: BTreeSet::new() }
        }
    };
    if !pair.finished {
        findings.problems.push("the session never finishes".to_owned());
    }
    for item in &told {
        let Item::Event(event) = item else { continue };
        let known = fields.get(&item.name()).into_iter().flatten();
        let missing: Vec<&String> = known.filter(|field| !event.contains_key(*field)).collect();
        if !missing.is_empty() {
            findings.problems.push(format!("{} without {missing:?}", item.name()));
        }
    }
    findings.problems.extend(crate::sanity::problems(pair));
    findings
}

/// What the client was told.
fn told(pair: &Pair) -> Vec<Item> {
    let items = pair.log.iter().map(|(_, seen)| match seen {
        Seen::Event(event) => Item::Event(event.as_object().unwrap().clone()),
        Seen::Binary(_) => Item::Binary,
        Seen::Close(code, reason) => Item::Close(*code, reason.clone()),
    });
    collapsed(items.collect())
}

fn names(items: &[Item]) -> Vec<String> {
    items.iter().map(Item::name).collect()
}

fn compare(captured: &[Item], told: &[Item], everywhere: &[General]) -> Findings {
    let mut findings = Findings::default();
    let mut told = told.to_vec();
    for (index, general) in everywhere.iter().enumerate() {
        let Rule::Extra { extra } = &general.rule else { continue };
        let before = told.len();
        if !names(captured).contains(extra) {
            told.retain(|item| item.name() != *extra);
        }
        if told.len() < before {
            findings.used.insert(index);
        }
    }
    if captured.len() != told.len() {
        let (captured, told) = (names(captured), names(&told));
        findings.problems.push(format!("captured {captured:?}\n    told {told:?}"));
        return findings;
    }
    for (captured, told) in captured.iter().zip(&told) {
        match (captured, told) {
            (Item::Event(captured), Item::Event(told)) if captured["type"] == told["type"] => {
                compare_event(captured, told, everywhere, &mut findings);
            }
            (Item::Lost, Item::Close(code, _)) => {
                let ends = |general: &General| matches!(general.rule, Rule::Ends { ends_with } if ends_with == *code);
                match everywhere.iter().position(ends) {
                    Some(index) => drop(findings.used.insert(index)),
                    None => findings.problems.push(format!("captured a lost connection, told close {code}")),
                }
            }
            (captured, told) if captured == told => {}
            _ => findings.problems.push(format!("captured {captured:?}\n    told {told:?}")),
        }
    }
    findings
}

fn compare_event(
    captured: &Map<String, Value>,
    told: &Map<String, Value>,
    everywhere: &[General],
    findings: &mut Findings,
) {
    let name = captured["type"].as_str().unwrap();
    for (field, expected) in captured {
        let found = told.get(field).unwrap_or(&Value::Null);
        if agrees(name, field, expected, found, captured) {
            continue;
        }
        let allows = |general: &General| match &general.rule {
            Rule::Fields { event, fields } => event == name && fields.contains(field),
            Rule::Message { captured, told } => {
                field == "message" && expected == captured.as_str() && found == told.as_str()
            }
            _ => false,
        };
        match everywhere.iter().position(allows) {
            Some(index) => drop(findings.used.insert(index)),
            None => findings.problems.push(format!("{name}.{field}: captured {expected}\n    told {found}")),
        }
    }
}

/// Whether a value is the captured one, as far as it can be.
fn agrees(name: &str, field: &str, captured: &Value, told: &Value, event: &Map<String, Value>) -> bool {
    match (name, field) {
        ("vad.speech_start" | "vad.speech_end", "timestamp_ms") => near(captured, told, VAD_TOLERANCE_MS),
        // It is computed from instants a millisecond or two apart.
        ("session.rate_limit", "delay_ms") => near(captured, told, 4),
        (_, "session_id") => is_id(told, "sess_", 12),
        (_, "request_id") if is_id(captured, "tts_", 8) => is_id(told, "tts_", 8),
        (_, "message") => message_agrees(
            event.get("code").and_then(Value::as_str).unwrap_or_default(),
            captured.as_str().unwrap(),
            told.as_str().unwrap_or_default(),
        ),
        (_, field) if OF_THE_MOMENT.contains(&field) => told.is_u64(),
        _ => captured == told,
    }
}

fn near(captured: &Value, told: &Value, tolerance: u64) -> bool {
    captured.as_u64().zip(told.as_u64()).is_some_and(|(one, other)| one.abs_diff(other) <= tolerance)
}

fn is_id(value: &Value, prefix: &str, digits: usize) -> bool {
    let rest = value.as_str().and_then(|id| id.strip_prefix(prefix));
    rest.is_some_and(|rest| rest.len() == digits && rest.chars().all(|c| c.is_ascii_hexdigit()))
}

/// Whether a message says the same: to the letter, but for what another parser or another engine says.
fn message_agrees(code: &str, captured: &str, told: &str) -> bool {
    let same_start = |end: &str| {
        let start = captured.split_inclusive(end).next().unwrap_or_default();
        captured.starts_with(start) && told.starts_with(start) && told.len() > start.len()
    };
    match code {
        "validation_error" => {
            // Pydantic gives each bad field a line of its own.
            let field = |line: &&str| !line.starts_with(' ') && !line.contains("validation error");
            same_start("': ") && captured.lines().filter(field).all(|field| told.contains(field))
        }
        "malformed_json" if captured.starts_with("Invalid JSON: ") => same_start("JSON: "),
        "tts_worker_error" if captured.contains("engine error") => same_start("TTS worker error: "),
        _ => captured == told,
    }
}

/// An exchange that goes otherwise, with the values that matter.
fn compare_special(expect: &[Map<String, Value>], told: &[Item]) -> Vec<String> {
    let told: Vec<Map<String, Value>> = told
        .iter()
        .map(|item| match item {
            Item::Event(event) => event.clone(),
            Item::Close(code, reason) => Map::from_iter([
                ("type".into(), json!("close")),
                ("code".into(), json!(code)),
                ("reason".into(), json!(reason)),
            ]),
            other => Map::from_iter([("type".into(), json!(other.name()))]),
        })
        .collect();
    let matches = |(expected, told): (&Map<String, Value>, &Map<String, Value>)| {
        expected.iter().all(|(field, value)| told.get(field) == Some(value))
    };
    if expect.len() == told.len() && expect.iter().zip(&told).all(matches) {
        return Vec::new();
    }
    let lines = |items: &[Map<String, Value>]| {
        items.iter().map(|item| format!("      {}", json!(item))).collect::<Vec<_>>().join("\n")
    };
    vec![format!("listed as\n{}\n    told\n{}", lines(expect), lines(&told))]
}
