//! TCP proxy between voxbridge and its upstream: forwards, cuts, or silently stalls connections.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

#[derive(Debug, Clone, Copy)]
struct ProxyState {
    /// New connections are accepted, but no data passes and neither end notices.
    paused: bool,
    /// Connections of an earlier generation are closed.
    generation: u64,
}

/// Proxy to one upstream.
pub struct TcpProxy {
    address: SocketAddr,
    state: watch::Sender<ProxyState>,
    task: JoinHandle<()>,
}

impl TcpProxy {
    /// A proxy to `target`, which need not exist yet.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, state_receiver) = watch::channel(ProxyState { paused: false, generation: 0 });
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, target, state_receiver.clone()));
            }
        });
        Self { address, state, task }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// True while a connection passes through it.
    pub fn is_used(&self) -> bool {
        // The task that accepts connections holds the first receiver.
        self.state.receiver_count() > 1
    }

    /// Cuts every connection without a close.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Stalls or resumes all data.
    pub fn set_paused(&self, paused: bool) {
        self.state.send_modify(|state| state.paused = paused);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(client: TcpStream, target: SocketAddr, mut state: watch::Receiver<ProxyState>) {
    let generation = state.borrow_and_update().generation;
    let cut = state.clone();
    let forwarding = async {
        wait_until_open(&mut state).await?;
        // A missing upstream closes the connection, as a server would.
        let server = TcpStream::connect(target).await.ok()?;
        let ((client_read, client_write), (server_read, server_write)) =
            (client.into_split(), server.into_split());
        tokio::join!(
            copy(client_read, server_write, state.clone()),
            copy(server_read, client_write, state.clone())
        );
        Some(())
    };
    tokio::select! {
        _ = forwarding => {}
        () = wait_for_cut(cut, generation) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<ProxyState>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if wait_until_open(&mut state).await.is_none() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    // The other direction ends on its own.
    drop(to.shutdown().await);
}

/// Waits until data may pass.
async fn wait_until_open(state: &mut watch::Receiver<ProxyState>) -> Option<()> {
    state.wait_for(|state| !state.paused).await.is_ok().then_some(())
}

async fn wait_for_cut(mut state: watch::Receiver<ProxyState>, generation: u64) {
    drop(state.wait_for(|state| state.generation > generation).await);
}
