"""A receiver of OpenTelemetry's OTLP over HTTP, with the messages of PyPI's `opentelemetry-proto`.

Prints a JSON line with its port, and then one for each request, span, metric and line of the log.
"""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

WRITING = threading.Lock()
KINDS = {1: "internal", 2: "server", 3: "client"}


def value_of(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(part) for part in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes_of(message):
    return {pair.key: value_of(pair.value) for pair in message.attributes}


def spans_of(body):
    request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "span": span.name,
                    "trace_id": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "state": span.trace_state,
                    "kind": KINDS[span.kind],
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "attributes": attributes_of(span),
                    "events": [[event.name, event.time_unix_nano] for event in span.events],
                    "is_error": span.status.code == 2,
                    "resource": attributes_of(resource.resource),
                }


def metrics_of(body):
    request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                points = [
                    {
                        "attributes": attributes_of(point),
                        "value": point.count if kind == "histogram" else point.as_double,
                    }
                    for point in getattr(metric, kind).data_points
                ]
                yield {"metric": metric.name, "unit": metric.unit, "kind": kind, "points": points}


def lines_of(body):
    request = logs_service_pb2.ExportLogsServiceRequest.FromString(body)
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for line in scope.log_records:
                yield {
                    "line": line.body.string_value,
                    "severity": line.severity_text,
                    "trace_id": line.trace_id.hex(),
                    "span_id": line.span_id.hex(),
                    "attributes": attributes_of(line),
                }


SIGNALS = {
    "/v1/traces": (spans_of, trace_service_pb2.ExportTraceServiceResponse),
    "/v1/metrics": (metrics_of, metrics_service_pb2.ExportMetricsServiceResponse),
    "/v1/logs": (lines_of, logs_service_pb2.ExportLogsServiceResponse),
}


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        records, answer = SIGNALS[self.path]
        assert self.headers["content-type"] == "application/x-protobuf"
        report({"request": self.path, "key": self.headers["x-key"], "encoding": self.headers["content-encoding"]})
        for record in records(body):
            report(record)
        body = answer().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def report(record):
    with WRITING:
        print(json.dumps(record), flush=True)


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    report({"port": server.server_port})
    server.serve_forever()


main()
