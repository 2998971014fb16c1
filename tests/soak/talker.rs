//! A client in a room: its microphone never stops, what it says are recordings, and it answers nothing.

use std::{collections::VecDeque, time::Duration};

use futures_util::{Sink, SinkExt as _, StreamExt as _};
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_tungstenite::{client_async, tungstenite::Message};

use super::listener::{Heard, Listener};

const FRAME: Duration = Duration::from_millis(20);
const FRAME_SAMPLES: usize = 320;

/// Everything here happens sooner, on a machine with nothing else to do and with much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);

enum Order {
    Say(Vec<i16>, oneshot::Sender<()>),
    Send(String),
}

/// One client.
pub(crate) struct Talker {
    name: String,
    orders: mpsc::Sender<Order>,
    heard: watch::Receiver<Heard>,
}

impl Talker {
    pub(crate) async fn connect(name: &str, address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/v1/realtime?model=soak&rollover_events=true");
        let (socket, _) = client_async(url, stream).await.unwrap();
        let (up, down) = socket.split();
        let (orders, taken) = mpsc::channel(8);
        let (listener, heard) = Listener::new();
        tokio::spawn(microphone(up, taken));
        tokio::spawn(listener.listen(down));
        Self { name: name.to_owned(), orders, heard }
    }

    /// What was heard so far; nothing of it was wrong.
    pub(crate) fn heard(&self) -> Heard {
        let heard = self.heard.borrow().clone();
        assert!(heard.wrong.is_none(), "{}: {}", self.name, heard.wrong.unwrap());
        heard
    }

    /// Says this; done when the last of it is said.
    pub(crate) async fn say(&self, samples: Vec<i16>) {
        let (said, done) = oneshot::channel();
        // A session that is over is noticed by whoever waits for an answer.
        drop(self.orders.send(Order::Say(samples, said)).await);
        drop(done.await);
    }

    /// Whether this holds within so much time; nothing goes wrong meanwhile, and the session is not over.
    pub(crate) async fn hears(&mut self, within: Duration, holds: impl Fn(&Heard) -> bool) -> bool {
        let met = |heard: &Heard| heard.wrong.is_some() || heard.over || holds(heard);
        let met = timeout(within, self.heard.wait_for(met)).await.is_ok();
        let heard = self.heard();
        assert!(!heard.over || holds(&heard), "{}: the session is over", self.name);
        met
    }

    /// Nobody speaks for a second.
    pub(crate) async fn quiet(&mut self) {
        let start = Instant::now();
        loop {
            let closed = self.hears(PATIENCE, |heard| heard.begun == heard.ended).await;
            assert!(
                closed && start.elapsed() < 2 * PATIENCE,
                "{}: the model does not stop speaking",
                self.name
            );
            let begun = self.heard().begun;
            if !self.hears(Duration::from_secs(1), |heard| heard.begun > begun).await {
                return;
            }
        }
    }

    /// Says goodbye: everything that was heard.
    pub(crate) async fn close(mut self) -> Heard {
        self.orders.send(Order::Send(r#"{"type": "session.close"}"#.to_owned())).await.unwrap();
        assert!(self.hears(PATIENCE, |heard| heard.over).await, "{}: no goodbye", self.name);
        self.heard()
    }
}

/// Sends audio in real time, silence where nothing is said.
async fn microphone(mut up: impl Sink<Message> + Unpin, mut orders: mpsc::Receiver<Order>) {
    let mut ticks = interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut waiting: VecDeque<i16> = VecDeque::new();
    let mut saying = None;
    loop {
        tokio::select! {
            order = orders.recv(), if saying.is_none() => match order {
                Some(Order::Say(samples, said)) => {
                    waiting.extend(samples);
                    saying = Some(said);
                }
                Some(Order::Send(text)) => drop(up.send(Message::text(text)).await),
                // Nobody is there any more; what is to be said has been.
                None => return sleep(PATIENCE).await,
            },
            _ = ticks.tick() => {
                let count = waiting.len().min(FRAME_SAMPLES);
                let mut frame: Vec<i16> = waiting.drain(..count).collect();
                frame.resize(FRAME_SAMPLES, 0);
                let bytes: Vec<u8> = frame.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                if up.send(Message::binary(bytes)).await.is_err() {
                    return;
                }
                if waiting.is_empty() && let Some(said) = saying.take() {
                    let _nobody_waits = said.send(());
                }
            }
        }
    }
}
