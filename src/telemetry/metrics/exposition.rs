//! The two text formats of metrics, and the choice between them: OpenMetrics, and Prometheus' text format 0.0.4 for readers that
//! know no other.
//!
//! Sources: the OpenMetrics specification 1.0; <https://prometheus.io/docs/instrumenting/exposition_formats/>; "Scrape protocol
//! content negotiation" of Prometheus.

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl MetricsFormat {
    /// The format that an `Accept` header prefers. OpenMetrics wins a tie, and is the answer without a header.
    pub fn preferred(accept: &str) -> Self {
        let [open_metrics, text] = [("application", "openmetrics-text"), ("text", "plain")]
            .map(|(kind, subtype)| quality(accept, kind, subtype));
        if text.0 > 0 && text > open_metrics { Self::Text } else { Self::OpenMetrics }
    }

    /// Its content type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// How much a header wants a media type: the weight of the entry that names it most precisely (RFC 9110 §12.5.1), in thousandths,
/// and this precision. A type that is not named has weight 0.
fn quality(accept: &str, kind: &str, subtype: &str) -> (u32, u8) {
    let entries = accept.split(',').filter_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let (named_kind, named_subtype) = parts.next()?.split_once('/')?;
        let is = |named: &str, name: &str| named.eq_ignore_ascii_case(name);
        let precision = match (named_kind, named_subtype) {
            (named, sub) if is(named, kind) && is(sub, subtype) => 3,
            (named, "*") if is(named, kind) => 2,
            ("*", "*") => 1,
            _ => return None,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f64>);
        let weight = (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u32;
        Some((precision, weight))
    });
    entries.max().map_or((0, 0), |(precision, weight)| (weight, precision))
}

/// Turns OpenMetrics into the text format: counters and the information about the build are described by the names of their
/// samples, and there are no units and no end mark.
pub(super) fn text_of(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        let described = |what: &str| line.strip_prefix(what).and_then(|rest| rest.split_once(' '));
        if let Some((_, words)) = described("# HELP ") {
            help = words;
        } else if let Some((name, kind)) = described("# TYPE ") {
            let (ending, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            text += &format!("# HELP {name}{ending} {help}\n# TYPE {name}{ending} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_that_is_asked_for_is_preferred() {
        use MetricsFormat::{OpenMetrics, Text};
        const PROMETHEUS: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
            application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", OpenMetrics),
            ("*/*", OpenMetrics),
            (PROMETHEUS, OpenMetrics),
            ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", OpenMetrics),
            ("application/json", OpenMetrics),
            ("text/plain;version=0.0.4", Text),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Text),
            ("text/plain;version=0.0.4,*/*", Text),
            ("text/plain;q=0.3,*/*;q=0.9", OpenMetrics),
            ("Text/Plain", Text),
            ("text/*", Text),
            ("text/plain;q=0.2, application/openmetrics-text;q=0.1", Text),
            ("text/plain;q=0.2, application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text, text/plain", OpenMetrics),
            ("text/plain;q=0", OpenMetrics),
        ] {
            assert_eq!(MetricsFormat::preferred(accept), format, "{accept}");
        }
    }

    #[test]
    fn text_format_describes_samples_by_their_names() {
        let open_metrics = "# HELP a_build Version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{x=\"# TYPE b\"} 3\n\
            # HELP a_load Load.\n# TYPE a_load gauge\na_load 2\n# EOF\n";
        assert_eq!(
            text_of(open_metrics),
            "# HELP a_build_info Version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
             # HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_bytes_total{x=\"# TYPE b\"} 3\n\
             # HELP a_load Load.\n# TYPE a_load gauge\na_load 2\n"
        );
    }
}
