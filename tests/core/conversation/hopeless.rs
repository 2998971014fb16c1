//! How conversations end that cannot go on: nobody answers, or voxbridge stops.

use super::flavour::Flavour;

use super::{
    sanity,
    support::{Talk, config, secs},
};

#[test]
fn the_order_to_stop_does_not_wait_until_a_model_is_ready() {
    for backend in Flavour::ALL {
        let mut talk = Talk::new(config(backend, &["slow-init=40"]));
        talk.quiet(1000);
        talk.pair.drain();
        assert_eq!(talk.pair.events("session.closed")[0]["reason"], "server_shutdown");
        // Ten seconds, and three for a goodbye: less than a server that stops waits for its sessions.
        talk.wait(secs(14));
        assert!(talk.pair.finished, "it waits for a worker that nobody needs");
        assert_eq!(sanity::problems(&talk.pair), [""; 0]);
    }
}

#[test]
fn an_upstream_that_takes_everybody_and_never_answers_is_given_up() {
    for backend in Flavour::ALL {
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
