//! Messages that a client should not send: the protocol's own error or close frame answers them, or nothing does, and the session
//! goes on.

use voxbridge::spelling::client::{CommandSyntax, ExactMessage, Framing};

use super::{play::*, words::say_words, *};

/// The error of a message that a session of this case refuses.
fn refusal(case: &Case, messages: &[Message], message: &Message) -> Option<Error> {
    let mut codec = Codec::new(case.client.clone(), 0.0);
    let _settings = codec.decode_query(&case.mapped_client().query());
    let mut read = |message: &Message| match message {
        Message::Text(text) => codec.decode(Frame::Text(text), |_| ()),
        Message::Binary(bytes) => codec.decode(Frame::Binary(bytes), |_| ()),
        Message::Close(..) => Ok(()),
    };
    for message in messages {
        let _taken = read(message);
    }
    read(message).err()
}

/// Messages that are wrong in most protocols, with a name.
fn odd_messages(case: &Case) -> Vec<(&'static str, Vec<Message>)> {
    let mut client = case.mapped_client();
    let key = case.client.command_key.trim_start_matches('/').to_owned();
    let unknown = match case.client.command_syntax {
        CommandSyntax::Words => "NO_SUCH_COMMAND".to_owned(),
        CommandSyntax::Json if key.is_empty() => json!({"no such key": 1}).to_string(),
        CommandSyntax::Json => json!({key: "no such command"}).to_string(),
    };
    let mut odd = vec![
        ("an unknown command", vec![Message::Text(unknown)]),
        ("a text that is not JSON", vec![Message::Text("{\"type\": \"half".to_owned())]),
        ("JSON without members", vec![Message::Text("{}".to_owned())]),
        ("a list", vec![Message::Text("[1, 2]".to_owned())]),
    ];
    let is_command =
        |message: ExactMessage| case.client.commands.iter().any(|it| it.exactly.as_ref() == Some(&message));
    if !is_command(ExactMessage::Text(String::new())) {
        odd.push(("an empty text", vec![Message::Text(String::new())]));
    }
    let ends_by_no_bytes = is_command(ExactMessage::Binary(String::new()));
    if !ends_by_no_bytes {
        odd.push(("an empty frame", vec![Message::Binary(Bytes::new())]));
    }
    if client.sends_audio() && case.client.framing != Framing::Announced {
        if !ends_by_no_bytes {
            odd.push(("audio of no bytes", client.audio_messages(&Bytes::new())));
        }
        // They are halves of samples, and complete each other.
        let byte = Bytes::from_static(&[0]);
        odd.push(("an odd byte", [client.audio_messages(&byte), client.audio_messages(&byte)].concat()));
    }
    if case.client.has_audio_in_json {
        let base64 = STANDARD.encode([0; 7]);
        let bad = client.audio_messages(&Bytes::from_static(&[0; 7]));
        let spoil = |message: &Message| match message {
            Message::Text(text) => Message::Text(text.replace(&base64, "%%%")),
            other => other.clone(),
        };
        odd.push(("audio that is not base64", bad.iter().map(spoil).collect()));
        if !case.client.takes_binary_audio {
            odd.push(("a binary frame", vec![Message::Binary(Bytes::from_static(&[1, 2, 3]))]));
        }
    }
    odd
}

#[test]
fn odd_messages_are_refused_in_the_protocols_own_form_and_change_nothing() {
    run(case::on_usual_server().filter(Case::has_default_profile), |checks| {
        let case = checks.case.clone();
        for (name, messages) in odd_messages(&case) {
            let mut play = Play::open(&case);
            let opening = case.mapped_client().opening();
            let refused: Vec<Error> =
                messages.iter().filter_map(|message| refusal(&case, &opening, message)).collect();
            play.set_mark();
            play.send_all(&messages);
            play.wait(secs(1));
            check_told(checks, &play, name, refused.first());
        }
        check_goes_on(checks);
    });
}

/// Checks that an error has reached the client as the protocol spells it.
fn check_told(checks: &mut Checks<'_>, play: &Play, name: &str, error: Option<&Error>) {
    let reading = play.reading();
    let Some(error) = error else {
        return checks.that(&format!("{name} is taken"), !play.is_over(), || play.story());
    };
    let spelling = play.mapping().error(error.kind);
    let ends = spelling.is_some_and(|it| it.close.is_some());
    let holds = match (ends, play.close()) {
        (true, Some((code, _))) => reading.is_close_of(code, error),
        (true, None) | (false, Some(_)) => false,
        (false, None) => {
            !reading.spells(error) || play.json().iter().any(|json| reading.is_error(json, error))
        }
    };
    checks.that(&format!("{name} is refused"), holds, || format!("{error}; {}", play.story()));
}

/// All odd messages in one session that do not end it; then the client's words are heard, and its texts spoken.
fn check_goes_on(checks: &mut Checks<'_>) {
    let case = checks.case.clone();
    let mut play = Play::open(&case);
    let opening = case.mapped_client().opening();
    let ends = |kind: ErrorKind| case.client.error(kind).is_some_and(|it| it.close.is_some());
    for (_, messages) in odd_messages(&case) {
        let refused = messages.iter().filter_map(|message| refusal(&case, &opening, message));
        if refused.into_iter().all(|error| !ends(error.kind)) {
            play.send_all(&messages);
        }
    }
    play.wait(secs(1));
    checks.that("odd messages end no session", !play.is_over(), || play.story());
    if play.client.sends_audio() && play.client.gets_user_words() && !case.converses() {
        say_words(checks, &mut play, "turn after odd messages", first_words());
    }
    if let Some(request) = Request::of(&case) {
        request.make(&mut play, "This text comes after odd messages.");
        wait_for_silence(&mut play);
        let heard_s = play.heard_s();
        checks
            .that("speech after odd messages", heard_s > 0.9, || format!("{heard_s:.3} s; {}", play.story()));
    }
}
