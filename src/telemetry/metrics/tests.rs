//! What is rendered is OpenMetrics, by a few strict rules of its text format.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    meters::{Meters, Side},
    scrape::{Seen, SeenUpstream},
    *,
};
use crate::{
    error::{Error, ErrorKind},
    session::{Asked, Purpose, Reason, Stage, State},
};

/// Metrics in which everything has happened once.
fn full() -> Metrics {
    let metrics = Metrics::new(|| Seen {
        kinds: Vec::new(),
        sessions: vec![("macaw".into(), "speech".into(), State::Listening)],
        upstreams: vec![SeenUpstream {
            name: "gpu \"a\"\\".to_owned(),
            in_service: true,
            load: 3,
            failures: 2,
            left_out: 1,
        }],
        trace_lines_lost: 7,
    });
    let meters = Meters::begin(&metrics, "macaw", "speech");
    let second = std::time::Duration::from_secs(1);
    meters.first_transcript(second);
    Asked::ALL.iter().for_each(|asked| meters.first_audio(*asked, second));
    Stage::ALL.iter().for_each(|stage| meters.barge_in(*stage, second));
    meters.interrupted();
    meters.underrun();
    meters.rolled_over("time_limit", second);
    meters.lane_retried();
    meters.told(&Error::new(ErrorKind::QueueStuck, "x"));
    meters.closed(Side::Client, true, Some(4999));
    let lane = meters.lane(&"gpu".into(), Purpose::Speak);
    for histogram in [&lane.queue, &lane.init, &lane.step, &lane.context] {
        histogram.observe(1.0);
    }
    meters.audio_in.inc_by(1.5);
    meters.ended(Reason::Idle, second);
    metrics.refused(Refused::NotFound);
    metrics.reloaded(true);
    metrics.certificate_expires(2e9);
    metrics
}

/// Samples of what is rendered: name with labels, and value. Panics where a line is not as OpenMetrics has it.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with EOF");
    let (mut helped, mut typed) = (BTreeSet::new(), BTreeMap::new());
    let mut samples = BTreeMap::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and its help");
            assert!(helped.insert(name.to_owned()), "{name} is there twice");
            assert!(help.len() > 10 && help.ends_with('.'), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and its type");
            assert!(["counter", "gauge", "histogram", "info"].contains(&kind), "{line}");
            typed.insert(name.to_owned(), kind.to_owned());
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("a name and its unit");
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            let name = series.split('{').next().unwrap_or_default();
            assert!(name.starts_with("voxbridge_"), "{line}");
            let (family, kind) = typed
                .iter()
                .filter(|(family, _)| name.starts_with(family.as_str()))
                .max_by_key(|(family, _)| family.len())
                .expect("its type was told before");
            let suffixes: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&&name[family.len()..]), "{line}");
            assert!(helped.contains(family), "{line}");
            let value: f64 = value.parse().expect("a number");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} is there twice");
        }
    }
    samples
}

#[test]
fn what_is_rendered_is_open_metrics_and_counts_what_happened() {
    let text = full().render();
    let samples = samples(&text);
    let of = r#"protocol="macaw",profile="speech""#;
    for (series, value) in [
        (format!("voxbridge_sessions{{{of},state=\"listening\"}}"), 1.0),
        (format!("voxbridge_sessions{{{of},state=\"idle\"}}"), 0.0),
        (format!("voxbridge_sessions_opened_total{{{of}}}"), 1.0),
        (format!("voxbridge_sessions_ended_total{{{of},reason=\"idle\",side=\"bridge\"}}"), 1.0),
        (format!("voxbridge_audio_in_seconds_total{{{of}}}"), 1.5),
        (format!("voxbridge_errors_total{{{of},kind=\"queue_stuck\",origin=\"upstream\"}}"), 1.0),
        (r#"voxbridge_refused_total{reason="not_found",status="404"}"#.to_owned(), 1.0),
        (r#"voxbridge_refused_total{reason="tls",status="none"}"#.to_owned(), 0.0),
        (r#"voxbridge_closes_total{side="client",by="peer",code="other"}"#.to_owned(), 1.0),
        (r#"voxbridge_lanes{upstream="gpu",purpose="speak"}"#.to_owned(), 0.0),
        (r#"voxbridge_upstream_load{upstream="gpu \"a\"\\"}"#.to_owned(), 3.0),
        ("voxbridge_trace_lines_lost_total".to_owned(), 7.0),
    ] {
        assert_eq!(samples.get(&series), Some(&value), "{series}\n{text}");
    }
}

#[test]
fn kinds_of_sessions_that_were_seen_stay() {
    let seen = std::sync::atomic::AtomicBool::new(false);
    let metrics = Metrics::new(move || {
        let first = !seen.swap(true, std::sync::atomic::Ordering::Relaxed);
        let session = ("macaw".into(), "speech".into(), State::Idle);
        Seen { sessions: if first { vec![session] } else { Vec::new() }, ..Seen::default() }
    });
    let series = r#"voxbridge_sessions{protocol="macaw",profile="speech",state="idle"}"#;
    let counts = [metrics.render(), metrics.render()].map(|text| samples(&text).get(series).copied());
    assert_eq!(counts, [Some(1.0), Some(0.0)]);
}

/// Every metric's name, as `# TYPE` tells it.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|rest| Some(rest.split_once(' ')?.0.to_owned())).collect()
}

/// Every name that a query may use for a series, with the metric it is of.
fn series(text: &str) -> BTreeMap<String, String> {
    let mut series = BTreeMap::new();
    let body = text.lines().filter(|line| !line.starts_with('#'));
    let names = names(text);
    for name in body.filter_map(|line| line.split(['{', ' ']).next()) {
        let of =
            names.iter().filter(|metric| name.starts_with(metric.as_str())).max_by_key(|metric| metric.len());
        series.insert(name.to_owned(), of.expect("it has a type").clone());
    }
    series
}

/// The names of metrics in a file.
fn used(file: &str) -> BTreeSet<&str> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    file.split(|character| !is_name(character)).filter(|word| word.starts_with("voxbridge_")).collect()
}

const DASHBOARD: &str = include_str!("../../../examples/grafana/voxbridge.json");
const ALERTS: &str = include_str!("../../../examples/prometheus/alerts.yaml");

#[test]
fn the_dashboard_and_the_alerts_ask_for_what_there_is_and_the_dashboard_for_all_of_it() {
    let text = full().render();
    let series = series(&text);
    serde_json::from_str::<serde_json::Value>(DASHBOARD).unwrap();
    for (file, name) in used(DASHBOARD)
        .iter()
        .map(|name| ("dashboard", name))
        .chain(used(ALERTS).iter().map(|name| ("alerts", name)))
    {
        assert!(series.contains_key(*name), "{file}: there is no {name}");
    }
    let shown: BTreeSet<_> = used(DASHBOARD).iter().filter_map(|name| series.get(*name)).collect();
    let missing: Vec<_> = names(&text).into_iter().filter(|name| !shown.contains(name)).collect();
    assert_eq!(missing, [""; 0], "no panel shows them");
    assert!(missing.is_empty() && names(&text).len() > 40, "{}", names(&text).len());
}

#[test]
fn sessions_that_could_be_are_counted_before_the_first() {
    let kinds = || vec![("macaw".into(), "speech".into()), ("vosk".into(), "speech".into())];
    let metrics = Metrics::new(move || Seen { kinds: kinds(), ..Seen::default() });
    let text = metrics.render();
    let counted = samples(&text).into_iter().filter(|(series, _)| series.starts_with("voxbridge_sessions{"));
    let counts: Vec<f64> = counted.map(|(_, count)| count).collect();
    assert_eq!(counts, [0.0].repeat(2 * State::ALL.len()), "{text}");
}

const AUTOSCALING: &str = include_str!("../../../examples/kubernetes/autoscaling.yaml");
const ADAPTER: &str = include_str!("../../../examples/kubernetes/prometheus-adapter.yaml");

#[test]
fn what_pods_are_counted_by_is_there_before_the_first_session() {
    let kinds = vec![("macaw".into(), "speech".into())];
    let metrics = Metrics::new(move || Seen { kinds: kinds.clone(), ..Seen::default() });
    let series = series(&metrics.render());
    for (file, text) in [("autoscaling", AUTOSCALING), ("adapter", ADAPTER)] {
        let names = used(text);
        assert!(!names.is_empty(), "{file} asks for nothing");
        names.iter().for_each(|name| assert!(series.contains_key(*name), "{file}: there is no {name}"));
    }
}
