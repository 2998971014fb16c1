//! HTTP pages of the gateway beside the WebSocket, as of `gateway.py` in OpenBMB/MiniCPM-o-Demo: `/health` and `/status`.
//! llama.cpp-omni has `/health`, and ends a session on request (`server-omni.cpp`).
//!
//! Other pages of the real gateway, such as its web interface, are absent.

use std::time::Instant;

use serde::Serialize;
use time::OffsetDateTime;

use super::{SimDialect, SimMode, gateway::Gateway, model::WorkerTask, sglang};

/// Header of every page of a simulated server, so that clients can tell it from a real one.
pub const SIMULATED_HEADER: &str = "x-simulated-by";

/// vLLM's list of models, shortened.
const VLLM_MODELS: &str =
    r#"{"object":"list","data":[{"id":"openbmb/MiniCPM-o-4_5","object":"model","owned_by":"vllm"}]}"#;

/// Answer to an HTTP request: status and JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpPage {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub json: String,
}

/// Body of `/status`, in the field order of `ServiceStatus` in `gateway_modules/models.py`.
#[derive(Debug, Serialize)]
struct ServiceStatus {
    gateway_healthy: bool,
    total_workers: usize,
    idle_workers: usize,
    busy_workers: usize,
    duplex_workers: usize,
    loading_workers: usize,
    error_workers: usize,
    offline_workers: usize,
    queue_length: usize,
    max_queue_size: usize,
    running_tasks: Vec<RunningTask>,
    /// Always null: this gateway does not know its back-end.
    backend: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct RunningTask {
    worker_id: String,
    request_type: &'static str,
    started_at: String,
    elapsed_s: f64,
    estimated_remaining_s: f64,
}

/// Body of `/health`.
#[derive(Debug, Serialize)]
struct Health {
    status: &'static str,
    timestamp: String,
}

impl Gateway {
    /// Handles an HTTP request that is no WebSocket handshake. The path is without its query.
    pub fn handle_http(&mut self, now: Instant, method: &str, path: &str) -> HttpPage {
        let id = path.strip_prefix("/sessions/").and_then(|rest| rest.strip_suffix("/close"));
        match (self.cfg.dialect, id) {
            (SimDialect::LlamaCppOmni, Some(id)) if method == "POST" => self.close_session(id, now),
            (SimDialect::LlamaCppOmni, _) if method == "GET" && ["/health", "/v1/health"].contains(&path) => {
                HttpPage { status: 200, json: "{\"status\":\"ok\"}".to_owned() }
            }
            (SimDialect::VllmOmni, _) if method == "GET" && path == "/health" => {
                HttpPage { status: 200, json: String::new() }
            }
            (SimDialect::VllmOmni, _) if method == "GET" && path == "/v1/models" => {
                HttpPage { status: 200, json: VLLM_MODELS.to_owned() }
            }
            (SimDialect::SglangOmni, _) if let Some(page) = sglang::pages::page(method, path) => page,
            (SimDialect::OpenaiRealtime(server), _) if let Some(page) = server.page(method, path) => page,
            (
                SimDialect::LlamaCppOmni
                | SimDialect::VllmOmni
                | SimDialect::SglangOmni
                | SimDialect::OpenaiRealtime(_),
                _,
            ) => error_page(404, "Not Found"),
            _ => self.http_page(now, method, path),
        }
    }

    /// Ends a session of llama.cpp-omni on request.
    fn close_session(&mut self, id: &str, now: Instant) -> HttpPage {
        if !self.end_session_by_id(id, now) {
            return HttpPage {
                status: 404,
                json: "{\"error\":{\"message\":\"session not found\"}}".to_owned(),
            };
        }
        HttpPage { status: 200, json: format!("{{\"closed\":true,\"ok\":true,\"session_id\":\"{id}\"}}") }
    }

    /// Answers a request for a page of the gateway.
    pub fn http_page(&self, now: Instant, method: &str, path: &str) -> HttpPage {
        let json = match path {
            "/health" => to_json(&Health { status: "healthy", timestamp: self.local_time(now) }),
            "/status" => to_json(&self.service_status(now)),
            _ => return error_page(404, "Not Found"),
        };
        if method == "GET" { HttpPage { status: 200, json } } else { error_page(405, "Method Not Allowed") }
    }

    fn service_status(&self, now: Instant) -> ServiceStatus {
        let tasks = || self.workers.iter().enumerate().filter_map(|(at, worker)| Some((at, worker.task?)));
        let (total_workers, idle_workers, queue_length) = self.worker_counts();
        ServiceStatus {
            gateway_healthy: true,
            total_workers,
            idle_workers,
            busy_workers: total_workers - idle_workers,
            duplex_workers: tasks().filter(|(_, task)| task.mode != SimMode::Chat).count(),
            loading_workers: 0,
            error_workers: 0,
            offline_workers: 0,
            queue_length,
            max_queue_size: self.cfg.queue_limit,
            running_tasks: tasks().map(|(at, task)| self.running_task(at, task, now)).collect(),
            backend: None,
        }
    }

    fn running_task(&self, worker: usize, task: WorkerTask, now: Instant) -> RunningTask {
        let elapsed_s = now.saturating_duration_since(task.started_at).as_secs_f64();
        let (request_type, estimate_s) = task_estimate(task.mode);
        RunningTask {
            worker_id: format!("worker_{worker}"),
            request_type,
            started_at: self.local_time(task.started_at),
            elapsed_s: round_to_tenth(elapsed_s),
            estimated_remaining_s: round_to_tenth((estimate_s - elapsed_s).max(0.0)),
        }
    }

    /// Estimated wait at this position of the queue, in seconds: each queued client gets the worker that is free first
    /// (`_recalc_positions_and_eta` in gateway_modules/worker_pool.py). It is 0.0 if no worker has a task.
    pub(super) fn estimated_wait_s(&self, position: usize, now: Instant) -> f64 {
        let tasks = self.workers.iter().filter_map(|worker| worker.task);
        let mut free_in: Vec<f64> = tasks.map(|task| seconds_left(task, now)).collect();
        let queued = self.queue.iter().filter_map(|conn| self.queued_mode(*conn));
        for mode in queued.take(position.saturating_sub(1)) {
            if let Some(first) = free_in.iter_mut().min_by(|one, other| one.total_cmp(other)) {
                *first += task_estimate(mode).1;
            }
        }
        free_in.into_iter().min_by(f64::total_cmp).map_or(0.0, |wait_s| round_to_tenth(wait_s.max(0.0)))
    }

    /// Python's `datetime.now().isoformat()` on a machine in UTC.
    fn local_time(&self, at: Instant) -> String {
        let unix_ms = (self.clock.unix_seconds(at) * 1000.0).round() as i128;
        let date = OffsetDateTime::from_unix_timestamp_nanos(unix_ms * 1_000_000)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (hour, minute, second, ms) = date.to_hms_milli();
        format!("{}T{hour:02}:{minute:02}:{second:02}.{ms:03}000", date.date())
    }
}

/// Name and expected duration of a task in seconds: the real gateway's first estimates (`EtaConfig`), which it adapts
/// later.
const fn task_estimate(mode: SimMode) -> (&'static str, f64) {
    match mode {
        SimMode::Chat | SimMode::Transcription | SimMode::Refused(_) => ("chat", 15.0),
        SimMode::Audio => ("audio_duplex", 120.0),
        SimMode::Video | SimMode::Autostart => ("omni_duplex", 90.0),
    }
}

/// Expected time until a task ends, in seconds. The gateway expects 15 s more of an overdue task.
fn seconds_left(task: WorkerTask, now: Instant) -> f64 {
    let left_s = task_estimate(task.mode).1 - now.saturating_duration_since(task.started_at).as_secs_f64();
    if left_s > 0.0 { left_s } else { 15.0 }
}

fn error_page(status: u16, detail: &str) -> HttpPage {
    HttpPage { status, json: format!("{{\"detail\":\"{detail}\"}}") }
}

/// Serialising to memory cannot fail: there are no maps, and the writer never errors.
fn to_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap_or_default()
}

fn round_to_tenth(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}
