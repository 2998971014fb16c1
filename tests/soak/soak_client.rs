//! A client in a room: its microphone never stops, what it says are recordings, and it answers nothing.

use std::{collections::VecDeque, time::Duration};

use futures_util::{Sink, SinkExt as _, StreamExt as _};
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_tungstenite::{client_async, tungstenite::Message};

use super::observer::{ClientObserver, Observations};

const FRAME: Duration = Duration::from_millis(20);
const FRAME_SAMPLES: usize = 320;

/// Everything here happens sooner, on a machine with nothing else to do and with much else.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(25);

enum MicrophoneCommand {
    Say(Vec<i16>, oneshot::Sender<()>),
    Send(String),
}

/// One client.
pub(crate) struct SoakClient {
    name: String,
    commands: mpsc::Sender<MicrophoneCommand>,
    observations: watch::Receiver<Observations>,
}

impl SoakClient {
    pub(crate) async fn connect(name: &str, address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/v1/realtime?model=soak&rollover_events=true");
        let (socket, _) = client_async(url, stream).await.unwrap();
        let (up, down) = socket.split();
        let (commands, taken) = mpsc::channel(8);
        let (listener, observations) = ClientObserver::new();
        tokio::spawn(run_microphone(up, taken));
        tokio::spawn(listener.run(down));
        Self { name: name.to_owned(), commands, observations }
    }

    /// What was heard so far; nothing of it was wrong.
    pub(crate) fn checked_observations(&self) -> Observations {
        let heard = self.observations.borrow().clone();
        assert!(heard.first_violation.is_none(), "{}: {}", self.name, heard.first_violation.unwrap());
        heard
    }

    /// Says this; done when the last of it is said.
    pub(crate) async fn speak(&self, samples: Vec<i16>) {
        let (said, done) = oneshot::channel();
        // A session that is over is noticed by whoever waits for an answer.
        drop(self.commands.send(MicrophoneCommand::Say(samples, said)).await);
        drop(done.await);
    }

    /// Whether this holds within so much time; nothing goes wrong meanwhile, and the session is not over.
    pub(crate) async fn wait_until(
        &mut self,
        within: Duration,
        holds: impl Fn(&Observations) -> bool,
    ) -> bool {
        let met =
            |heard: &Observations| heard.first_violation.is_some() || heard.is_session_over || holds(heard);
        let met = timeout(within, self.observations.wait_for(met)).await.is_ok();
        let heard = self.checked_observations();
        assert!(!heard.is_session_over || holds(&heard), "{}: the session is over", self.name);
        met
    }

    /// Nobody speaks for a second.
    pub(crate) async fn wait_for_silence(&mut self) {
        let start = Instant::now();
        loop {
            let closed =
                self.wait_until(EVENT_TIMEOUT, |heard| heard.turns_started == heard.turns_ended).await;
            assert!(
                closed && start.elapsed() < 2 * EVENT_TIMEOUT,
                "{}: the model does not stop speaking",
                self.name
            );
            let begun = self.checked_observations().turns_started;
            if !self.wait_until(Duration::from_secs(1), |heard| heard.turns_started > begun).await {
                return;
            }
        }
    }

    /// Says goodbye: everything that was heard.
    pub(crate) async fn close(mut self) -> Observations {
        self.commands.send(MicrophoneCommand::Send(r#"{"type": "session.close"}"#.to_owned())).await.unwrap();
        assert!(
            self.wait_until(EVENT_TIMEOUT, |heard| heard.is_session_over).await,
            "{}: no goodbye",
            self.name
        );
        self.checked_observations()
    }
}

/// Sends audio in real time, silence where nothing is said.
async fn run_microphone(mut up: impl Sink<Message> + Unpin, mut orders: mpsc::Receiver<MicrophoneCommand>) {
    let mut ticks = interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut waiting: VecDeque<i16> = VecDeque::new();
    let mut saying = None;
    loop {
        tokio::select! {
            order = orders.recv(), if saying.is_none() => match order {
                Some(MicrophoneCommand::Say(samples, said)) => {
                    waiting.extend(samples);
                    saying = Some(said);
                }
                Some(MicrophoneCommand::Send(text)) => drop(up.send(Message::text(text)).await),
                // Nobody is there any more; what is to be said has been.
                None => return sleep(EVENT_TIMEOUT).await,
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
