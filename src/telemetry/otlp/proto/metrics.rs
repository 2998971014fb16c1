//! All metrics as a message of OTLP, made of their OpenMetrics text: the figures are the same in both.
//!
//! Names keep their units and lose the endings of samples, so that a collector that writes them for Prometheus gives them the names
//! that `/metrics` has (<https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/>).

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::KeyValue,
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point::Value::AsDouble,
    },
};
use prost::Message as _;

use super::{resource_message, scope, text_attribute};
use crate::telemetry::{metrics::scrape::unix_now_s, otlp::settings::Resource};

/// The metric that has the start of the process, seconds since 1970.
const START: &str = "voxbridge_process_start_timestamp_seconds";

/// A request with all metrics of an OpenMetrics text.
pub(in crate::telemetry::otlp) fn encode_metrics(text: &str, resource: &Resource) -> Vec<u8> {
    let metrics = parse(text, (unix_now_s() * 1e9) as u64);
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, schema_url: String::new() }];
    let resource = Some(resource_message(resource));
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, schema_url: String::new() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}

/// When the figures were counted, ns since 1970.
#[derive(Clone, Copy)]
struct Period {
    start: u64,
    now: u64,
}

/// A line with a value: its name, labels and value.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: f64,
}

impl<'t> Sample<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let (name, rest) = match line.find('{') {
            Some(open) => (&line[..open], &line[open + 1..]),
            None => {
                let (name, value) = line.split_once(' ')?;
                return Some(Self { name, labels: Vec::new(), value: parse_value(value)? });
            }
        };
        let (labels, value) = parse_labels(rest)?;
        Some(Self { name, labels, value: parse_value(value)? })
    }

    fn attributes(&self) -> Vec<KeyValue> {
        self.labels
            .iter()
            .filter(|(name, _)| *name != "le")
            .map(|(name, value)| text_attribute(name, value))
            .collect()
    }
}

/// The value of a sample; there may be a time or an example behind it.
fn parse_value(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Labels up to their closing brace, and the text behind it.
fn parse_labels(mut text: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches(',');
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = rest.char_indices();
        loop {
            match letters.next()? {
                (at, '"') => {
                    text = &rest[at + 1..];
                    break;
                }
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    letter => letter,
                }),
                (_, letter) => value.push(letter),
            }
        }
        labels.push((name, value));
    }
}

/// The metrics of an OpenMetrics text, at this time.
fn parse(text: &str, now: u64) -> Vec<Metric> {
    let start = text.lines().find_map(|line| line.strip_prefix(START)?.trim().parse::<f64>().ok());
    let period = Period { start: (start.unwrap_or_default() * 1e9) as u64, now };
    let mut metrics: Vec<Metric> = Vec::new();
    let mut help = "";
    for line in text.lines() {
        let described = |what: &str| line.strip_prefix(what).and_then(|rest| rest.split_once(' '));
        if let Some((_, words)) = described("# HELP ") {
            help = words;
        } else if let Some((name, kind)) = described("# TYPE ") {
            metrics.push(described_metric(name, kind, help));
        } else if let Some((_, unit)) = described("# UNIT ") {
            if let Some(metric) = metrics.last_mut() {
                metric.unit = ucum_unit(unit).to_owned();
            }
        } else if !line.starts_with('#')
            && let (Some(metric), Some(sample)) = (metrics.last_mut(), Sample::parse(line))
        {
            add_sample(metric, &sample, period);
        }
    }
    metrics.retain(has_points);
    metrics
}

/// A metric without points.
fn described_metric(name: &str, kind: &str, help: &str) -> Metric {
    let temporality = AggregationTemporality::Cumulative.into();
    let data = match kind {
        "counter" => Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        "histogram" => {
            Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality: temporality })
        }
        _ => Data::Gauge(Gauge::default()),
    };
    Metric { name: name.to_owned(), description: help.to_owned(), data: Some(data), ..Metric::default() }
}

/// Units in the spelling of UCUM, as OpenTelemetry wants them.
fn ucum_unit(unit: &str) -> &str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        other => other,
    }
}

fn has_points(metric: &Metric) -> bool {
    match &metric.data {
        Some(Data::Sum(sum)) => !sum.data_points.is_empty(),
        Some(Data::Gauge(gauge)) => !gauge.data_points.is_empty(),
        Some(Data::Histogram(histogram)) => !histogram.data_points.is_empty(),
        _ => false,
    }
}

fn add_sample(metric: &mut Metric, sample: &Sample<'_>, period: Period) {
    let point = |start| NumberDataPoint {
        attributes: sample.attributes(),
        start_time_unix_nano: start,
        time_unix_nano: period.now,
        value: Some(AsDouble(sample.value)),
        ..NumberDataPoint::default()
    };
    match &mut metric.data {
        // A sample of a counter's creation is none of its values.
        Some(Data::Sum(sum)) if sample.name.ends_with("_total") => sum.data_points.push(point(period.start)),
        Some(Data::Gauge(gauge)) => gauge.data_points.push(point(0)),
        Some(Data::Histogram(histogram)) => {
            add_histogram_sample(histogram, sample, &metric.name, period);
        }
        _ => {}
    }
}

/// Adds a sample to the point with its labels. A text has the samples of a point in a row.
fn add_histogram_sample(histogram: &mut Histogram, sample: &Sample<'_>, name: &str, period: Period) {
    let attributes = sample.attributes();
    if histogram.data_points.last().is_none_or(|point| point.attributes != attributes) {
        histogram.data_points.push(HistogramDataPoint {
            attributes,
            start_time_unix_nano: period.start,
            time_unix_nano: period.now,
            ..HistogramDataPoint::default()
        });
    }
    let Some(point) = histogram.data_points.last_mut() else { return };
    match sample.name.strip_prefix(name) {
        Some("_sum") => point.sum = Some(sample.value),
        Some("_count") => point.count = sample.value as u64,
        Some("_bucket") => {
            let below: u64 = point.bucket_counts.iter().sum();
            point.bucket_counts.push((sample.value as u64).saturating_sub(below));
            let bound =
                sample.labels.iter().find(|(name, _)| *name == "le").and_then(|(_, le)| le.parse().ok());
            point.explicit_bounds.extend(bound.filter(|bound: &f64| bound.is_finite()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP voxbridge_build Version.\n# TYPE voxbridge_build info\nvoxbridge_build_info{version=\"1\"} 1\n\
        # HELP voxbridge_audio_in_seconds Audio.\n# TYPE voxbridge_audio_in_seconds counter\n\
        # UNIT voxbridge_audio_in_seconds seconds\n\
        voxbridge_audio_in_seconds_total{protocol=\"a\\\"b,}\",profile=\"speech\"} 2.5\n\
        # HELP voxbridge_none Nothing.\n# TYPE voxbridge_none counter\n\
        # HELP voxbridge_init_seconds Time.\n# TYPE voxbridge_init_seconds histogram\n\
        voxbridge_init_seconds_sum{upstream=\"l\"} 7.5\nvoxbridge_init_seconds_count{upstream=\"l\"} 3\n\
        voxbridge_init_seconds_bucket{le=\"1.0\",upstream=\"l\"} 1\nvoxbridge_init_seconds_bucket{le=\"5.0\",upstream=\"l\"} 3\n\
        voxbridge_init_seconds_bucket{le=\"+Inf\",upstream=\"l\"} 3\n\
        voxbridge_init_seconds_sum{upstream=\"r\"} 0\nvoxbridge_init_seconds_count{upstream=\"r\"} 0\n\
        # HELP voxbridge_process_start_timestamp_seconds Start.\n# TYPE voxbridge_process_start_timestamp_seconds gauge\n\
        voxbridge_process_start_timestamp_seconds 1000.5\n# EOF\n";

    #[test]
    fn figures_of_the_text_become_points() {
        let metrics = parse(TEXT, 2_000_000_000_000);
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        let expected = ["voxbridge_build", "voxbridge_audio_in_seconds", "voxbridge_init_seconds", START];
        assert_eq!(names, expected);
        let Some(Data::Sum(sum)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
        assert!(sum.is_monotonic && metrics[1].unit == "s" && metrics[1].description == "Audio.");
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.value), (1_000_500_000_000, Some(AsDouble(2.5))));
        assert_eq!(point.attributes[0], text_attribute("protocol", "a\"b,}"));
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        assert_eq!(histogram.data_points.len(), 2);
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (3, Some(7.5)));
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 2, 0][..], &[1.0, 5.0][..]));
    }
}
