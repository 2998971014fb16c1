//! Transcriptions as jobs over real sockets: uploads, jobs and transcripts in the forms of AssemblyAI, Gladia, Speechmatics and Soniox.

use super::*;

const KEYS: &str =
    "[[key]]\nname = \"ann\"\nkey = \"ann-s3cret\"\n[[key]]\nname = \"bob\"\nkey = \"bob-s3cret\"\n";
const JSON: &str = "Content-Type: application/json\r\n";

/// How a vendor's API is used.
struct Vendor {
    /// Headers with the key, and of a form.
    key: &'static str,
    jobs: &'static str,
    /// Path of uploads, and field of the form; no field for a recording as the body.
    uploads: Option<(&'static str, Option<&'static str>)>,
    /// Where the upload's answer has what the job names, and the member that names it.
    reference: (&'static str, &'static str),
    /// Where the job's state stands, and the last state.
    state: (&'static str, &'static str, &'static str),
    /// The end of the transcript's path, and where its words stand.
    transcript: (&'static str, &'static str),
    /// Where an error has its words.
    error: &'static str,
    deleted: u16,
}

const VENDORS: [Vendor; 4] = [
    Vendor {
        key: "Authorization: ann-s3cret\r\n",
        jobs: "/v2/transcript",
        uploads: Some(("/v2/upload", None)),
        reference: ("/upload_url", "audio_url"),
        state: ("/status", "completed", "error"),
        transcript: ("", "/words"),
        error: "/error",
        deleted: 200,
    },
    Vendor {
        key: "x-gladia-key: ann-s3cret\r\n",
        jobs: "/v2/pre-recorded",
        uploads: Some(("/v2/upload", Some("audio"))),
        reference: ("/audio_url", "audio_url"),
        state: ("/status", "done", "error"),
        transcript: ("", "/result/transcription/utterances/0/words"),
        error: "/message",
        deleted: 202,
    },
    Vendor {
        key: "Authorization: Bearer ann-s3cret\r\n",
        jobs: "/v2/jobs",
        uploads: None,
        reference: ("", ""),
        state: ("/job/status", "done", "rejected"),
        transcript: ("/transcript", "/results"),
        error: "/detail",
        deleted: 200,
    },
    Vendor {
        key: "Authorization: Bearer ann-s3cret\r\n",
        jobs: "/v1/transcriptions",
        uploads: Some(("/v1/files", Some("file"))),
        reference: ("/id", "file_id"),
        state: ("/status", "completed", "error"),
        transcript: ("/transcript", "/tokens"),
        error: "/message",
        deleted: 204,
    },
];

fn form(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, contents) in fields {
        let file = if contents.starts_with(b"{") { "" } else { "; filename=\"a.wav\"" };
        body.extend_from_slice(
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").as_bytes(),
        );
        body.extend_from_slice(contents);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--b--\r\n");
    body
}

impl Vendor {
    async fn send(&self, at: SocketAddr, (method, path): (&str, &str), more: &str, body: &[u8]) -> Answer {
        request(at, method, path, &format!("{}{more}", self.key), body).await
    }

    async fn post_form(&self, at: SocketAddr, path: &str, fields: &[(&str, &[u8])]) -> Answer {
        let more = "Content-Type: multipart/form-data; boundary=b\r\n";
        self.send(at, ("POST", path), more, &form(fields)).await
    }

    /// Creates a job with these settings; the answer.
    async fn create(&self, at: SocketAddr, recording: &[u8], mut settings: Value) -> Answer {
        let Some((path, field)) = self.uploads else {
            let config = settings.to_string();
            let fields = [("config", config.as_bytes()), ("data_file", recording)];
            return self.post_form(at, self.jobs, &fields).await;
        };
        let uploaded = match field {
            None => self.send(at, ("POST", path), "", recording).await,
            Some(field) => self.post_form(at, path, &[(field, recording)]).await,
        };
        assert!(uploaded.status < 300, "{uploaded:?}");
        let uploaded = uploaded.json();
        let (from, to) = self.reference;
        settings[to] = uploaded.pointer(from).unwrap_or_else(|| panic!("{uploaded}")).clone();
        self.send(at, ("POST", self.jobs), JSON, settings.to_string().as_bytes()).await
    }

    /// Asks for a job until it has ended; its answer.
    async fn ended(&self, at: SocketAddr, id: &str) -> Value {
        loop {
            let answer = self.send(at, ("GET", &format!("{}/{id}", self.jobs)), "", b"").await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let job = answer.json();
            let state = job.pointer(self.state.0).and_then(Value::as_str).unwrap_or_default();
            if [self.state.1, self.state.2].contains(&state) {
                return job;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn id_of(created: &Answer) -> String {
    created.json()["id"].as_str().unwrap_or_else(|| panic!("{created:?}")).to_owned()
}

#[tokio::test]
async fn recordings_are_transcribed_as_jobs_in_the_form_of_each_vendor() {
    let bench = Bench::start().await;
    let at = bench.address();
    let recording = wav(&two_utterances());
    for vendor in VENDORS {
        let created = vendor.create(at, &recording, json!({})).await;
        assert!([200, 201].contains(&created.status), "{created:?}");
        let id = id_of(&created);
        let job = vendor.ended(at, &id).await;
        assert_eq!(job.pointer(vendor.state.0), Some(&json!(vendor.state.1)), "{job}");
        let path = format!("{}/{id}{}", vendor.jobs, vendor.transcript.0);
        let transcript = vendor.send(at, ("GET", &path), "", b"").await.json();
        let words = transcript.pointer(vendor.transcript.1).and_then(Value::as_array);
        assert!(words.is_some_and(|words| !words.is_empty()), "{transcript}");
        let deleted = vendor.send(at, ("DELETE", &format!("{}/{id}", vendor.jobs)), "", b"").await;
        assert_eq!(deleted.status, vendor.deleted, "{deleted:?}");
        let gone = vendor.send(at, ("GET", &format!("{}/{id}", vendor.jobs)), "", b"").await;
        assert_eq!(gone.status, 404);
        assert!(gone.json().pointer(vendor.error).is_some_and(Value::is_string), "{gone:?}");
    }
}

#[tokio::test]
async fn transcripts_of_jobs_are_files_too() {
    let bench = Bench::start().await;
    let [assemblyai, _, speechmatics, _] = VENDORS;
    for (vendor, end, begin) in [
        (&assemblyai, "/srt", "1\n00:00:0"),
        (&assemblyai, "/vtt", "WEBVTT"),
        (&speechmatics, "/transcript?format=srt", "1\n00:00:0"),
        (&speechmatics, "/transcript?format=txt", ""),
    ] {
        let created = vendor.create(bench.address(), &wav(&two_utterances()), json!({})).await;
        let id = id_of(&created);
        vendor.ended(bench.address(), &id).await;
        let file =
            vendor.send(bench.address(), ("GET", &format!("{}/{id}{end}", vendor.jobs)), "", b"").await;
        assert_eq!((file.status, file.header("content-type")), (200, Some("text/plain; charset=utf-8")));
        assert!(file.text().starts_with(begin) && file.text().len() > 20, "{end}: {file:?}");
    }
}

#[tokio::test]
async fn wrong_requests_get_the_vendors_error() {
    let bench = Bench::start().await;
    let at = bench.address();
    let [assemblyai, gladia, speechmatics, soniox] = VENDORS;
    for (vendor, settings, words) in [
        (&assemblyai, json!({"audio_url": "https://example.com/a.mp3"}), "fetches no URLs"),
        (&assemblyai, json!({"audio_url": "http://x/v2/upload/7"}), "no upload with this id"),
        (&assemblyai, json!({}), "names no recording"),
        (&assemblyai, json!({"webhook_url": "https://example.com"}), "results are not sent"),
        (&assemblyai, json!({"language_code": 7}), "language_code"),
        (&gladia, json!({"audio_url": "https://example.com/a.mp3"}), "fetches no URLs"),
        (&gladia, json!({"callback": true}), "results are not sent"),
        (&soniox, json!({"audio_url": "https://example.com/a.mp3"}), "fetches no URLs"),
        (&soniox, json!({"file_id": "7"}), "no upload with this id"),
        (&soniox, json!([]), "object"),
    ] {
        let answer = vendor.send(at, ("POST", vendor.jobs), JSON, settings.to_string().as_bytes()).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let body = answer.json();
        let shown = body.pointer(vendor.error).and_then(Value::as_str).unwrap_or_default();
        assert!(shown.contains(words), "{settings}: {body}");
    }
    let fetched: &[u8] = br#"{"type": "transcription", "fetch_data": {"url": "https://example.com/a.mp3"}}"#;
    let answer = speechmatics.post_form(at, "/v2/jobs", &[("config", fetched)]).await;
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!(400)), "{answer:?}");
    assert!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("data_file")));
    let broken = assemblyai.send(at, ("POST", "/v2/upload"), "", b"no recording").await;
    assert!(broken.status == 400 && broken.json()["error"].is_string(), "{broken:?}");
    let early = speechmatics.send(at, ("GET", "/v2/jobs/7/transcript"), "", b"").await;
    assert_eq!(early.status, 404, "{early:?}");
    let method = request(at, "PUT", "/v2/transcript", "", b"").await;
    assert_eq!((method.status, method.header("allow")), (405, Some("post")), "{method:?}");
}

#[tokio::test]
async fn uploads_and_jobs_of_another_key_are_unknown() {
    let server =
        AccessServer::start("jobs", "[access]\nkeys = \"DIR/keys.toml\"\n", &[("keys.toml", KEYS)]).await;
    let at = server.address;
    let bob = "Authorization: Bearer bob-s3cret\r\n";
    for vendor in VENDORS {
        let refused = request(at, "POST", vendor.jobs, "Authorization: Bearer wrong\r\n", b"{}").await;
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.json().pointer(vendor.error).is_some_and(Value::is_string), "{refused:?}");
        let id = id_of(&vendor.create(at, &wav(&two_utterances()), json!({})).await);
        let path = format!("{}/{id}", vendor.jobs);
        for method in ["GET", "DELETE"] {
            assert_eq!(request(at, method, &path, bob, b"").await.status, 404, "{method} {path}");
        }
        vendor.ended(at, &id).await;
    }
    let uploaded = VENDORS[3].post_form(at, "/v1/files", &[("file", &wav(&two_utterances()))]).await;
    let file_id = uploaded.json()["id"].clone();
    let settings = json!({"file_id": file_id}).to_string();
    let stolen =
        request(at, "POST", "/v1/transcriptions", &format!("{bob}{JSON}"), settings.as_bytes()).await;
    assert_eq!(stolen.status, 400, "{stolen:?}");
}
