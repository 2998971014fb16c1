//! The network between voxbridge and its upstream: forwards, cuts, or holds everything up without a word.

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
struct State {
    /// Nothing passes, connections are accepted: neither end is told anything.
    held: bool,
    /// Connections of an earlier age are gone.
    age: u64,
}

/// The way to one upstream.
pub(crate) struct Wire {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl Wire {
    /// A way to `target`, whoever listens there at the time.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State { held: false, age: 0 });
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, target, seen.clone()));
            }
        });
        Self { address, state, task }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every connection there is ends without a goodbye.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.age += 1);
    }

    /// Nothing passes from now on, or everything again.
    pub(crate) fn hold(&self, held: bool) {
        self.state.send_modify(|state| state.held = held);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(near: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    let age = state.borrow_and_update().age;
    let cut = state.clone();
    let passing = async {
        open(&mut state).await?;
        // An upstream that is not there ends the connection, as it would its own.
        let far = TcpStream::connect(target).await.ok()?;
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::join!(pass(near_in, far_out, state.clone()), pass(far_in, near_out, state.clone()));
        Some(())
    };
    tokio::select! {
        _ = passing => {}
        () = cut_after(cut, age) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if open(&mut state).await.is_none() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    // The other direction ends by itself.
    drop(to.shutdown().await);
}

/// Waits until things pass.
async fn open(state: &mut watch::Receiver<State>) -> Option<()> {
    state.wait_for(|state| !state.held).await.is_ok().then_some(())
}

async fn cut_after(mut state: watch::Receiver<State>, age: u64) {
    drop(state.wait_for(|state| state.age > age).await);
}
