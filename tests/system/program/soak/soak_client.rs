//! A client in a room: its microphone streams continuously, and its speech consists of recordings.

use futures_util::Sink;
use tokio::sync::mpsc;

use super::{observer::ClientObserver, *};

const FRAME: Duration = Duration::from_millis(20);
const FRAME_SAMPLES: usize = 320;

/// Longer than any event takes, even on a busy machine.
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

    /// The observations so far; panics at a violation.
    pub(crate) fn checked_observations(&self) -> Observations {
        let observations = self.observations.borrow().clone();
        assert!(observations.first_violation.is_none(), "{}: {:?}", self.name, observations.first_violation);
        observations
    }

    /// Says these samples; completes after the last one.
    pub(crate) async fn speak(&self, samples: Vec<i16>) {
        let (done_sender, done) = oneshot::channel();
        // If the session is over, the wait for the answer reports it.
        drop(self.commands.send(MicrophoneCommand::Say(samples, done_sender)).await);
        drop(done.await);
    }

    /// True if the condition holds within this time. Panics at a violation or the end of the session.
    pub(crate) async fn wait_until(
        &mut self,
        within: Duration,
        condition: impl Fn(&Observations) -> bool,
    ) -> bool {
        let is_done = |observations: &Observations| {
            observations.first_violation.is_some() || observations.is_session_over || condition(observations)
        };
        let is_met = timeout(within, self.observations.wait_for(is_done)).await.is_ok();
        let observations = self.checked_observations();
        assert!(!observations.is_session_over || condition(&observations), "{}: it is over", self.name);
        is_met
    }

    /// Waits for a second of silence.
    pub(crate) async fn wait_for_silence(&mut self) {
        let start = Instant::now();
        loop {
            let is_silent = self
                .wait_until(EVENT_TIMEOUT, |observations| {
                    observations.turns_started == observations.turns_ended
                })
                .await;
            assert!(is_silent && start.elapsed() < 2 * EVENT_TIMEOUT, "{}: never silent", self.name);
            let turns_before = self.checked_observations().turns_started;
            if !self
                .wait_until(Duration::from_secs(1), |observations| observations.turns_started > turns_before)
                .await
            {
                return;
            }
        }
    }

    /// Closes the session and returns all observations.
    pub(crate) async fn close(mut self) -> Observations {
        self.commands.send(MicrophoneCommand::Send(r#"{"type": "session.close"}"#.to_owned())).await.unwrap();
        assert!(
            self.wait_until(EVENT_TIMEOUT, |observations| observations.is_session_over).await,
            "{}: no session.closed",
            self.name
        );
        self.checked_observations()
    }
}

/// Streams audio in real time; silence when there is nothing to say.
async fn run_microphone(mut up: impl Sink<Message> + Unpin, mut commands: mpsc::Receiver<MicrophoneCommand>) {
    let mut ticks = interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut queued_samples: VecDeque<i16> = VecDeque::new();
    let mut done_sender = None;
    loop {
        tokio::select! {
            command = commands.recv(), if done_sender.is_none() => match command {
                Some(MicrophoneCommand::Say(samples, sender)) => {
                    queued_samples.extend(samples);
                    done_sender = Some(sender);
                }
                Some(MicrophoneCommand::Send(text)) => drop(up.send(Message::text(text)).await),
                // The client is dropped; all speech was sent.
                None => return sleep(EVENT_TIMEOUT).await,
            },
            _ = ticks.tick() => {
                let count = queued_samples.len().min(FRAME_SAMPLES);
                let mut frame: Vec<i16> = queued_samples.drain(..count).collect();
                frame.resize(FRAME_SAMPLES, 0);
                let bytes: Vec<u8> = frame.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                if up.send(Message::binary(bytes)).await.is_err() {
                    return;
                }
                if queued_samples.is_empty() && let Some(sender) = done_sender.take() {
                    let _nobody_waits = sender.send(());
                }
            }
        }
    }
}
