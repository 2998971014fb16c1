//! Tests of the client commands against a scripted Macaw server in this process. Sockets need real time, so the timeouts are
//! short.

mod connecting;
mod fake;
mod speaking;
mod talking;
mod transcribing;
mod uploading;

use std::time::Duration;

use super::{ClientTiming, ServerTarget};

/// Timing for tests, forty times as fast as real time.
fn quick_timing() -> ClientTiming {
    let ms = Duration::from_millis;
    ClientTiming {
        frame_interval: ms(1),
        quiet_timeout: ms(100),
        late_transcript_timeout: ms(1000),
        stall_timeout: ms(1000),
        transcript_only_timeout: ms(200),
        unanswered_timeout: ms(300),
        answer_timeout: ms(1000),
        keep_alive_interval: ms(30),
        created_timeout: ms(1000),
        close_timeout: ms(1000),
    }
}

fn target(url: &str) -> ServerTarget {
    ServerTarget { url: url.to_owned(), ..ServerTarget::default() }
}
