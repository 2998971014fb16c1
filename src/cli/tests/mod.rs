//! The client commands against a scripted Macaw server in this process. Time is real and short: sockets know no
//! other.

mod connecting;
mod fake;
mod speaking;
mod talking;
mod transcribing;

use std::time::Duration;

use super::client::{Target, Timing};

/// Forty times as fast as real time.
fn quick() -> Timing {
    let ms = Duration::from_millis;
    Timing {
        frame: ms(1),
        quiet: ms(100),
        late: ms(1000),
        stall: ms(1000),
        answer: ms(1000),
        keep_alive: ms(30),
        created: ms(1000),
        close: ms(1000),
    }
}

fn target(url: &str) -> Target {
    Target { url: url.to_owned(), model: None, language: None, key: None }
}
