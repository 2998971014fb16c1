//! What came of a run, as a table and as JSON.

use serde_json::{Value, json};

use crate::{
    figures::{Histogram, Tally},
    options::Way,
    run::Outcome,
    track::Counts,
};

/// A generator that is later than this is no real client any more, ms.
const LATE_MS: f64 = 5.0;

impl Outcome {
    /// Whether the generator kept its own times.
    pub(crate) fn is_valid(&self) -> bool {
        self.tally.lateness.quantile_ms(0.99) <= LATE_MS
    }

    fn session_seconds(&self) -> f64 {
        (self.options.sessions.max(1) as f64) * self.seconds
    }

    /// µs of CPU per session and second: all, user, system.
    pub(crate) fn micros(&self) -> (f64, f64, f64) {
        let each = 1e6 / self.session_seconds();
        (self.active.cpu * each, self.active.user * each, self.active.system * each)
    }

    fn kib(&self, now: f64) -> f64 {
        (now - self.rest.resident) / self.options.sessions.max(1) as f64
    }

    /// All of it.
    pub(crate) fn json(&self) -> Value {
        let (cpu, user, system) = self.micros();
        let known = |value: Value| if self.cost_is_known { value } else { Value::Null };
        let each = |count: f64| count / self.session_seconds();
        let (options, tally) = (&self.options, &self.tally);
        json!({
            "path": if options.path == Way::Relay { "relay" } else { "macaw" },
            "profile": options.profile, "sessions": options.sessions, "seconds": self.seconds,
            "rate": options.rate, "frame_ms": options.frame_ms, "speech": options.speech,
            "frames_only": options.frames_only, "mostly_idle": options.mostly_idle, "churn": options.churn,
            "spoil": options.spoil, "workers": options.workers,
            "valid": self.is_valid(), "clean": tally.clean(),
            "cpu": known(json!({
                "us_per_session_second": cpu, "user": user, "system": system,
                "cores": self.active.cpu / self.seconds,
                "us_per_opened": opened_each(self),
            })),
            "switches_per_session_second": known(json!({
                "voluntary": each(self.active.voluntary), "involuntary": each(self.active.involuntary),
            })),
            "memory_kib": known(json!({
                "at_rest": self.rest.resident, "per_idle_session": self.kib(self.idle.resident),
                "per_active_session": self.kib(self.active.resident),
                "per_active_session_peak": self.kib(self.active.peak),
                "threads": self.active.threads, "files": self.active.files,
            })),
            "latency_ms": {
                "up": latency(&tally.up), "up_beyond": latency(&tally.up_beyond), "down": latency(&tally.down),
                "turn": latency(&tally.turn), "opened": latency(&tally.opened),
            },
            "samples": {"up": counts(&tally.up_samples), "down": counts(&tally.down_samples)},
            "units": {"heard": tally.units, "skimmed": tally.units_skimmed, "strange": tally.strange, "filled_samples": tally.filled},
            "utterances": tally.utterances, "transcripts": tally.transcripts,
            "interrupted_turns": tally.interrupted_turns,
            "errors": tally.errors, "last_error": tally.last_error,
            "closed_early": tally.closed_early, "failed_opens": tally.failed_opens,
            "generator": {
                "frames": tally.frames, "late_frames": tally.late_frames, "blocked_frames": tally.blocked_frames,
                "late_ms": latency(&tally.lateness),
                "cores": self.own.cpu / self.seconds,
                "user": self.own.user * 1e6 / self.session_seconds(),
                "system": self.own.system * 1e6 / self.session_seconds(),
            },
        })
    }

    /// The table.
    pub(crate) fn print(&self) {
        let options = &self.options;
        println!(
            "{} sessions of {}, {:.1} s of {} Hz in {} ms frames, speech {:.0} %",
            options.sessions,
            if options.path == Way::Relay { "a relay" } else { &options.profile },
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
            ("up", &tally.up),
            ("  beyond", &tally.up_beyond),
            ("down", &tally.down),
            ("turns", &tally.turn),
            ("opened", &tally.opened),
        ] {
            print_latency(name, histogram);
        }
        print_counts("up", &tally.up_samples);
        print_counts("down", &tally.down_samples);
        self.print_rest(tally);
    }

    fn print_cost(&self) {
        let (cpu, user, system) = self.micros();
        let each = |count: f64| count / self.session_seconds();
        println!(
            "  cpu       {cpu:.0} us per session-second ({user:.0} user, {system:.0} system), {:.2} cores",
            self.active.cpu / self.seconds
        );
        println!(
            "  switches  {:.1} voluntary, {:.1} involuntary per session-second",
            each(self.active.voluntary),
            each(self.active.involuntary)
        );
        println!(
            "  memory    {:.0} KiB at rest; per session {:.1} KiB idle, {:.1} active at the end, {:.1} at the peak",
            self.rest.resident,
            self.kib(self.idle.resident),
            self.kib(self.active.resident),
            self.kib(self.active.peak)
        );
    }

    fn print_rest(&self, tally: &Tally) {
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
        let share = 100 - 100 * tally.units_skimmed / tally.units.max(1);
        println!(
            "  proof     {} units, {share} % looked at from end to end (the others at 8 places), {} of nobody known, {} samples of silence between",
            tally.units, tally.strange, tally.filled
        );
        println!(
            "  generator {:.2} cores; frames late by p99 {:.2} ms, at most {:.2} ms; {} of {} by more than half a frame; {} not taken at once",
            self.own.cpu / self.seconds,
            tally.lateness.quantile_ms(0.99),
            tally.lateness.max_ms(),
            tally.late_frames,
            tally.frames,
            tally.blocked_frames
        );
        if tally.strange > 0 {
            println!("  the upstream heard what nobody sent: does the bridge delay its audio (--lag)?");
        }
        if !self.is_valid() {
            println!("  the generator was late: figures are not valid");
        }
    }
}

/// µs for each session that was opened and closed besides.
fn opened_each(outcome: &Outcome) -> Option<f64> {
    let opened = outcome.tally.opened.total();
    (opened > 0).then(|| (outcome.active.user + outcome.active.system) * 1e6 / opened as f64)
}

fn latency(histogram: &Histogram) -> Value {
    if histogram.total() == 0 {
        return Value::Null;
    }
    json!({
        "p50": histogram.quantile_ms(0.5), "p99": histogram.quantile_ms(0.99),
        "p999": histogram.quantile_ms(0.999), "max": histogram.max_ms(), "count": histogram.total(),
    })
}

fn counts(counts: &Counts) -> Value {
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

fn print_counts(name: &str, counts: &Counts) {
    if counts.sent > 0 {
        println!(
            "  {name:<9} {} samples: {} lost, {} duplicated, {} reordered, {} unrecognised; {} under way at the end",
            counts.sent, counts.lost, counts.duplicated, counts.reordered, counts.unrecognised, counts.tail
        );
    }
}
