//! Report of a run, as a table and as JSON.

use serde_json::{Value, json};

use crate::{
    options::{BridgeKind, ClientKind},
    run::Outcome,
    sample_tracker::SampleCounts,
    statistics::{Histogram, Tally},
};

/// Above this lateness, ms, the generator no longer simulates real clients.
const MAX_LATENESS_MS: f64 = 5.0;

impl Outcome {
    /// True if the generator kept its schedule.
    pub(crate) fn is_valid(&self) -> bool {
        self.tally.send_lateness.quantile_ms(0.99) <= MAX_LATENESS_MS
    }

    fn session_seconds(&self) -> f64 {
        (self.options.sessions.max(1) as f64) * self.seconds
    }

    /// CPU time per session and second, µs: total, user, system.
    pub(crate) fn cpu_us_per_session_second(&self) -> (f64, f64, f64) {
        let each = 1e6 / self.session_seconds();
        (
            self.while_measured.cpu_s * each,
            self.while_measured.user_s * each,
            self.while_measured.system_s * each,
        )
    }

    fn kib_per_session(&self, now: f64) -> f64 {
        (now - self.at_rest.resident_kib) / self.options.sessions.max(1) as f64
    }

    /// Builds the JSON report.
    pub(crate) fn to_json(&self) -> Value {
        let (cpu, user, system) = self.cpu_us_per_session_second();
        let known = |value: Value| if self.cost_is_known { value } else { Value::Null };
        let each = |count: f64| count / self.session_seconds();
        let (options, tally) = (&self.options, &self.tally);
        json!({
            "path": if options.path == BridgeKind::Relay { "relay" } else { "bridge" },
            "client": if options.client == ClientKind::Macaw { "macaw" } else { "openai-realtime" },
            "profile": options.profile, "sessions": options.sessions, "seconds": self.seconds,
            "rate": options.rate, "frame_ms": options.frame_ms, "speech": options.speech,
            "frames_only": options.frames_only, "mostly_idle": options.mostly_idle, "churn": options.churn,
            "spoil": options.spoil, "workers": options.workers,
            "valid": self.is_valid(), "clean": tally.is_clean(),
            "cpu": known(json!({
                "us_per_session_second": cpu, "user": user, "system": system,
                "cores": self.while_measured.cpu_s / self.seconds,
                "us_per_opened": cpu_us_per_open(self),
            })),
            "switches_per_session_second": known(json!({
                "voluntary": each(self.while_measured.voluntary_switches), "involuntary": each(self.while_measured.involuntary_switches),
            })),
            "memory_kib": known(json!({
                "at_rest": self.at_rest.resident_kib, "per_idle_session": self.kib_per_session(self.when_idle.resident_kib),
                "per_active_session": self.kib_per_session(self.while_measured.resident_kib),
                "per_active_session_peak": self.kib_per_session(self.while_measured.peak_kib),
                "threads": self.while_measured.threads, "files": self.while_measured.files,
            })),
            "latency_ms": {
                "up": latency_json(&tally.up_latency), "up_beyond": latency_json(&tally.up_excess_latency), "down": latency_json(&tally.down_latency),
                "turn": latency_json(&tally.turn_start_latency), "answer": latency_json(&tally.answer_latency), "opened": latency_json(&tally.open_latency),
            },
            "samples": {"up": counts_json(&tally.up_samples), "down": counts_json(&tally.down_samples)},
            "units": {"heard": tally.units, "skimmed": tally.units_spot_checked, "strange": tally.unidentified_units, "filled_samples": tally.silence_samples},
            "utterances": tally.utterances, "transcripts": tally.transcripts,
            "interrupted_turns": tally.interrupted_turns,
            "errors": tally.errors, "last_error": tally.last_error,
            "closed_early": tally.closed_early, "failed_opens": tally.failed_opens,
            "generator": {
                "frames": tally.frames, "late_frames": tally.late_frames, "blocked_frames": tally.blocked_frames,
                "late_ms": latency_json(&tally.send_lateness),
                "cores": self.generator.cpu_s / self.seconds,
                "user": self.generator.user_s * 1e6 / self.session_seconds(),
                "system": self.generator.system_s * 1e6 / self.session_seconds(),
            },
        })
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let options = &self.options;
        println!(
            "{} sessions of {}, {:.1} s of {} Hz in {} ms frames, speech {:.0} %",
            options.sessions,
            if options.path == BridgeKind::Relay { "a relay" } else { &options.profile },
            self.seconds,
            options.rate,
            options.frame_ms,
            options.speech * 100.0
        );
        if self.cost_is_known {
            self.print_cost();
        }
        let tally = &self.tally;
        for (name, histogram) in [
            ("up", &tally.up_latency),
            ("  beyond", &tally.up_excess_latency),
            ("down", &tally.down_latency),
            ("turns", &tally.turn_start_latency),
            ("answers", &tally.answer_latency),
            ("opened", &tally.open_latency),
        ] {
            print_latency(name, histogram);
        }
        print_counts("up", &tally.up_samples);
        print_counts("down", &tally.down_samples);
        self.print_details(tally);
    }

    fn print_cost(&self) {
        let (cpu, user, system) = self.cpu_us_per_session_second();
        let each = |count: f64| count / self.session_seconds();
        println!(
            "  cpu       {cpu:.0} us per session-second ({user:.0} user, {system:.0} system), {:.2} cores",
            self.while_measured.cpu_s / self.seconds
        );
        println!(
            "  switches  {:.1} voluntary, {:.1} involuntary per session-second",
            each(self.while_measured.voluntary_switches),
            each(self.while_measured.involuntary_switches)
        );
        println!(
            "  memory    {:.0} KiB at rest; per session {:.1} KiB idle, {:.1} active at the end, {:.1} at the peak",
            self.at_rest.resident_kib,
            self.kib_per_session(self.when_idle.resident_kib),
            self.kib_per_session(self.while_measured.resident_kib),
            self.kib_per_session(self.while_measured.peak_kib)
        );
    }

    fn print_details(&self, tally: &Tally) {
        println!(
            "  sessions  {} errors, {} closed early, {} not opened, {} turns interrupted, {} transcripts of {} utterances",
            tally.errors,
            tally.closed_early,
            tally.failed_opens,
            tally.interrupted_turns,
            tally.transcripts,
            tally.utterances
        );
        if !tally.last_error.is_empty() {
            println!("            the first error: {}", tally.last_error);
        }
        let share = 100 - 100 * tally.units_spot_checked / tally.units.max(1);
        println!(
            "  proof     {} units, {share} % looked at from end to end (the others at 8 places), {} of nobody known, {} samples of silence between",
            tally.units, tally.unidentified_units, tally.silence_samples
        );
        println!(
            "  generator {:.2} cores; frames late by p99 {:.2} ms, at most {:.2} ms; {} of {} by more than half a frame; {} not taken at once",
            self.generator.cpu_s / self.seconds,
            tally.send_lateness.quantile_ms(0.99),
            tally.send_lateness.max_ms(),
            tally.late_frames,
            tally.frames,
            tally.blocked_frames
        );
        if tally.unidentified_units > 0 {
            println!("  the upstream received unknown audio: does the bridge delay its audio (--lag)?");
        }
        if !self.is_valid() {
            println!("  the generator was late: the figures are invalid");
        }
    }
}

/// CPU time per additional session opened and closed, µs.
fn cpu_us_per_open(outcome: &Outcome) -> Option<f64> {
    let opened = outcome.tally.open_latency.total();
    (opened > 0)
        .then(|| (outcome.while_measured.user_s + outcome.while_measured.system_s) * 1e6 / opened as f64)
}

fn latency_json(histogram: &Histogram) -> Value {
    if histogram.total() == 0 {
        return Value::Null;
    }
    json!({
        "p50": histogram.quantile_ms(0.5), "p99": histogram.quantile_ms(0.99),
        "p999": histogram.quantile_ms(0.999), "max": histogram.max_ms(), "count": histogram.total(),
    })
}

fn counts_json(counts: &SampleCounts) -> Value {
    json!({
        "sent": counts.sent, "received": counts.received, "lost": counts.lost, "duplicated": counts.duplicated,
        "reordered": counts.reordered, "unrecognised": counts.unrecognised, "tail": counts.tail,
    })
}

fn print_latency(name: &str, histogram: &Histogram) {
    if histogram.total() > 0 {
        println!(
            "  {name:<9} p50 {:.3} ms, p99 {:.3}, p99.9 {:.3}, max {:.3} ({} seen)",
            histogram.quantile_ms(0.5),
            histogram.quantile_ms(0.99),
            histogram.quantile_ms(0.999),
            histogram.max_ms(),
            histogram.total()
        );
    }
}

fn print_counts(name: &str, counts: &SampleCounts) {
    if counts.sent > 0 {
        println!(
            "  {name:<9} {} samples: {} lost, {} duplicated, {} reordered, {} unrecognised; {} under way at the end",
            counts.sent, counts.lost, counts.duplicated, counts.reordered, counts.unrecognised, counts.tail
        );
    }
}
