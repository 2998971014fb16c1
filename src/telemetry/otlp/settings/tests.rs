use std::collections::BTreeMap;

use super::*;

type Found = Result<Option<OtlpSettings>, String>;

fn read(url: Option<&str>, variables: &[(&str, &str)]) -> Found {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    OtlpSettings::read(url, None, &|name| variables.get(name).map(|value| (*value).to_owned()))
}

/// Where the signals go.
fn urls(found: Found) -> [String; 3] {
    let settings = found.unwrap().unwrap();
    let url = |target: Option<Target>| {
        target.map_or_else(String::new, |target| format!("{} {}", target.url, target.request.path))
    };
    [settings.traces, settings.metrics, settings.logs].map(url)
}

#[test]
fn signals_go_below_the_base_or_to_urls_of_their_own() {
    let base = [
        "http://a:4318/v1/traces /v1/traces",
        "http://a:4318/v1/metrics /v1/metrics",
        "http://a:4318/v1/logs /v1/logs",
    ];
    assert_eq!(urls(read(Some("http://a:4318"), &[])), base);
    assert_eq!(urls(read(Some("http://a:4318/"), &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b")])), base);
    assert_eq!(urls(read(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318")])), base);
    let below = urls(read(Some("https://a/otlp"), &[]));
    assert_eq!(below[0], "https://a/otlp/v1/traces /otlp/v1/traces");
    let own = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/x?key=k"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "otlp"),
    ];
    assert_eq!(urls(read(None, &own)), ["http://t/x?key=*** /x?key=k", "", ""]);
}

#[test]
fn nothing_is_exported_without_a_collector_or_when_turned_off() {
    for (url, variables) in [
        (None, &[][..]),
        (None, &[("OTEL_SERVICE_NAME", "a"), ("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]),
        (Some("http://a"), &[("OTEL_SDK_DISABLED", "TRUE")]),
        (
            Some("http://a"),
            &[
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRICS_EXPORTER", "none"),
                ("OTEL_LOGS_EXPORTER", "none"),
            ],
        ),
    ] {
        assert!(read(url, variables).unwrap().is_none(), "{variables:?}");
    }
}

#[test]
fn mistakes_name_their_variable() {
    for (url, variables, words) in [
        (
            "ws://a",
            &[][..],
            "\"ws://a/v1/traces\": the scheme must be http or https; it looks like http://HOST:4318",
        ),
        ("http://u:p@a", &[], "\"http://***@a/v1/traces\": credentials in a URL"),
        ("http://a?key=k", &[], "\"http://a?key=***\": a query is not allowed"),
        (
            "http://a",
            &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            "OTEL_EXPORTER_OTLP_PROTOCOL: \"grpc\" is not supported",
        ),
        (
            "http://a",
            &[("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "zstd")],
            "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION: unknown compression \"zstd\"; use gzip or none",
        ),
        (
            "http://a",
            &[("OTEL_EXPORTER_OTLP_HEADERS", "a b=c")],
            "OTEL_EXPORTER_OTLP_HEADERS: the header \"a b\"",
        ),
        (
            "http://a",
            &[("OTEL_EXPORTER_OTLP_TIMEOUT", "1s")],
            "OTEL_EXPORTER_OTLP_TIMEOUT: \"1s\" is no number",
        ),
        (
            "http://a",
            &[("OTEL_TRACES_EXPORTER", "zipkin")],
            "OTEL_TRACES_EXPORTER: unknown exporter \"zipkin\"",
        ),
        ("http://a", &[("OTEL_TRACES_SAMPLER", "jaeger_remote")], "OTEL_TRACES_SAMPLER: unknown sampler"),
        (
            "http://a",
            &[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")],
            "OTEL_TRACES_SAMPLER_ARG: \"2\" is no number from 0 to 1",
        ),
    ] {
        let problem = read(Some(url), variables).map(drop).unwrap_err();
        assert!(problem.starts_with(words), "{problem}");
    }
}

#[test]
fn resource_and_headers_are_read() {
    let variables = [
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=lab%201,service.name=other,broken, a = b+c ",
        ),
        ("OTEL_SERVICE_NAME", "phones"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=s%3Dt,x-team=a"),
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-key=own"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "none"),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ];
    let settings = read(Some("http://a"), &variables).unwrap().unwrap();
    let value = |name: &str| {
        settings.resource.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    assert_eq!(value("service.name"), Some("phones"));
    assert_eq!((value("deployment.environment.name"), value("a")), (Some("lab 1"), Some("b+c")));
    assert_eq!(value("service.version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(settings.batch_delay, Duration::from_millis(50));
    let is_compressed = |target: &Option<Target>| target.as_ref().is_some_and(|target| target.is_compressed);
    assert!(is_compressed(&settings.traces) && !is_compressed(&settings.logs));
    let headers = |target: Option<Target>| -> Vec<String> {
        let headers = target.unwrap().request.headers.into_iter();
        headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    };
    assert_eq!(headers(settings.traces), ["x-key: s=t", "x-team: a"]);
    assert_eq!(headers(settings.logs), ["x-key: own"]);
}

/// A context of a trace with this id, whose client decided this, if there is one.
fn context(trace_id: u64, decided: Option<bool>) -> TraceContext {
    let header =
        decided.map(|sampled| format!("00-{trace_id:032x}-00f067aa0ba902b7-{:02x}", u8::from(sampled)));
    let mut rng = fastrand::Rng::with_seed(trace_id);
    TraceContext::from_headers(header.as_deref().into_iter(), std::iter::empty(), &mut rng)
}

#[test]
fn samplers_decide_by_the_client_or_by_the_id() {
    for (name, argument, alone, unsampled, sampled) in [
        ("parentbased_always_on", None, true, false, true),
        ("parentbased_always_off", None, false, false, true),
        ("always_on", None, true, true, true),
        ("always_off", None, false, false, false),
        ("traceidratio", None, true, true, true),
        ("traceidratio", Some("0"), false, false, false),
        ("parentbased_traceidratio", Some("0.0"), false, false, true),
    ] {
        let sampler = Sampler::named(name, argument).unwrap();
        let decisions =
            [None, Some(false), Some(true)].map(|decided| sampler.is_sampled(&context(7, decided)));
        assert_eq!(decisions, [alone, unsampled, sampled], "{name} {argument:?}");
    }
    let sampler = Sampler::named("traceidratio", Some("0.25")).unwrap();
    let count = (1..2000).filter(|seed| sampler.is_sampled(&context(*seed, None))).count();
    assert!((430..570).contains(&count), "{count} of 2000");
}
