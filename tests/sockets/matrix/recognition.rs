//! Which protocol a connection speaks, and which server it is led to.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::{
    config::{Config, UpstreamConfig},
    simulator::socket::Recorder,
};

use super::{
    bench::{Bench, Client, Seen, quick, recording, simulate, upstream_at},
    relayed::{Tongue, assert_close},
    servers::SERVERS,
};

/// Who the bridge takes a client for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Macaw, with a model.
    Macaw,
    /// Macaw, without a model: its own error.
    NobodysMacaw,
    Relayed(Tongue),
}

/// What the bridge says first tells who it speaks with.
async fn taken(mut client: Client) -> Taken {
    loop {
        match client.next().await {
            Seen::Event(event) if event["type"] == "session.queue_done" => {}
            Seen::Event(event) if event["type"] == "session.created" => return by_created(&event),
            Seen::Event(event) if event["type"] == "error" => {
                assert_eq!(event["message"], "Query parameter 'model' is required");
                client.rest().await;
                assert_close(&client, 1008);
                return Taken::NobodysMacaw;
            }
            other => panic!("nobody says {other:?}"),
        }
    }
}

fn by_created(event: &Value) -> Taken {
    match (event.get("config"), event.get("prompt_length"), event.get("mode")) {
        (Some(_), None, None) => Taken::Macaw,
        (None, Some(_), None) => Taken::Relayed(Tongue::Older),
        (None, None, Some(_)) => Taken::Relayed(Tongue::Current),
        _ => panic!("nobody's: {event}"),
    }
}

fn text(message: Value) -> Option<Message> {
    Some(Message::text(message.to_string()))
}

#[tokio::test]
async fn path_query_and_first_message_tell_protocols_apart() {
    let bench = Bench::start().await;
    let (older, current) = (Taken::Relayed(Tongue::Older), Taken::Relayed(Tongue::Current));
    let configure = || text(json!({"type": "session.configure", "language": "en"}));
    let opens = |tongue: Tongue| text(tongue.opening());
    for (path, first, expected) in [
        ("/v1/realtime?model=x", None, Taken::Macaw),
        ("/api/v1/realtime?model=x", None, Taken::Macaw),
        ("/v1/realtime?language=en", None, Taken::NobodysMacaw),
        ("/v1/realtime?mode=audio", opens(Tongue::Current), current),
        ("/v1/realtime?mode=audio", opens(Tongue::Older), older),
        ("/v1/realtime?mode=video", opens(Tongue::Current), current),
        ("/v1/realtime?mode=video", opens(Tongue::Older), older),
        ("/v1/realtime?mode=chat", opens(Tongue::Current), current),
        ("/v1/realtime", opens(Tongue::Current), current),
        ("/v1/realtime", opens(Tongue::Older), older),
        ("/v1/realtime?unknown=1", opens(Tongue::Older), older),
        ("/v1/realtime?model=x&mode=audio", opens(Tongue::Current), current),
        ("/v1/realtime?model=x&mode=audio", configure(), Taken::Macaw),
        ("/v1/realtime?model=x&mode=audio", None, Taken::Macaw),
        ("/v1/realtime", configure(), Taken::NobodysMacaw),
        ("/v1/realtime", Some(Message::binary(vec![0; 640])), Taken::NobodysMacaw),
        ("/v1/realtime", text(json!({"type": "what"})), Taken::NobodysMacaw),
        ("/v1/realtime", Some(Message::text("{")), Taken::NobodysMacaw),
    ] {
        let mut client = bench.dial(path).await;
        let said = format!("{path} {first:?}");
        if let Some(message) = first {
            client.send(message).await;
        }
        assert_eq!(taken(client).await, expected, "{said}");
    }
}

/// A Macaw client would be refused without a model; one that waits for a worker, as the document of the others demands,
/// would wait for ever.
#[tokio::test]
async fn who_names_nothing_and_says_nothing_is_told_of_a_worker() {
    let bench = Bench::start().await;
    for tongue in [Tongue::Current, Tongue::Older] {
        let mut client = bench.dial("/v1/realtime").await;
        assert_eq!(client.next().await.kind(), "session.queue_done");
        client.send(Message::text(tongue.opening().to_string())).await;
        assert_eq!(taken(client).await, Taken::Relayed(tongue));
    }
}

/// The older server takes every mode it does not know for audio, so a client of it may name any.
#[tokio::test]
async fn a_mode_that_does_not_exist_is_refused_before_the_websocket_where_it_is_known_that_it_does_not() {
    const ROUTE: &str = "[[route]]\npath = \"/current\"\nprotocol = \"minicpm-o\"\nprofile = \"relay\"\n";
    let bench = Bench::with(quick(), config(&format!("profile = \"speech\"\n{ROUTE}"))).await;
    for query in ["mode=", "mode=Audio", "mode=audio&mode=telepathy", "mode=%00"] {
        let (head, _) = bench.upgrade(&format!("/current?{query}"), "").await;
        assert!(head.starts_with("HTTP/1.1 403 "), "{query}: {head}");
        let mut client = bench.dial(&format!("/v1/realtime?{query}")).await;
        client.send(Message::text(Tongue::Older.opening().to_string())).await;
        assert_eq!(taken(client).await, Taken::Relayed(Tongue::Older), "{query}");
    }
}

#[tokio::test]
async fn without_a_route_for_them_relayed_clients_are_told_so() {
    let bench = Bench::with(quick(), config("[[route]]\nclient = \"macaw\"\nprofile = \"speech\"\n")).await;
    let (head, _) = bench.upgrade("/v1/realtime?mode=audio", "").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    // Without one the path is Macaw's alone.
    assert_eq!(taken(bench.dial("/v1/realtime").await).await, Taken::NobodysMacaw);
}

fn config(toml: &str) -> Config {
    toml::from_str(toml).unwrap()
}

#[tokio::test]
async fn a_route_can_say_which_protocol_it_is() {
    let routes = |lines: &[(&str, &str, &str)]| -> String {
        let route = |(path, protocol, profile): &(&str, &str, &str)| {
            format!("[[route]]\npath = {path:?}\nprotocol = {protocol:?}\nprofile = {profile:?}\n")
        };
        lines.iter().map(route).collect()
    };
    let forced = config(&routes(&[
        ("/older", "minicpm-o-legacy", "relay"),
        ("/newer", "minicpm-o", "relay"),
        ("/v1/*", "macaw", "conversation"),
    ]));
    let bench = Bench::with(quick(), forced).await;
    for (path, expected) in [
        ("/older?mode=audio", Taken::Relayed(Tongue::Older)),
        ("/older", Taken::Relayed(Tongue::Older)),
        ("/newer?mode=audio", Taken::Relayed(Tongue::Current)),
        ("/newer", Taken::Relayed(Tongue::Current)),
        ("/v1/realtime?mode=audio", Taken::NobodysMacaw),
        ("/v1/anything?model=x", Taken::Macaw),
    ] {
        let mut client = bench.dial(path).await;
        if let Taken::Relayed(tongue) = expected {
            client.command(tongue.opening()).await;
        }
        assert_eq!(taken(client).await, expected, "{path}");
    }
    // Who speaks another one there is told so in the words of the one that is spoken there.
    let mut stranger = bench.dial("/older?mode=audio").await;
    stranger.command(Tongue::Current.opening()).await;
    assert_eq!(stranger.event("error").await["error"]["code"], "unknown_event");
    stranger.command(Tongue::Older.opening()).await;
    stranger.event("session.created").await;
    // The older server takes any mode, the current one does not.
    assert!(bench.upgrade("/older?mode=chat", "").await.0.starts_with("HTTP/1.1 101 "));
    assert!(bench.upgrade("/newer?mode=loud", "").await.0.starts_with("HTTP/1.1 403 "));
    assert!(bench.upgrade("/elsewhere", "").await.0.starts_with("HTTP/1.1 404 "));
}

/// Two servers of two dialects.
const TWO: &str = r#"
    [[route]]
    client = "minicpm-o-legacy"
    upstream = "old"
    profile = "relay"

    [[route]]
    client = "minicpm-o"
    upstream = "new"
    profile = "relay"

    [[route]]
    client = "macaw"
    model = "talk-*"
    upstream = "old"
    profile = "conversation"

    [[route]]
    upstream = "new"
    profile = "speech"
"#;

#[tokio::test]
async fn every_route_leads_to_its_own_upstream() {
    let (old, _old, to_old) = simulate("127.0.0.1:0", SERVERS[0].simulator(1, &[]), None).await;
    let named = |name: &str, upstream: UpstreamConfig| UpstreamConfig { name: Some(name.into()), ..upstream };
    let (new, _new, to_new) = simulate("127.0.0.1:0", quick(), None).await;
    let older = UpstreamConfig { dialect: "minicpm-o-legacy".into(), ..upstream_at(old) };
    let upstream = vec![named("new", upstream_at(new)), named("old", older)];
    let bench = Bench::with(quick(), Config { upstream, ..config(TWO) }).await;
    for (query, speaks, opened_old, opened_new) in [
        ("mode=audio", Some(Tongue::Older), 1, 0),
        ("mode=audio", Some(Tongue::Current), 0, 1),
        ("mode=video", Some(Tongue::Older), 1, 0),
        ("", Some(Tongue::Older), 1, 0),
        ("", Some(Tongue::Current), 0, 1),
        ("model=talk-1", None, 1, 0),
        ("model=whisper", None, 0, 1),
    ] {
        drop((to_old.take(), to_new.take()));
        let mut client = bench.dial(&format!("/v1/realtime?{query}")).await;
        match speaks {
            Some(tongue) => {
                client.command(tongue.opening()).await;
                client.event("session.created").await;
            }
            // Of two servers only one is talked to; which one, the first second of audio shows.
            None => {
                client.say(&recording("goforward")).await;
                client.live(&[], |seen| seen.kind() == "transcript.final").await;
            }
        }
        client.close().await;
        let opened = |recorder: &Recorder| {
            let text = format!("{:?}", recorder.take());
            usize::from(text.contains("session.init") || text.contains("session.update"))
        };
        assert_eq!((opened(&to_old), opened(&to_new)), (opened_old, opened_new), "{query} {speaks:?}");
    }
}

#[tokio::test]
async fn who_waits_for_the_server_to_speak_first_is_understood_all_the_same() {
    let (old, _old, _) = simulate("127.0.0.1:0", SERVERS[0].simulator(1, &[]), None).await;
    let (new, _new, _) = simulate("127.0.0.1:0", quick(), None).await;
    let older = UpstreamConfig { dialect: "minicpm-o-legacy".into(), ..upstream_at(old) };
    let upstream = vec![
        UpstreamConfig { name: Some("new".into()), ..upstream_at(new) },
        UpstreamConfig { name: Some("old".into()), ..older },
    ];
    let bench = Bench::with(quick(), Config { upstream, ..config(TWO) }).await;
    for tongue in [Tongue::Older, Tongue::Current] {
        let mut client = bench.dial("/v1/realtime?mode=audio").await;
        client.event("session.queue_done").await;
        client.command(tongue.opening()).await;
        assert_eq!(taken(client).await, Taken::Relayed(tongue));
    }
}

#[test]
fn routes_that_mix_dialects_are_refused_in_words() {
    let upstreams = "[[upstream]]\nname = \"new\"\nurl = \"ws://new/v1/realtime\"\n\
        [[upstream]]\nname = \"old\"\nurl = \"ws://old/v1/realtime\"\ndialect = \"minicpm-o-legacy\"\n";
    let both = |rest: &str| config(&format!("{rest}{upstreams}"));
    let mixed =
        ["\"new\" speaks \"minicpm-o\"", "\"old\" speaks \"minicpm-o-legacy\"", "`upstream = \"new\"`"];
    for (rest, words) in [
        ("", &mixed[..]),
        ("[[route]]\nprofile = \"conversation\"\n", &mixed),
        ("[[route]]\nupstream = \"*\"\nprofile = \"relay\"\n", &mixed),
        (
            "[[route]]\nupstream = \"nwe\"\nprofile = \"relay\"\n",
            &["none is called `nwe`", "did you mean `new`"],
        ),
        ("[[route]]\nupstream = \"old\"\nprofile = \"speech\"\n", &["needs mode chat"]),
        ("[[route]]\nprotocol = \"macaw\"\nupstream = \"new\"\nprofile = \"speech\"\n", &["needs a `path`"]),
        (
            "[[route]]\nclient = \"macaw\"\nupstream = \"old\"\nprofile = \"relay\"\n",
            &["client \"macaw\" is none of the model's own kind"],
        ),
        (
            "[[route]]\nclient = \"minicpm-*\"\nupstream = \"new\"\nprofile = \"speech\"\n",
            &["serves nobody", "is relayed"],
        ),
        ("[[route]]\nmodel = \"whisper*\"\nupstream = \"new\"\nprofile = \"relay\"\n", &["name no model"]),
        (
            "[[route]]\nclient = \"makaw\"\nupstream = \"new\"\nprofile = \"speech\"\n",
            &["no client protocol", "did you mean `macaw`"],
        ),
    ] {
        let problem = both(rest).check().unwrap_err();
        assert!(words.iter().all(|words| problem.contains(words)), "{rest}: {problem}");
    }
    assert_eq!(both(TWO).check(), Ok(()));
}
