use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

use super::*;

#[test]
fn span_becomes_a_message_that_is_read_back() {
    let mut span = Span {
        trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
        id: 7,
        parent: Some(8),
        trace_state: Some("congo=t61".into()),
        name: "session".into(),
        kind: SpanKind::Server,
        start_unix_ns: 1,
        end_unix_ns: 2,
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        error: None,
    };
    span.set("voxbridge.lanes", 3_u32);
    span.set("voxbridge.lanes", 4_u32);
    span.set("voxbridge.upstreams", vec!["a".to_owned()]);
    span.fail("upstream", "lost");
    (0..200).for_each(|at| span.add_event(at, "error", Vec::new()));
    let resource = vec![("service.name".to_owned(), "voxbridge".to_owned())];
    let read = ExportTraceServiceRequest::decode(&*encode_spans(&[span], &resource)).unwrap();
    let read = &read.resource_spans[0];
    assert_eq!(read.resource.as_ref().unwrap().attributes[0].key, "service.name");
    let span = &read.scope_spans[0].spans[0];
    assert_eq!(
        (&span.span_id[..], &span.parent_span_id[..]),
        (&[0, 0, 0, 0, 0, 0, 0, 7][..], &[0, 0, 0, 0, 0, 0, 0, 8][..])
    );
    assert_eq!((span.trace_id[0], span.trace_id[15], span.flags), (0x4b, 0x36, 0x301));
    assert_eq!((span.events.len(), span.dropped_events_count), (128, 72));
    let keys: Vec<&str> = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(keys, ["voxbridge.lanes", "voxbridge.upstreams", "error.type"]);
    assert_eq!(span.status.as_ref().unwrap().code, 2);
}

#[test]
fn parts_that_the_collector_rejects_are_counted() {
    let partial = ExportTracePartialSuccess { rejected_spans: 5, error_message: String::new() };
    let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    assert_eq!(rejected_records(Signal::Traces, &answer), 5);
    for answer in [&b""[..], b"<html>", b"{}"] {
        assert_eq!(Signal::ALL.map(|signal| rejected_records(signal, answer)), [0; 3]);
    }
}
