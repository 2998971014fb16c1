//! A judge of the turn's end behind HTTP, as Pipecat's `HttpSmartTurnAnalyzer` calls it (pipecat-ai 1.14.0).
//!
//! A question is a POST with the audio as a NumPy file (`.npy`) of float32 at 16 kHz. The answer is JSON:
//! `{"prediction": 1, "probability": 0.97}`. Each thread of the pool keeps a connection open. A server that fails gives no verdict,
//! so that the fixed silence ends the turn.

use std::{io, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1::SendRequest};
use serde::Deserialize;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use super::Judge;
use crate::net::http_request::{self, RequestTarget};

/// Questions that are asked at a time.
pub(super) const THREADS: usize = 8;
/// Longest time of an answer, with the connection. A session gives up earlier.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Most bytes of an answer that are read.
const ANSWER_MAX_BYTES: usize = 64 << 10;
/// Most characters of an answer that are quoted.
const QUOTED_CHARS: usize = 200;

/// An answer of the server. One of the two is enough.
#[derive(Deserialize)]
struct Answer {
    probability: Option<f32>,
    prediction: Option<f32>,
}

/// A client with its connection.
struct Client {
    server: RequestTarget,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// The last question failed, which was logged.
    is_failing: bool,
}

/// A judge for one thread.
///
/// # Errors
/// The system's error.
pub(super) fn judge(server: RequestTarget) -> io::Result<Judge> {
    let runtime: Runtime = Builder::new_current_thread().enable_all().build()?;
    let mut client = Client { server, connection: None, is_failing: false };
    Ok(Box::new(move |audio: &[i16]| runtime.block_on(client.judge(audio))))
}

impl Client {
    /// Probability that the user has finished; `None` if the server fails.
    async fn judge(&mut self, audio: &[i16]) -> Option<f32> {
        let late = |_| Err(format!("no answer within {} s", ANSWER_MAX.as_secs()));
        let answer = timeout(ANSWER_MAX, self.ask(npy(audio))).await.unwrap_or_else(late);
        if let (Err(problem), false) = (&answer, self.is_failing) {
            let server = &self.server.endpoint.authority;
            tracing::warn!(%server, %problem, "the server that judges the ends of turns failed; the fixed silence decides");
        }
        self.is_failing = answer.is_err();
        answer.ok()
    }

    async fn ask(&mut self, audio: Bytes) -> Result<f32, String> {
        let answer = self.send(audio).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
        let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?.to_bytes();
        let text: String = String::from_utf8_lossy(&body).chars().take(QUOTED_CHARS).collect();
        if status != StatusCode::OK {
            return Err(format!("HTTP {}: {text}", status.as_u16()));
        }
        let found: Option<Answer> = serde_json::from_slice(&body).ok();
        let probability = found.and_then(|answer| answer.probability.or(answer.prediction));
        let probability = probability.filter(|probability| (0.0..=1.0).contains(probability));
        probability.ok_or_else(|| format!("the answer has no `probability` from 0 to 1: {text}"))
    }

    /// Sends a question, on a new connection if the server has closed the one that was open.
    async fn send(&mut self, audio: Bytes) -> Result<Response<Incoming>, String> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
            && let Ok(answer) = connection.send_request(self.request(audio.clone())?).await
        {
            self.connection = Some(connection);
            return Ok(answer);
        }
        let mut connection = http_request::open(&self.server.endpoint).await?;
        let answer =
            connection.send_request(self.request(audio)?).await.map_err(|error| error.to_string())?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn request(&self, audio: Bytes) -> Result<Request<Full<Bytes>>, String> {
        self.server.post("application/octet-stream", audio)
    }
}

/// A NumPy file, version 1.0, with one row of float32 from −1 to 1.
fn npy(audio: &[i16]) -> Bytes {
    const START: &[u8] = b"\x93NUMPY\x01\x00";
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", audio.len());
    // The samples begin at a multiple of 64 bytes, after the header's length and a line feed.
    let unpadded = START.len() + 2 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let mut file = START.to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(audio.iter().flat_map(|sample| (f32::from(*sample) / 32_768.0).to_le_bytes()));
    file.into()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpListener,
        sync::mpsc,
        thread,
    };

    use super::*;
    use crate::net::Endpoint;

    /// A server that answers one request after the other, and passes their bodies on. `None` closes the connection instead.
    fn serve(answers: Vec<Option<&'static str>>) -> (RequestTarget, mpsc::Receiver<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}/raw?x=1", listener.local_addr().unwrap());
        let (body, bodies) = mpsc::channel();
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            'connections: while let Ok((stream, _)) = listener.accept() {
                let mut reader = BufReader::new(stream);
                while let Some(request) = read_request(&mut reader) {
                    let Some(answer) = answers.next() else { return };
                    let _ = body.send(request);
                    let Some(answer) = answer else { continue 'connections };
                    reader.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        let uri = url.parse().unwrap();
        let endpoint = Endpoint::from_uri(&uri, None).unwrap();
        (RequestTarget { endpoint, path: "/raw?x=1".to_owned(), headers: vec![] }, bodies)
    }

    /// The body of a request; `None` at the end of the connection.
    fn read_request(reader: &mut BufReader<std::net::TcpStream>) -> Option<Vec<u8>> {
        let head: Vec<String> =
            reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        assert!(head.first()?.starts_with("POST /raw?x=1 HTTP/1.1"), "{head:?}");
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "))?;
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        Some(body)
    }

    fn ok(json: &str) -> Option<&'static str> {
        Some(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{json}", json.len()).leak())
    }

    #[test]
    fn answers_and_failures_become_probabilities_and_none() {
        let answers = vec![
            ok(r#"{"prediction": 1, "probability": 0.75, "metrics": {"inference_time": 0.01}}"#),
            ok(r#"{"prediction": 0}"#),
            Some("HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nbusy"),
            ok(r#"{"probability": 1.5}"#),
            ok("[]"),
            ok(r#"{"probability": 0.5}"#),
        ];
        let (server, bodies) = serve(answers);
        let mut judge = judge(server).unwrap();
        let verdicts: Vec<Option<f32>> = (0..6).map(|_| judge(&[0, 16_384, i16::MIN])).collect();
        assert_eq!(verdicts, [Some(0.75), Some(0.0), None, None, None, Some(0.5)]);
        let file = bodies.recv().unwrap();
        assert_eq!((&file[..8], file.len()), (&b"\x93NUMPY\x01\x00"[..], 128 + 12));
        let samples = file[128..].chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
        assert_eq!(samples.collect::<Vec<_>>(), [0.0, 0.5, -1.0]);
    }

    #[test]
    fn connection_that_the_server_has_closed_is_replaced() {
        let yes = ok(r#"{"probability": 0.9}"#);
        let (server, bodies) = serve(vec![yes, None, yes]);
        let mut judge = judge(server).unwrap();
        assert_eq!([judge(&[1]), judge(&[2])], [Some(0.9); 2]);
        assert_eq!(bodies.iter().take(3).count(), 3, "the second question was asked twice");
    }

    #[test]
    fn server_that_is_not_there_gives_no_verdict() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let uri = format!("ws://127.0.0.1:{port}/").parse().unwrap();
        let endpoint = Endpoint::from_uri(&uri, None).unwrap();
        let server = RequestTarget { endpoint, path: "/".to_owned(), headers: vec![] };
        assert_eq!(judge(server).unwrap()(&[0; 100]), None);
    }

    #[test]
    fn header_of_the_audio_ends_at_a_multiple_of_64_bytes() {
        for samples in [0, 1, 9, 10, 128_000] {
            let file = npy(&vec![0; samples]);
            let header = file.len() - 4 * samples;
            assert_eq!((header % 64, file[header - 1]), (0, b'\n'), "{samples} samples");
            assert_eq!(usize::from(u16::from_le_bytes([file[8], file[9]])) + 10, header);
        }
    }
}
