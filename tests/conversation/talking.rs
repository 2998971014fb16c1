//! A question is asked and answered.

use std::time::Duration;

use voxbridge::simulator::Backend;

use super::pair::{Pair, PairConfig, recording, zeros};

fn talk(backend: Backend, profile: &'static str) -> Pair {
    let mut config = PairConfig { profile, ..PairConfig::default() };
    config.simulator.backend = backend;
    Pair::new(config)
}

#[test]
fn smoke() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let mut pair = talk(backend, "conversation");
        pair.stream(&zeros(4000), 20);
        pair.stream(&recording("goforward_16k.wav"), 20);
        pair.stream(&zeros(9000), 20);
        for (at, seen) in &pair.log {
            match seen {
                super::pair::Seen::Binary(bytes) => {
                    println!("{:>8.3} binary {}", at.as_secs_f64(), bytes.len());
                }
                other => println!("{:>8.3} {other:?}", at.as_secs_f64()),
            }
        }
        println!("{:?}", pair.observed);
        println!("{} units", pair.units.len());
        pair.advance(Duration::from_secs(1));
    }
}
