//! Link between a session of the server and its transports. The server keeps a session for 30 s after its transport is gone,
//! and gives a new token to each transport (entrypoints/duplex/session_attachment.py).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::vocabulary::DisconnectReason;

/// Time for which the server keeps a session without a transport (`disconnect_grace_s`).
const GRACE: Duration = Duration::from_secs(30);

/// Wait before the second attempt to connect; it doubles up to the longest. Those of the server's own client.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// Normal closure (RFC 6455 §7.4.1): the server ended the session, or gave it to another client.
const NORMAL_CLOSURE: u16 = 1000;

/// State of the transport.
#[derive(Debug, Default)]
enum State {
    #[default]
    Up,
    /// Gone. Another attempt is due at `redial_at`, or in progress. `is_asked` if a new transport has the request to resume.
    Lost { since: Instant, wait: Duration, redial_at: Option<Instant>, is_asked: bool },
    /// The session is over.
    Over,
}

/// The session's id and token, and the state of its transport.
#[derive(Debug, Default)]
pub(super) struct Link {
    session_id: Option<Box<str>>,
    token: Option<Box<str>>,
    state: State,
}

impl Link {
    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// True if the session is over.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// True if no transport takes messages.
    pub(super) const fn is_cut(&self) -> bool {
        matches!(self.state, State::Lost { is_asked: false, .. })
    }

    pub(super) const fn has_session(&self) -> bool {
        self.session_id.is_some()
    }

    /// The server named the session of this transport, and its token. True if the session existed before.
    pub(super) fn attach(&mut self, session_id: Option<&str>, token: Option<&str>) -> bool {
        let continues = !self.is_up();
        self.session_id = session_id.map(Into::into);
        self.token = token.map(Into::into);
        self.state = State::Up;
        continues
    }

    /// The server can no longer resume the session.
    pub(super) fn forget_token(&mut self) {
        self.token = None;
    }

    /// The session is over.
    pub(super) fn close(&mut self) {
        self.state = State::Over;
    }

    /// The transport is gone, or another attempt failed. True if the codec resumes the session. A server that takes no
    /// connection has lost its sessions.
    pub(super) fn handle_lost(&mut self, now: Instant, reason: &DisconnectReason) -> bool {
        let was_ended = matches!(reason, DisconnectReason::Closed(NORMAL_CLOSURE, _));
        let is_server_gone =
            matches!(reason, DisconnectReason::Unreachable(_) | DisconnectReason::HttpRejected(_));
        match &mut self.state {
            State::Up if self.token.is_some() && !was_ended => {
                self.state =
                    State::Lost { since: now, wait: FIRST_WAIT, redial_at: Some(now), is_asked: false };
                true
            }
            State::Lost { since, wait, redial_at, is_asked } if now < *since + GRACE && !is_server_gone => {
                *redial_at = Some((now + *wait).min(*since + GRACE));
                *wait = (2 * *wait).min(LONGEST_WAIT);
                *is_asked = false;
                true
            }
            _ => {
                self.state = State::Over;
                false
            }
        }
    }

    /// The message that resumes the session on the new transport; `None` if there is no session to resume.
    pub(super) fn resume_message(&mut self, last_sequence: u64) -> Option<Value> {
        let State::Lost { is_asked, .. } = &mut self.state else { return None };
        *is_asked = true;
        Some(json!({
            "type": "session.resume", "session_id": self.session_id, "resume_token": self.token,
            "last_received_server_event_seq": last_sequence,
        }))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            // An attempt in progress may last for ever.
            State::Lost { since, redial_at, .. } => redial_at.or(Some(since + GRACE)),
            _ => None,
        }
    }

    /// True if an attempt to connect is due; it counts as begun.
    pub(super) fn take_due_redial(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Lost { since, redial_at, .. } if now < *since + GRACE => {
                redial_at.take_if(|at| *at <= now).is_some()
            }
            _ => false,
        }
    }

    /// The reason to give the session up, once the server does not keep it any longer.
    pub(super) fn take_given_up(&mut self, now: Instant) -> Option<DisconnectReason> {
        let State::Lost { since, redial_at, .. } = self.state else { return None };
        if now < since + GRACE || redial_at.is_some_and(|at| now < at) {
            return None;
        }
        self.state = State::Over;
        Some(DisconnectReason::Lost("the session could not be resumed in time".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_given_up_although_an_attempt_to_connect_never_ends() {
        let (mut link, now) = (Link::default(), tokio::time::Instant::now().into_std());
        link.attach(Some("session"), Some("token"));
        assert!(link.handle_lost(now, &DisconnectReason::Lost("reset".to_owned())));
        assert!(link.is_cut() && link.take_due_redial(now), "the attempt begins");
        assert_eq!(link.deadline(), Some(now + GRACE));
        assert_eq!(link.take_given_up(now + GRACE / 2), None);
        assert!(link.take_given_up(now + GRACE).is_some());
        assert_eq!((link.deadline(), link.take_given_up(now + GRACE)), (None, None));
    }

    #[test]
    fn server_that_takes_no_connection_has_lost_the_session() {
        let now = tokio::time::Instant::now().into_std();
        let broken = || DisconnectReason::Lost("reset".to_owned());
        for (reason, resumes) in [
            (DisconnectReason::Unreachable("connection refused".to_owned()), false),
            (DisconnectReason::HttpRejected(502), false),
            (DisconnectReason::HttpRejected(503), false),
            (DisconnectReason::Closed(1012, "restart".to_owned()), true),
            (broken(), true),
        ] {
            let mut link = Link::default();
            link.attach(Some("session"), Some("token"));
            assert!(link.handle_lost(now, &broken()) && link.take_due_redial(now), "{reason}");
            assert_eq!(link.handle_lost(now, &reason), resumes, "{reason}");
            assert_eq!((link.deadline().is_some(), link.is_over()), (resumes, !resumes), "{reason}");
        }
    }
}
