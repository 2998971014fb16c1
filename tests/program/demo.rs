//! `voxbridge demo` on each simulated server, and its page.

use std::process::Stdio;

use futures_util::future::join_all;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::Child,
    time::timeout,
};
use voxbridge_test_support::{
    bench::{scratch, speech_dir},
    programs::send_signal,
};

use crate::commands::{PATIENCE, assert_wav, run, voxbridge};

/// Starts `demo --browser`; returns the address of its page.
async fn start_browser_demo(options: &[&str]) -> (Child, String) {
    let mut demo = voxbridge(&[&["demo", "--browser"], options].concat());
    // No desktop: no browser may open in a test.
    demo.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    let mut demo = demo.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    loop {
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().expect("no URL is printed");
        if let Some(url) = line.strip_prefix("the playground is at http://") {
            return (demo, url.split('/').next().unwrap().to_owned());
        }
    }
}

async fn get_page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn browser_demo_prints_the_url_of_its_page_and_stops_on_ctrl_c() {
    let (mut demo, address) = start_browser_demo(&[]).await;
    for (path, expected) in [
        ("/playground", "<title>voxbridge playground</title>"),
        ("/playground/settings", "conversation"),
        ("/playground/settings", r#""simulated":true"#),
    ] {
        let answer = get_page(&address, path).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(expected), "{answer}");
    }
    send_signal(demo.id().unwrap(), "-INT");
    assert_eq!(timeout(PATIENCE, demo.wait()).await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn demo_runs_on_every_simulated_server_that_can_serve_it() {
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let needs_chat = "needs mode chat";
    let needs_duplex = "needs mode audio";
    let demos = [
        ("legacy", "", needs_chat),
        ("backend", "", ""),
        ("sglang", "", ""),
        ("vllm", "", ""),
        ("sglang-http", "", ""),
        ("vllm-http", "", ""),
        ("openai-audio", "", ""),
        ("legacy", "--talk", ""),
        ("backend", "--talk", ""),
        ("sglang", "--talk", ""),
        ("vllm", "--talk", ""),
        ("sglang-http", "--talk", needs_duplex),
        ("vllm-http", "--talk", needs_duplex),
        ("openai-audio", "--talk", needs_duplex),
        ("openai-audio", "--openai", "answers in turns"),
    ];
    let demos = demos.map(|(server, option, problem)| {
        let out = scratch("program").join(format!("demo-{server}{option}.wav"));
        let path = out.display().to_string();
        let mut args = vec!["demo", "--server", server, &recording, "-o", &path, option];
        args.retain(|arg| !arg.is_empty());
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        async move {
            let shown = run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await;
            if problem.is_empty() {
                assert_eq!(shown.code, 0, "{args:?}: {}", shown.stderr);
                assert_wav(&out);
            } else {
                assert_eq!(shown.code, 2, "{args:?}: {}", shown.stdout);
                assert!(shown.stderr.contains(problem), "{args:?}: {}", shown.stderr);
            }
        }
    });
    join_all(demos).await;
}

#[tokio::test]
async fn browser_demo_offers_what_the_simulated_server_can_serve() {
    for (server, offered, missing) in [
        ("sglang", "conversation", None),
        ("legacy", "video", Some("speech")),
        ("openai-audio", "speech", Some("video")),
    ] {
        let (mut demo, address) = start_browser_demo(&["--server", server]).await;
        let settings = get_page(&address, "/playground/settings").await;
        let has = |profile: &str| settings.contains(&format!(r#""profile":"{profile}""#));
        assert!(has(offered) && !missing.is_some_and(has), "{server}: {settings}");
        demo.kill().await.unwrap();
    }
}
