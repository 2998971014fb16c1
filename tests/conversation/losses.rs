//! Upstream sessions that are lost: when a conversation goes on in spite of it, and when it does not.

use voxbridge::{event::RolloverReason, mapping::Library, session::Observation, simulator::Backend};

use super::{
    sanity,
    support::{Talk, config, secs, with_rules},
};

fn rolled_over(talk: &Talk, wanted: RolloverReason) -> bool {
    let is = |observed: &Observation| matches!(observed, Observation::RolledOver { reason, .. } if *reason == wanted);
    talk.pair.observed.iter().any(is)
}

#[test]
fn a_loss_is_forgotten_once_another_session_has_served() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let mut config = config(backend, &[]);
        config.library = with_rules(
            Library::embedded().unwrap(),
            &[("soft_before_ms = 50000", "soft_before_ms = 500000")],
        );
        let mut talk = Talk::new(config);
        talk.ask();
        talk.pair.break_lanes();
        // A good while later the next session takes over, and is lost at once.
        while !rolled_over(&talk, RolloverReason::Time) {
            talk.quiet(500);
            assert!(talk.pair.now() < secs(200), "{:?}", talk.pair.names());
        }
        talk.quiet(2000);
        talk.pair.break_lanes();
        talk.ask();
        assert_eq!(talk.pair.events("error").len(), 2, "{:?}", talk.pair.names());
        assert!(talk.pair.events("error").iter().all(|error| error["recoverable"] == true));
        assert_eq!(sanity::problems(&talk.pair), [""; 0]);
    }
}

#[test]
fn the_order_to_stop_does_not_wait_until_a_model_is_ready() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let mut talk = Talk::new(config(backend, &["slow-init=40"]));
        talk.quiet(1000);
        talk.pair.drain();
        assert_eq!(talk.pair.events("session.closed")[0]["reason"], "server_shutdown");
        talk.wait(secs(11));
        assert!(talk.pair.finished, "it waits for a worker that nobody needs");
        assert_eq!(sanity::problems(&talk.pair), [""; 0]);
    }
}

#[test]
fn an_upstream_that_takes_everybody_and_never_answers_is_given_up() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let mut talk = Talk::new(config(backend, &["never-answers"]));
        while !talk.pair.closed() {
            talk.pair.stream(&[1; 16_000], 100);
            assert!(talk.pair.now() < secs(120), "{:?}", talk.pair.names());
        }
        assert!(talk.pair.now() > secs(60), "{:?}", talk.pair.now());
        assert_eq!(talk.pair.events("session.closed")[0]["reason"], "upstream_lost");
        assert_eq!(sanity::problems(&talk.pair), [""; 0]);
    }
}
