//! A bridge with a replaceable configuration, and clients for every kind of handshake.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::protocol::Role;
use voxbridge::server::ActiveConfig;

use super::*;

/// Longer than any step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Path of the Macaw protocol.
pub(crate) const MACAW: &str = "/v1/realtime?model=m";

/// A bridge, its upstream, and a directory for its files.
pub(crate) struct AccessServer {
    pub(crate) address: SocketAddr,
    pub(crate) dir: PathBuf,
    upstream: SocketAddr,
    current: ActiveConfig,
    _simulator: RunningServer,
}

impl AccessServer {
    /// Starts a bridge with this configuration. `DIR` in it stands for a directory that holds these files.
    pub(crate) async fn start(name: &str, toml: &str, files: &[(&str, &str)]) -> Self {
        let dir = scratch(&format!("access-{name}"));
        files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        let (upstream, simulator, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
        let service =
            parse_config(&dir, toml, upstream).build_service().unwrap_or_else(|problem| panic!("{problem}"));
        let server = Server::bind("127.0.0.1:0", service).await.unwrap();
        let (address, current) = (server.local_addr().unwrap(), server.active_config());
        tokio::spawn(server.run(std::future::pending()));
        Self { address, dir, upstream, current, _simulator: simulator }
    }

    /// Reloads the configuration as SIGHUP does: completely or not at all.
    pub(crate) fn reload(&self, toml: &str) -> Result<(), String> {
        let service = parse_config(&self.dir, toml, self.upstream).build_service()?;
        self.current.replace(service.with_upstream_state_of(&self.current.get()));
        Ok(())
    }

    pub(crate) fn current(&self) -> ActiveConfig {
        self.current.clone()
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Connects without TLS, with these additional header lines.
    pub(crate) async fn connect(&self, path: &str, headers: &str) -> HandshakeAnswer<TcpStream> {
        connect(self.tcp().await, path, headers).await
    }

    /// Retries until a handshake is accepted: a client sees its session's end slightly before its slot is
    /// free.
    pub(crate) async fn connect_until_accepted(
        &self,
        path: &str,
        headers: &str,
    ) -> HandshakeAnswer<TcpStream> {
        let accepted = async {
            loop {
                let answer = self.connect(path, headers).await;
                if answer.status == 101 {
                    return answer;
                }
            }
        };
        timeout(PATIENCE, accepted).await.expect("no handshake is accepted")
    }
}

fn parse_config(dir: &Path, toml: &str, upstream: SocketAddr) -> Config {
    let toml = toml.replace("DIR", dir.to_str().unwrap());
    let mut config: Config = toml::from_str(&toml).unwrap_or_else(|error| panic!("{error}"));
    if config.upstream.is_empty() {
        config.upstream.push(upstream_at(upstream));
    }
    config
}

/// The answer to a handshake.
pub(crate) struct HandshakeAnswer<S> {
    pub(crate) status: u16,
    /// The head in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) socket: WebSocketStream<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> HandshakeAnswer<S> {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The error code in the body.
    pub(crate) fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body));
        body["error"]["code"].as_str().unwrap().to_owned()
    }

    /// Waits for the next event.
    pub(crate) async fn wait_for_event(&mut self) -> Value {
        match self.message().await {
            Some(Message::Text(text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("expected an event, got {other:?}"),
        }
    }

    pub(crate) async fn message(&mut self) -> Option<Message> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("no message arrives") {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => return other.and_then(Result::ok),
            }
        }
    }

    pub(crate) async fn send(&mut self, message: Message) {
        timeout(PATIENCE, self.socket.send(message)).await.expect("the message cannot be sent").unwrap();
    }

    /// Checks that the session still works.
    pub(crate) async fn assert_alive(&mut self) {
        self.send(Message::text(json!({"type": "no.such"}).to_string())).await;
        while self.wait_for_event().await["code"] != "unknown_command" {}
    }

    /// Closes the session and waits for its end.
    pub(crate) async fn close(mut self) {
        self.send(Message::text(json!({"type": "session.close"}).to_string())).await;
        while self.message().await.is_some() {}
    }
}

/// Sends a WebSocket handshake on any stream.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    path: &str,
    headers: &str,
) -> HandshakeAnswer<S> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    send_request(stream, request.as_bytes()).await
}

/// Sends any request and reads the whole answer.
pub(crate) async fn send_request<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    request: &[u8],
) -> HandshakeAnswer<S> {
    stream.write_all(request).await.unwrap();
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let count = timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("no answer").unwrap();
        assert!(count > 0, "connection closed after {:?}", String::from_utf8_lossy(&read));
    };
    let mut rest = read.split_off(end);
    let head = String::from_utf8(read).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse::<usize>().unwrap());
    while rest.len() < length {
        assert!(timeout(PATIENCE, stream.read_buf(&mut rest)).await.expect("no body").unwrap() > 0);
    }
    let body = String::from_utf8(rest.drain(..length).collect()).unwrap();
    let socket = WebSocketStream::from_partially_read(stream, rest, Role::Client, None).await;
    HandshakeAnswer { status, head, body, socket }
}

/// Checks that the other side closes the connection.
pub(crate) async fn assert_disconnected(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset also counts.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("still open");
}
