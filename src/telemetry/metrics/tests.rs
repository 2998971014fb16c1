//! Checks rendered metrics against strict rules of the OpenMetrics text format.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    meters::{ConnectionSide, SessionMeters},
    scrape::{ServerSnapshot, UpstreamSnapshot},
    *,
};
use crate::{
    error::{Error, ErrorKind},
    session::{AudioOrigin, BargeInStage, EndReason, SessionState},
    vocabulary::LanePurpose,
};

/// Metrics after every event happened once.
fn metrics_with_every_event() -> Metrics {
    let metrics = Metrics::new(|| ServerSnapshot {
        waiting: vec![("connections", 3), ("calls", 0), ("pages", 0)],
        kinds: Vec::new(),
        sessions: vec![("macaw".into(), "speech".into(), SessionState::Listening)],
        upstreams: vec![UpstreamSnapshot {
            name: "gpu \"a\"\\".to_owned(),
            dialect: "minicpm-o".to_owned(),
            in_service: true,
            load: 3,
            failures: 2,
            ejections: 1,
            unneeded: 4,
        }],
        trace_lines_lost: 7,
        access_log_lines_lost: 8,
        log_lines_lost: 9,
        recordings_incomplete: 10,
        otlp_lost: vec![("traces", 6)],
    });
    metrics.record_call_audio([("received", 5), ("lost", 1), ("late", 0), ("reordered", 0)], 0.02);
    metrics.record_call_round_trip(0.03);
    metrics.record_call_jitter(0.004);
    let meters = SessionMeters::begin(&metrics, "macaw", "speech");
    let second = std::time::Duration::from_secs(1);
    meters.record_first_transcript(second);
    AudioOrigin::ALL.iter().for_each(|asked| meters.record_first_audio(*asked, second));
    BargeInStage::ALL.iter().for_each(|stage| meters.record_barge_in(*stage, second));
    meters.record_interruption();
    meters.record_turn_decision("finished");
    meters.record_early_question("used");
    meters.record_underrun();
    meters.record_rollover("time_limit", second);
    meters.record_lane_retry();
    meters.record_error(&Error::new(ErrorKind::QueueStuck, "x"));
    meters.record_close(ConnectionSide::Client, true, Some(4999));
    let lane = meters.begin_lane(&"gpu".into(), LanePurpose::Speak);
    for histogram in [&lane.queue_wait, &lane.init_time, &lane.realtime_factor, &lane.context_peak_tokens] {
        histogram.observe(1.0);
    }
    meters.audio_in.inc_by(1.5);
    meters.record_end(EndReason::Idle, second);
    metrics.record_rejection(RejectReason::NotFound);
    metrics.record_reload(true);
    metrics.set_certificate_expiry(2e9);
    metrics
}

/// Parses rendered samples into name with labels and value. Panics on lines that violate OpenMetrics.
fn parse_samples(text: &str) -> BTreeMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("ends with EOF");
    let (mut helped, mut typed) = (BTreeSet::new(), BTreeMap::new());
    let mut samples = BTreeMap::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and its help");
            assert!(helped.insert(name.to_owned()), "duplicate help of {name}");
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
                .expect("declared type");
            let suffixes: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&&name[family.len()..]), "{line}");
            assert!(helped.contains(family), "{line}");
            let value: f64 = value.parse().expect("a number");
            assert!(samples.insert(series.to_owned(), value).is_none(), "duplicate series {series}");
        }
    }
    samples
}

#[test]
fn rendered_metrics_are_valid_openmetrics_with_expected_values() {
    let text = metrics_with_every_event().render();
    let samples = parse_samples(&text);
    let session_labels = r#"protocol="macaw",profile="speech""#;
    for (series, value) in [
        (format!("voxbridge_sessions{{{session_labels},state=\"listening\"}}"), 1.0),
        (format!("voxbridge_sessions{{{session_labels},state=\"idle\"}}"), 0.0),
        (format!("voxbridge_sessions_opened_total{{{session_labels}}}"), 1.0),
        (
            format!("voxbridge_sessions_ended_total{{{session_labels},reason=\"idle\",origin=\"bridge\"}}"),
            1.0,
        ),
        (format!("voxbridge_audio_in_seconds_total{{{session_labels}}}"), 1.5),
        (format!("voxbridge_errors_total{{{session_labels},kind=\"queue_stuck\",origin=\"upstream\"}}"), 1.0),
        (r#"voxbridge_connections_rejected_total{reason="not_found",status="404"}"#.to_owned(), 1.0),
        (r#"voxbridge_connections_rejected_total{reason="tls",status="none"}"#.to_owned(), 0.0),
        (
            r#"voxbridge_connections_closed_total{side="client",closed_by="peer",code="other"}"#.to_owned(),
            1.0,
        ),
        (r#"voxbridge_lanes{upstream="gpu",purpose="speak"}"#.to_owned(), 0.0),
        (r#"voxbridge_waiting{kind="connections"}"#.to_owned(), 3.0),
        (r#"voxbridge_upstream_load{upstream="gpu \"a\"\\"}"#.to_owned(), 3.0),
        (r#"voxbridge_upstream_lanes_unneeded{upstream="gpu \"a\"\\"}"#.to_owned(), 4.0),
        ("voxbridge_trace_lines_lost_total".to_owned(), 7.0),
        ("voxbridge_access_log_lines_lost_total".to_owned(), 8.0),
        ("voxbridge_log_lines_lost_total".to_owned(), 9.0),
        ("voxbridge_recordings_incomplete_total".to_owned(), 10.0),
        ("voxbridge_otlp_lost_total{signal=\"traces\"}".to_owned(), 6.0),
    ] {
        assert_eq!(samples.get(&series), Some(&value), "{series}\n{text}");
    }
}

#[test]
fn counters_of_served_protocols_exist_before_the_first_event() {
    let metrics = Metrics::new(ServerSnapshot::default);
    metrics.add_session_kinds([("macaw".into(), "speech".into())]);
    let zero = |text: &str| {
        let samples = parse_samples(text);
        for name in [
            "voxbridge_sessions_opened_total{LABELS}",
            "voxbridge_interruptions_total{LABELS}",
            "voxbridge_audio_in_seconds_total{LABELS}",
            "voxbridge_sessions_ended_total{LABELS,reason=\"upstream\",origin=\"upstream\"}",
            "voxbridge_errors_total{LABELS,kind=\"unavailable\",origin=\"upstream\"}",
            "voxbridge_frames_total{side=\"client\",direction=\"in\"}",
        ] {
            let series = name.replace("LABELS", r#"protocol="macaw",profile="speech""#);
            assert_eq!(samples.get(&series), Some(&0.0), "{series}\n{text}");
        }
    };
    zero(&metrics.render());
    // Known kinds, as a reload finds them, keep their counts.
    metrics
        .families()
        .interruptions
        .get_or_create(&SessionLabels { protocol: "macaw".into(), profile: "speech".into() })
        .inc();
    metrics.add_session_kinds([("macaw".into(), "speech".into())]);
    assert!(
        metrics.render().contains("voxbridge_interruptions_total{protocol=\"macaw\",profile=\"speech\"} 1")
    );
}

#[test]
fn session_gauges_stay_after_the_last_session() {
    let seen = std::sync::atomic::AtomicBool::new(false);
    let metrics = Metrics::new(move || {
        let first = !seen.swap(true, std::sync::atomic::Ordering::Relaxed);
        let session = ("macaw".into(), "speech".into(), SessionState::Idle);
        ServerSnapshot {
            sessions: if first { vec![session] } else { Vec::new() },
            ..ServerSnapshot::default()
        }
    });
    let series = r#"voxbridge_sessions{protocol="macaw",profile="speech",state="idle"}"#;
    let counts = [metrics.render(), metrics.render()].map(|text| parse_samples(&text).get(series).copied());
    assert_eq!(counts, [Some(1.0), Some(0.0)]);
}

/// Names of all metrics, from their `# TYPE` lines.
fn metric_names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|rest| Some(rest.split_once(' ')?.0.to_owned())).collect()
}

/// Names of all series that a query may use, with their metric.
fn series_to_metric(text: &str) -> BTreeMap<String, String> {
    let mut series = BTreeMap::new();
    let body = text.lines().filter(|line| !line.starts_with('#'));
    let names = metric_names(text);
    for name in body.filter_map(|line| line.split(['{', ' ']).next()) {
        let of =
            names.iter().filter(|metric| name.starts_with(metric.as_str())).max_by_key(|metric| metric.len());
        series.insert(name.to_owned(), of.expect("declared type").clone());
    }
    series
}

/// Names of metrics mentioned in a file.
fn metric_names_in(file: &str) -> BTreeSet<&str> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    file.split(|character| !is_name(character)).filter(|word| word.starts_with("voxbridge_")).collect()
}

const DASHBOARD: &str = include_str!("../../../examples/grafana/voxbridge.json");
const ALERTS: &str = include_str!("../../../examples/prometheus/alerts.yaml");

#[test]
fn dashboard_shows_every_metric_and_alerts_use_existing_ones() {
    let text = metrics_with_every_event().render();
    let series = series_to_metric(&text);
    serde_json::from_str::<serde_json::Value>(DASHBOARD).unwrap();
    for (file, name) in metric_names_in(DASHBOARD)
        .iter()
        .map(|name| ("dashboard", name))
        .chain(metric_names_in(ALERTS).iter().map(|name| ("alerts", name)))
    {
        assert!(series.contains_key(*name), "{file}: unknown metric {name}");
    }
    let shown: BTreeSet<_> = metric_names_in(DASHBOARD).iter().filter_map(|name| series.get(*name)).collect();
    let missing: Vec<_> = metric_names(&text).into_iter().filter(|name| !shown.contains(name)).collect();
    assert_eq!(missing, [""; 0], "metrics without a panel");
    assert!(missing.is_empty() && metric_names(&text).len() > 40, "{}", metric_names(&text).len());
}

#[test]
fn session_gauges_start_at_zero_for_configured_routes() {
    let kinds = || vec![("macaw".into(), "speech".into()), ("vosk".into(), "speech".into())];
    let metrics = Metrics::new(move || ServerSnapshot { kinds: kinds(), ..ServerSnapshot::default() });
    let text = metrics.render();
    let counted =
        parse_samples(&text).into_iter().filter(|(series, _)| series.starts_with("voxbridge_sessions{"));
    let counts: Vec<f64> = counted.map(|(_, count)| count).collect();
    assert_eq!(counts, [0.0].repeat(2 * SessionState::ALL.len()), "{text}");
}

const AUTOSCALING: &str = include_str!("../../../examples/kubernetes/autoscaling.yaml");
const ADAPTER: &str = include_str!("../../../examples/kubernetes/prometheus-adapter.yaml");

#[test]
fn autoscaling_metrics_exist_before_the_first_session() {
    let kinds = vec![("macaw".into(), "speech".into())];
    let metrics = Metrics::new(move || ServerSnapshot { kinds: kinds.clone(), ..ServerSnapshot::default() });
    let series = series_to_metric(&metrics.render());
    for (file, text) in [("autoscaling", AUTOSCALING), ("adapter", ADAPTER)] {
        let names = metric_names_in(text);
        assert!(!names.is_empty(), "{file} uses no metric");
        names.iter().for_each(|name| assert!(series.contains_key(*name), "{file}: unknown metric {name}"));
    }
}

#[test]
fn initialised_lanes_of_all_upstreams_and_purposes_are_counted() {
    let metrics = Metrics::new(ServerSnapshot::default);
    assert_eq!(metrics.initialised_lanes(), (0, 0.0));
    let meters = SessionMeters::begin(&metrics, "macaw", "speech");
    for (upstream, purpose) in
        [("a", LanePurpose::Speak), ("a", LanePurpose::Transcribe), ("b", LanePurpose::Speak)]
    {
        meters.begin_lane(&upstream.into(), purpose).init_time.observe(1.5);
    }
    assert_eq!(metrics.initialised_lanes(), (3, 4.5));
}

#[test]
fn text_format_has_the_same_samples_described_by_their_own_names() {
    let metrics = metrics_with_every_event();
    let text = metrics.render_as(MetricsFormat::Text);
    let (mut described, mut count) = (BTreeMap::new(), 0);
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(described.insert(name, kind).is_none(), "{line}");
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
            let kind = described.get(name).or_else(|| described.get(base?));
            assert_eq!(*kind.expect(line) == "counter", name.ends_with("_total"), "{line}");
            count += 1;
        }
    }
    assert_eq!(count, parse_samples(&metrics.render()).len());
}
