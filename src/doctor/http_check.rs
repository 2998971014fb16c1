//! Check of an upstream that is reached by HTTP: one silent second is transcribed, as a session would have it done.

use std::{future::poll_fn, time::Duration};

use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::Message as WsMessage;

use super::{
    session_check::CheckPlan,
    session_driver::now,
    step::{CheckOutcome, DoctorStep},
    symptom::Symptom,
};
use crate::{
    server::upstream_pool::http_socket::{HttpEvent, HttpSocket},
    upstream::lane::{CodecAction, LaneCodec},
    vocabulary::{Frame, LaneEvent, LanePurpose},
};

/// Sends the plan's question, and waits for its answer.
pub(super) async fn ask(mut socket: HttpSocket, plan: &CheckPlan, limit: Duration) -> CheckOutcome {
    let start = Instant::now();
    let mut codec = LaneCodec::new(plan.dialect.clone(), plan.mode, LanePurpose::Speak);
    codec.encode(now(), plan.question.clone(), |_| {});
    let mut is_done = false;
    loop {
        while let Some(action) = codec.pop_action() {
            match action {
                CodecAction::Request(request) => socket.send(request),
                CodecAction::Event(LaneEvent::Closed(end)) => {
                    let symptom = Symptom::SessionEnded {
                        detail: end.detail,
                        kind: end.kind,
                        code: None,
                        had_voice: false,
                    };
                    return CheckOutcome::failed(DoctorStep::Answer, start.elapsed(), symptom);
                }
                _ => {}
            }
        }
        if is_done {
            return CheckOutcome::completed(
                DoctorStep::Answer,
                start.elapsed(),
                Duration::MAX,
                "one silent second".to_owned(),
            );
        }
        let Ok(event) = timeout_at(start + limit, poll_fn(|cx| socket.poll_event(cx))).await else {
            let symptom = Symptom::NoAnswer { waited: limit };
            return CheckOutcome::failed(DoctorStep::Answer, start.elapsed(), symptom);
        };
        let mut note = |event: LaneEvent<'_>| is_done |= matches!(event, LaneEvent::Done { .. });
        match event {
            HttpEvent::Part(part) => codec.handle_answer(part, |event, _| note(event)),
            HttpEvent::Message(WsMessage::Text(text)) => {
                codec.decode(now(), Frame::Text(&text), |event, _| note(event));
            }
            HttpEvent::Message(_) => {}
            HttpEvent::Broken(reason) => {
                let symptom = Symptom::Disconnected(reason);
                return CheckOutcome::failed(DoctorStep::Answer, start.elapsed(), symptom);
            }
        }
    }
}
