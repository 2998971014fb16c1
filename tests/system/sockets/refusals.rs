//! A client's bad request among good ones: sent once, refused with the server's words in every upload protocol, and without
//! effect on the pool.

use super::http_upstreams::{scripted_server, transcribe};
use super::*;

const WORDS: &str = "Audio file might be corrupted or unsupported";

const REFUSAL: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 68\r\n\r\n\
    {\"error\":{\"message\":\"Audio file might be corrupted or unsupported\"}}";

/// A bridge before this many servers that refuse everything; gives the number of their requests.
async fn bench_of(servers: usize, answer: &'static str) -> (Bench, impl FnMut() -> usize) {
    let (mut upstream, mut received) = (Vec::new(), Vec::new());
    for number in 0..servers {
        let (mut config, requests) = scripted_server(answer).await;
        config.name = Some(format!("gpu-{number}"));
        upstream.push(config);
        received.push(requests);
    }
    let config = Config { upstream, ..Config::default() };
    let bench = Bench::of(config).await;
    let count = move || {
        let taken = |requests: &mut tokio::sync::mpsc::UnboundedReceiver<String>| {
            std::iter::from_fn(|| requests.try_recv().ok()).count()
        };
        received.iter_mut().map(taken).sum()
    };
    (bench, count)
}

fn in_service(bench: &Bench) -> usize {
    let text = bench.metrics.render();
    text.lines()
        .filter(|line| line.starts_with("voxbridge_upstream_in_service{") && line.ends_with(" 1"))
        .count()
}

#[tokio::test]
async fn bad_uploads_of_every_api_are_the_clients_error_and_eject_no_upstream() {
    let (bench, mut asked) = bench_of(4, REFUSAL).await;
    let upload = wav(&recording("goforward"));
    let form = form(&upload, &[("model", "x")]);
    let kind = "Content-Type: multipart/form-data; boundary=b\r\n";
    let text = json!({"model": "x", "input": "Good morning.", "voice": "alloy"}).to_string();
    let listen = "/v1/listen?model=nova-3&language=en";
    let speak = "/v1/speak?model=aura-2-thalia-en";
    for _ in 0..5 {
        for (path, headers, body, place, code) in [
            (TRANSCRIPTIONS, format!("{BEARER}{kind}"), form.clone(), "/error/type", "invalid_request_error"),
            (TRANSCRIPTIONS, kind.to_owned(), form.clone(), "/error/type", "invalid_request_error"),
            (SPEECH, BEARER.to_owned(), text.clone().into_bytes(), "/error/type", "invalid_request_error"),
            (
                listen,
                "Authorization: Token k\r\nContent-Type: audio/wav\r\n".to_owned(),
                upload.clone(),
                "/err_code",
                "Bad Request",
            ),
            (
                speak,
                "Authorization: Token k\r\n".to_owned(),
                br#"{"text":"Good morning."}"#.to_vec(),
                "/err_code",
                "Bad Request",
            ),
        ] {
            let answer = request(bench.address(), "POST", path, &headers, &body).await;
            assert_eq!(answer.status, 400, "{path}: {answer:?}");
            assert_eq!(answer.json().pointer(place).unwrap(), code, "{path}");
            assert!(answer.text().contains(WORDS), "{path}: {}", answer.text());
            assert!(answer.header("retry-after").is_none(), "{path}");
            assert_eq!(asked(), 1, "{path}: asked once");
        }
    }
    assert_eq!(in_service(&bench), 4);
}

#[tokio::test]
async fn bad_utterances_of_a_live_client_leave_its_session_open() {
    let (bench, mut asked) = bench_of(1, REFUSAL).await;
    let mut client = bench.client("model=x").await;
    // More would come faster than real time.
    for _ in 0..3 {
        let frames = transcribe(&mut client).await;
        let errors = events(&frames, "error");
        assert_eq!((errors.len(), &errors[0]["code"]), (1, &json!("invalid_request")), "{frames:#?}");
        assert!(errors[0]["message"].as_str().unwrap().contains(WORDS));
        assert_eq!(asked(), 1);
    }
    assert_eq!(in_service(&bench), 1);
    assert_pairs_closed(&client.close().await);
}

#[tokio::test]
async fn rejected_token_is_reported_as_the_servers_error_and_upstream_stays_in_service() {
    let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: 27\r\n\r\n\
        {\"error\":\"Invalid API key\"}";
    let (bench, mut asked) = bench_of(1, answer).await;
    let upload = form(&wav(&recording("goforward")), &[("model", "x")]);
    let headers = format!("{BEARER}Content-Type: multipart/form-data; boundary=b\r\n");
    for _ in 0..5 {
        let answer = request(bench.address(), "POST", TRANSCRIPTIONS, &headers, &upload).await;
        assert_eq!((answer.status, asked()), (502, 1), "{answer:?}");
        assert!(answer.text().contains("Invalid API key") && answer.text().contains("`token`"), "{answer:?}");
    }
    assert_eq!(in_service(&bench), 1);
}
