//! Replays exchanges captured from a real Macaw server and compares the events the client receives.
//!
//! `tests/golden/macaw*/` holds the exchanges. `tests/golden/differences.toml` lists the intended differences
//! with reasons. A listed difference that does not occur is a failure, like an unlisted one.

use super::{
    captured_exchange::{CapturedExchange, ClientAction, ServerItem, collapse_runs},
    *,
};

/// Sets of exchanges: an engine without partials, and one with them.
const EXCHANGE_SETS: [&str; 2] = ["macaw", "macaw-partials"];

/// The models of the captured server; the second one is the speech model.
const MODELS: [&str; 2] = ["faster-whisper-tiny", "kokoro-v1"];

/// Tolerance between the two detectors: they differ in algorithm, speech and frame size (up to 256 ms in the
/// captured one).
const VAD_TOLERANCE_MS: u64 = 350;

/// Fields whose captured values depend on the time of capture.
const TIME_FIELDS: [&str; 6] =
    ["timestamp_ms", "duration_ms", "total_duration_ms", "start_ms", "end_ms", "delay_ms"];

/// The intended differences.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    everywhere: Vec<GeneralDifference>,
    exchange: Vec<ExchangeDifference>,
}

/// A difference in every exchange in which it can occur.
#[derive(Debug, Deserialize)]
struct GeneralDifference {
    reason: String,
    #[serde(flatten)]
    rule: Rule,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Rule {
    /// A connection that ended without a close frame ends with this code.
    Ends { ends_with: u16 },
    /// An event that voxbridge sends in addition.
    Extra { extra: String },
    /// Fields of an event with other values.
    Fields { event: String, fields: Vec<String> },
    /// Fields of an event that voxbridge adds.
    Added { event: String, added: Vec<String> },
    /// Messages of this error code with other wording behind their common beginning.
    Wording { wording: String, same_until: String },
}

/// An exchange with a different course.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExchangeDifference {
    /// `SET/NAME`.
    name: String,
    reason: String,
    /// The whole expected course: events with the values that matter; `binary` and `close` stand as types.
    expect: Vec<Map<String, Value>>,
    /// The client sends `session.close` two seconds after its last captured step.
    #[serde(default)]
    goes_on: bool,
}

/// Differences found.
#[derive(Debug, Default)]
struct Findings {
    problems: Vec<String>,
    /// Indices of the general rules that applied.
    used: BTreeSet<usize>,
}

#[test]
fn captured_exchanges_match_real_server() {
    let differences: Differences = toml::from_str(include_str!("../golden/differences.toml")).unwrap();
    let exchanges: BTreeMap<String, CapturedExchange> = EXCHANGE_SETS
        .iter()
        .flat_map(|set| {
            CapturedExchange::all(set).into_iter().map(move |(name, one)| (format!("{set}/{name}"), one))
        })
        .collect();
    assert_eq!(exchanges.len(), 61, "exchanges are missing");
    let fields = fields_by_event(exchanges.values());
    let (mut problems, mut used) = (Vec::new(), BTreeSet::new());
    for (name, exchange) in &exchanges {
        let special = differences.exchange.iter().find(|special| special.name == *name);
        let harness = replay_exchange(exchange, special.is_some_and(|special| special.goes_on));
        let findings = judge_exchange(exchange, &harness, special, &differences.everywhere, &fields);
        problems.extend(findings.problems.iter().map(|problem| format!("{name}: {problem}")));
        used.extend(findings.used);
    }
    problems.extend(unused_differences(&differences, &used, &exchanges));
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// Every field the real server gave each event.
fn fields_by_event<'e>(
    exchanges: impl Iterator<Item = &'e CapturedExchange>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in exchanges.flat_map(CapturedExchange::server_answers) {
        if let ServerItem::Event(event) = &item {
            fields.entry(item.name()).or_default().extend(event.keys().cloned());
        }
    }
    fields
}

fn unused_differences(
    differences: &Differences,
    used: &BTreeSet<usize>,
    exchanges: &BTreeMap<String, CapturedExchange>,
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

/// Repeats the client's actions at their captured times until the session is over.
fn replay_exchange(exchange: &CapturedExchange, goes_on: bool) -> Harness {
    let mut harness = open_harness(exchange);
    let mut client_actions = exchange.client_actions();
    if goes_on {
        let after = client_actions.last().map_or(Duration::ZERO, |(at, _)| *at) + Duration::from_secs(2);
        client_actions.push((after, ClientAction::Text(json!({"type": "session.close"}).to_string())));
    }
    for (at, action) in client_actions {
        harness.advance(at.saturating_sub(harness.now()));
        match action {
            ClientAction::Text(text) => harness.send_text(&text),
            ClientAction::Binary(bytes) => harness.send_binary(&bytes),
            ClientAction::Close => harness.close_client(),
        }
    }
    harness.advance(Duration::from_secs(60));
    harness
}

fn open_harness(exchange: &CapturedExchange) -> Harness {
    let mut config = HarnessConfig {
        voices: VoiceCatalog::new(BTreeMap::new(), vec![MODELS[1].to_owned()]),
        ..HarnessConfig::with_faults(&exchange.simulate.faults.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (simulate, timing) = (&exchange.simulate, &mut config.simulator.timing);
    timing.first_delta = simulate.first_delta_ms.map_or(timing.first_delta, Duration::from_millis);
    timing.speech_second = simulate.speech_second_ms.map_or(timing.speech_second, Duration::from_millis);
    config.simulator.workers = simulate.workers.unwrap_or(config.simulator.workers);
    let (path, query) = exchange.connect.split_once('?').unwrap_or((&exchange.connect, ""));
    assert!(config.library.clients_at(path).any(|client| client.name == "macaw"), "{path}");
    config.query = query.to_owned();
    // Stands in for routes that know only these models.
    let model = query.split('&').find_map(|parameter| parameter.strip_prefix("model="));
    match model {
        None => Harness::new_refused(config, &Error::new(ErrorKind::NoModel, "")),
        Some(model) if !MODELS.contains(&model) => {
            Harness::new_refused(config, &Error::new(ErrorKind::UnknownModel, model))
        }
        Some(_) => Harness::new(config),
    }
}

fn judge_exchange(
    exchange: &CapturedExchange,
    harness: &Harness,
    special: Option<&ExchangeDifference>,
    everywhere: &[GeneralDifference],
    fields: &BTreeMap<String, BTreeSet<String>>,
) -> Findings {
    let items = received_items(harness);
    let as_captured = compare(&exchange.server_answers(), &items, everywhere);
    let mut findings = match special {
        None => as_captured,
        Some(_) if as_captured.problems.is_empty() => Findings {
            problems: vec!["listed as different and no longer so".to_owned()],
            ..Findings::default()
        },
        Some(special) => {
            Findings { problems: compare_special(&special.expect, &items), used: BTreeSet::new() }
        }
    };
    if !harness.finished {
        findings.problems.push("the session never finishes".to_owned());
    }
    for item in &items {
        let ServerItem::Event(event) = item else { continue };
        let known = fields.get(&item.name()).into_iter().flatten();
        let missing: Vec<&String> = known.filter(|field| !event.contains_key(*field)).collect();
        if !missing.is_empty() {
            findings.problems.push(format!("{} without {missing:?}", item.name()));
        }
        let known = fields.get(&item.name());
        for field in event.keys().filter(|field| known.is_none_or(|known| !known.contains(*field))) {
            let lists = |rule: &Rule| match rule {
                Rule::Added { event, added } => *event == item.name() && added.contains(field),
                _ => false,
            };
            match everywhere.iter().position(|general| lists(&general.rule)) {
                Some(index) => drop(findings.used.insert(index)),
                None => {
                    findings.problems.push(format!("{} with {field:?}, which is not listed", item.name()));
                }
            }
        }
    }
    findings.problems.extend(protocol_checks::find_violations(harness));
    findings
}

/// The items the client received.
fn received_items(harness: &Harness) -> Vec<ServerItem> {
    let items = harness.log.iter().map(|(_, frame)| match frame {
        ClientFrame::Event(event) => ServerItem::Event(event.as_object().unwrap().clone()),
        ClientFrame::Binary(_) => ServerItem::Binary,
        ClientFrame::Close(code, reason) => ServerItem::Close(*code, reason.clone()),
    });
    collapse_runs(items.collect())
}

fn names(items: &[ServerItem]) -> Vec<String> {
    items.iter().map(ServerItem::name).collect()
}

fn compare(captured: &[ServerItem], items: &[ServerItem], everywhere: &[GeneralDifference]) -> Findings {
    let mut findings = Findings::default();
    let mut items = items.to_vec();
    for (index, general) in everywhere.iter().enumerate() {
        let Rule::Extra { extra } = &general.rule else { continue };
        let before = items.len();
        if !names(captured).contains(extra) {
            items.retain(|item| item.name() != *extra);
        }
        if items.len() < before {
            findings.used.insert(index);
        }
    }
    if captured.len() != items.len() {
        let (captured, items) = (names(captured), names(&items));
        findings.problems.push(format!("captured {captured:?}\n    told {items:?}"));
        return findings;
    }
    for (captured, items) in captured.iter().zip(&items) {
        match (captured, items) {
            (ServerItem::Event(captured), ServerItem::Event(items)) if captured["type"] == items["type"] => {
                compare_event(captured, items, everywhere, &mut findings);
            }
            (ServerItem::Lost, ServerItem::Close(code, _)) => {
                let ends = |general: &GeneralDifference| matches!(general.rule, Rule::Ends { ends_with } if ends_with == *code);
                match everywhere.iter().position(ends) {
                    Some(index) => drop(findings.used.insert(index)),
                    None => findings.problems.push(format!("captured a lost connection, told close {code}")),
                }
            }
            (captured, items) if captured == items => {}
            _ => findings.problems.push(format!("captured {captured:?}\n    told {items:?}")),
        }
    }
    findings
}

fn compare_event(
    captured: &Map<String, Value>,
    told: &Map<String, Value>,
    everywhere: &[GeneralDifference],
    findings: &mut Findings,
) {
    let name = captured["type"].as_str().unwrap();
    for (field, expected) in captured {
        let found = told.get(field).unwrap_or(&Value::Null);
        if values_match(name, field, expected, found) {
            continue;
        }
        let allows = |general: &GeneralDifference| match &general.rule {
            Rule::Fields { event, fields } => event == name && fields.contains(field),
            Rule::Wording { wording, same_until } => {
                field == "message"
                    && captured.get("code").is_some_and(|code| code == wording)
                    && differs_in_wording(same_until, expected, found)
            }
            _ => false,
        };
        match everywhere.iter().position(allows) {
            Some(index) => drop(findings.used.insert(index)),
            None => findings.problems.push(format!("{name}.{field}: captured {expected}\n    told {found}")),
        }
    }
}

/// True if a value equals the captured one, as far as values can be compared.
fn values_match(name: &str, field: &str, captured: &Value, told: &Value) -> bool {
    match (name, field) {
        ("vad.speech_start" | "vad.speech_end", "timestamp_ms") => {
            is_within_tolerance(captured, told, VAD_TOLERANCE_MS)
        }
        // Computed from instants that are 1–2 ms apart.
        ("session.rate_limit", "delay_ms") => is_within_tolerance(captured, told, 4),
        (_, "session_id") => is_id(told, "sess_", 12),
        (_, "request_id") if is_id(captured, "tts_", 8) => is_id(told, "tts_", 8),
        (_, field) if TIME_FIELDS.contains(&field) => told.is_u64(),
        _ => captured == told,
    }
}

fn is_within_tolerance(captured: &Value, told: &Value, tolerance: u64) -> bool {
    captured.as_u64().zip(told.as_u64()).is_some_and(|(one, other)| one.abs_diff(other) <= tolerance)
}

fn is_id(value: &Value, prefix: &str, digits: usize) -> bool {
    let rest = value.as_str().and_then(|id| id.strip_prefix(prefix));
    rest.is_some_and(|rest| rest.len() == digits && rest.chars().all(|c| c.is_ascii_hexdigit()))
}

/// True if two messages have the same beginning, and the same names of bad fields behind it: pydantic reports each on a line
/// of its own.
fn differs_in_wording(same_until: &str, captured: &Value, told: &Value) -> bool {
    let (Some(captured), Some(told)) = (captured.as_str(), told.as_str()) else { return false };
    let Some(at) = captured.find(same_until) else { return false };
    let start = &captured[..at + same_until.len()];
    let mut fields = captured.lines().skip(1).filter(|line| !line.starts_with(' '));
    told.starts_with(start) && told.len() > start.len() && fields.all(|field| told.contains(field))
}

/// Compares an exchange of different course with the values that matter.
fn compare_special(expect: &[Map<String, Value>], told: &[ServerItem]) -> Vec<String> {
    let told: Vec<Map<String, Value>> = told
        .iter()
        .map(|item| match item {
            ServerItem::Event(event) => event.clone(),
            ServerItem::Close(code, reason) => Map::from_iter([
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
