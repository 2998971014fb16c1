//! Settings of the export: the keys of the configuration, and the variables that all programs with OpenTelemetry know.

use std::{path::Path, time::Duration};

use form_urlencoded::parse;
use hyper::header::{HeaderName, HeaderValue};

use super::signal::Signal;
use crate::{
    net::{
        Endpoint,
        http_request::{RequestTarget, websocket_uri},
    },
    secret::{random_hex, redacted_url},
    telemetry::context::TraceContext,
};

/// Defaults of the specification.
const DEFAULT_TIMEOUT_MS: u64 = 10_000;
const DEFAULT_BATCH_DELAY_MS: u64 = 5_000;
const DEFAULT_METRIC_INTERVAL_MS: u64 = 60_000;
/// Shortest interval of metrics.
const LEAST_METRIC_INTERVAL: Duration = Duration::from_millis(100);
/// Name of the service, unless a variable names another.
const SERVICE: &str = "voxbridge";

/// Attributes of this process.
pub type Resource = Vec<(String, String)>;

/// Where, what and how much is exported.
#[derive(Clone)]
pub struct OtlpSettings {
    pub(super) traces: Option<Target>,
    pub(super) metrics: Option<Target>,
    pub(super) logs: Option<Target>,
    pub(super) sampler: Sampler,
    pub(super) resource: Resource,
    /// Longest time of a request.
    pub(super) timeout: Duration,
    /// Longest time in which a batch is collected.
    pub(super) batch_delay: Duration,
    pub(super) metric_interval: Duration,
    /// What users, models and tools say is recorded.
    pub(super) has_content: bool,
}

/// One path of a collector.
#[derive(Clone)]
pub(super) struct Target {
    /// Its headers are marked as sensitive.
    pub(super) request: RequestTarget,
    /// Requests are compressed by gzip.
    pub(super) is_compressed: bool,
    /// Address without secrets, for the log.
    pub(super) url: String,
}

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// A client's own decision counts.
    follows_client: bool,
    /// Part of the other traces, 0 to 1.
    ratio: f64,
}

impl Sampler {
    /// The sampler of this name and argument, as in `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`.
    fn named(name: &str, argument: Option<&str>) -> Result<Self, String> {
        let (follows_client, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let ratio = argument.map_or(Ok(1.0), str::parse::<f64>);
                ratio.ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(|| {
                    format!(
                        "OTEL_TRACES_SAMPLER_ARG: {:?} is no number from 0 to 1",
                        argument.unwrap_or_default()
                    )
                })?
            }
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER: unknown sampler {name:?}; use always_on, always_off or traceidratio, or one of them \
                     after parentbased_"
                ));
            }
        };
        Ok(Self { follows_client, ratio })
    }

    /// True if the trace is recorded. Decides about an id as OpenTelemetry's libraries for Go and Rust do.
    pub(super) fn is_sampled(self, context: &TraceContext) -> bool {
        if self.follows_client && context.parent_id.is_some() {
            return context.sampled;
        }
        let random = context.trace_id.0 as u64 >> 1;
        self.ratio >= 1.0 || (random as f64) < self.ratio * (1_u64 << 63) as f64
    }
}

/// Reads a variable of the environment.
pub type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

impl OtlpSettings {
    /// The settings of the configuration's URL and of variables; `None` if neither names a collector, or a variable turns the export
    /// off.
    ///
    /// # Errors
    /// A message that names the variable or describes the URL.
    pub fn read(
        url: Option<&str>,
        has_content: Option<bool>,
        variables: Variables<'_>,
    ) -> Result<Option<Self>, String> {
        let variable = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        let is_set =
            |name: &str| variable(name).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
        if let Some(url) = url.filter(|url| url.contains('?')) {
            return Err(format!(
                "{:?}: a query is not allowed, because paths are added to the URL",
                redacted_url(url)
            ));
        }
        let base = url.map(str::to_owned).or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let target = |signal| Target::read(signal, base.as_deref(), &variable);
        let [traces, metrics, logs] =
            [target(Signal::Traces)?, target(Signal::Metrics)?, target(Signal::Logs)?];
        if is_set("OTEL_SDK_DISABLED") || [&traces, &metrics, &logs].into_iter().all(Option::is_none) {
            return Ok(None);
        }
        let millis = |name: &str, default: u64| match variable(name) {
            None => Ok(Duration::from_millis(default)),
            Some(value) => value
                .trim()
                .parse()
                .map(Duration::from_millis)
                .map_err(|_| format!("{name}: {value:?} is no number of milliseconds")),
        };
        let sampler = variable("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
        Ok(Some(Self {
            traces,
            metrics,
            logs,
            sampler: Sampler::named(
                sampler.trim(),
                variable("OTEL_TRACES_SAMPLER_ARG").as_deref().map(str::trim),
            )?,
            resource: read_resource(&variable),
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", DEFAULT_TIMEOUT_MS)?,
            batch_delay: millis("OTEL_BSP_SCHEDULE_DELAY", DEFAULT_BATCH_DELAY_MS)?,
            metric_interval: millis("OTEL_METRIC_EXPORT_INTERVAL", DEFAULT_METRIC_INTERVAL_MS)?
                .max(LEAST_METRIC_INTERVAL),
            has_content: has_content
                .unwrap_or_else(|| is_set("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")),
        }))
    }
}

/// Attributes of this process: `OTEL_RESOURCE_ATTRIBUTES`, and those that every service has.
fn read_resource(variable: &dyn Fn(&str) -> Option<String>) -> Resource {
    let mut resource: Resource = Vec::new();
    let mut set = |name: &str, value: String| {
        resource.retain(|(known, _)| known != name);
        resource.push((name.to_owned(), value));
    };
    set("service.name", SERVICE.to_owned());
    set("service.version", env!("CARGO_PKG_VERSION").to_owned());
    if let Some(instance) = random_hex::<16>() {
        set("service.instance.id", instance);
    }
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    for (name, value) in pairs(&attributes) {
        set(&name, value);
    }
    if let Some(name) = variable("OTEL_SERVICE_NAME") {
        set("service.name", name);
    }
    resource
}

/// Pairs such as `name=value,other=a%20b`. Those without a `=` are ignored.
fn pairs(list: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = list.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), percent_decoded(value.trim())))
}

fn percent_decoded(text: &str) -> String {
    // `+` stands for itself here.
    let escaped = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    parse(escaped.as_bytes()).map(|(name, _)| name.into_owned()).next().unwrap_or_default()
}

impl Target {
    /// Where a signal goes: to a URL of its own, or below the base; `None` if it goes nowhere.
    fn read(
        signal: Signal,
        base: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let upper = signal.name().to_uppercase();
        let own = |what: &str| {
            let names = [format!("OTEL_EXPORTER_OTLP_{upper}_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
            names.into_iter().find_map(|name| variable(&name).map(|value| (name, value)))
        };
        let selector = format!("OTEL_{upper}_EXPORTER");
        match variable(&selector).as_deref().map(str::trim) {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => return Err(format!("{selector}: unknown exporter {other:?}; use otlp or none")),
        }
        let endpoint = variable(&format!("OTEL_EXPORTER_OTLP_{upper}_ENDPOINT"));
        let Some(url) =
            endpoint.or_else(|| Some(format!("{}/v1/{}", base?.trim_end_matches('/'), signal.name())))
        else {
            return Ok(None);
        };
        if let Some((name, protocol)) =
            own("PROTOCOL").filter(|(_, protocol)| protocol.trim() != "http/protobuf")
        {
            return Err(format!(
                "{name}: {protocol:?} is not supported; use http/protobuf, usually at port 4318 of the collector"
            ));
        }
        let is_compressed = match own("COMPRESSION").as_ref().map(|(name, value)| (name, value.trim())) {
            None | Some((_, "none")) => false,
            Some((_, "gzip")) => true,
            Some((name, other)) => {
                return Err(format!("{name}: unknown compression {other:?}; use gzip or none"));
            }
        };
        let headers = own("HEADERS").map_or(Ok(Vec::new()), |(name, list)| read_headers(&name, &list))?;
        let ca = own("CERTIFICATE").map(|(_, path)| path);
        let target = Self::at(&url, headers, ca.as_deref().map(Path::new))?;
        Ok(Some(Self { is_compressed, ..target }))
    }

    fn at(url: &str, headers: Vec<(HeaderName, HeaderValue)>, ca: Option<&Path>) -> Result<Self, String> {
        let redacted = redacted_url(url);
        let invalid = |problem: String| format!("{redacted:?}: {problem}; it looks like http://HOST:4318");
        let uri = websocket_uri(url).map_err(invalid)?;
        let endpoint = Endpoint::from_uri(&uri, ca).map_err(invalid)?;
        Ok(Self { request: RequestTarget::new(endpoint, &uri, headers), is_compressed: false, url: redacted })
    }
}

/// Headers such as `name=value,other=value`. An error quotes no value.
fn read_headers(variable: &str, list: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |(name, value): (String, String)| {
        let (parsed, value) = (name.parse::<HeaderName>(), HeaderValue::try_from(value));
        let (Ok(parsed), Ok(mut value)) = (parsed, value) else {
            return Err(format!("{variable}: the header {name:?} or its value is not allowed"));
        };
        value.set_sensitive(true);
        Ok((parsed, value))
    };
    pairs(list).map(header).collect()
}

#[cfg(test)]
mod tests;
