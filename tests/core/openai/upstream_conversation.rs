//! Conversations on servers of OpenAI's Realtime API, which decide when the user's turn is over: sessions that expire, and servers
//! that are stuck.

use super::*;

fn conversation(kind: RealtimeServer, faults: &[&str]) -> HarnessConfig {
    let config = HarnessConfig { profile: "conversation", ..config("model=gpt-realtime") };
    config.realtime(kind).faults(faults)
}

/// The user says something, and listens for so long.
fn say(client: &mut Realtime, listens_ms: usize) {
    client.say(&speech());
    client.say_silence(listens_ms);
}

fn answers(client: &Realtime) -> usize {
    client.of_type("response.done").iter().filter(|done| done["response"]["status"] == "completed").count()
}

#[test]
fn session_is_replaced_with_its_history_before_it_expires() {
    for kind in BOTH {
        let mut config = conversation(kind, &["timeout=120"]);
        let shorter = [("audio = 3600000", "audio = 120000")];
        config.change_file(MappingKind::Upstream, "openai-realtime", &shorter);
        let mut client = Realtime::with_config(config);
        for _ in 0..15 {
            say(&mut client, 9000);
        }
        let seen = &client.harness.observations;
        let reasons: Vec<RolloverReason> = seen
            .iter()
            .filter_map(
                |seen| if let Observation::RolledOver { reason, .. } = seen { Some(*reason) } else { None },
            )
            .collect();
        assert_eq!(reasons, [RolloverReason::TimeLimit; 2], "{kind:?}");
        assert_eq!(answers(&client), 15, "{kind:?}: {:?}", client.types());
        assert!(client.of_type("error").is_empty(), "{kind:?}");
        let openings = client.harness.sent_containing("The conversation so far").len();
        assert_eq!(openings, 2, "{kind:?}: the next session knows the conversation");
        client.check();
    }
}

#[test]
fn conversation_goes_on_in_another_session_if_its_own_ends_or_is_stuck() {
    for (kind, fault, told) in [
        (RealtimeServer::Openai, "timeout=14,times=1", "session_expired"),
        (RealtimeServer::VllmOmni, "timeout=14,times=1", "1012"),
        (RealtimeServer::Openai, "never-answers,times=1", "no output for 15 s"),
        (RealtimeServer::VllmOmni, "never-answers,times=1", "no output for 15 s"),
    ] {
        let mut client = Realtime::with_config(conversation(kind, &[fault]));
        for _ in 0..3 {
            say(&mut client, 20_000);
        }
        let errors = client.of_type("error");
        assert_eq!(errors.len(), 1, "{kind:?} {fault}: {errors:?}");
        assert!(errors[0]["error"]["message"].to_string().contains(told), "{kind:?} {fault}: {errors:?}");
        assert!(answers(&client) >= 2, "{kind:?} {fault}: {:?}", client.types());
        client.pass(1000 * MS);
        let before = answers(&client);
        say(&mut client, 9000);
        assert_eq!(answers(&client), before + 1, "{kind:?} {fault}: {:?}", client.types());
        client.check();
    }
}

#[test]
fn speech_that_interrupts_an_answer_is_one_turn_for_the_server() {
    for kind in BOTH {
        for listens_ms in [2600, 2850, 3100, 3350] {
            let mut config = conversation(kind, &[]);
            config.simulator.timing.speech_second = 1000 * MS;
            let mut client = Realtime::with_config(config);
            say(&mut client, listens_ms);
            assert_eq!(answers(&client), 0, "{kind:?} {listens_ms}: the model still speaks");
            say(&mut client, 9000);
            let is_end = |(_, traffic): &&(_, Traffic)| matches!(traffic, Traffic::Received(_, text) if text.contains("speech_stopped"));
            let turns = client.harness.traffic.iter().filter(is_end).count();
            assert_eq!(turns, 2, "{kind:?} {listens_ms}: {:?}", client.types());
            client.check();
        }
    }
}
