//! Disruptions of a conversation, and the point at which each one is over.

use futures_util::future::join;
use voxbridge::simulator::socket::{self, FaultInjector};

use super::{bridge::MAX_SESSION_DURATION, *};

/// One disruption.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Disruption {
    /// None: a question and its answer.
    None,
    /// The simulated model shows this fault in its next turn or while it listens.
    Fault(&'static str),
    /// The connection is cut, and reconnections meet this fault for this many seconds.
    FaultAtReconnect(&'static str, u64),
    /// The user interrupts the answer, and the model reacts with this fault.
    BargeIn(&'static str),
    /// The connection is cut while the user speaks.
    CutDuringSpeech,
    /// The connection is cut while the model speaks.
    CutDuringTurn,
    /// No data passes in either direction for a while, and neither end notices.
    HalfOpen,
    /// The connection is cut, and new ones are accepted but get no data.
    BlackHole,
    /// The gateway is stopped and restarted at its address.
    Restart,
}

/// All disruptions. A stuck queue is left out, because it ends a session by design.
pub(crate) const DISRUPTIONS: [Disruption; 33] = [
    Disruption::None,
    Disruption::Fault("double-terminal,times=12"),
    Disruption::Fault("repeats-text,times=1"),
    Disruption::Fault("think,times=1"),
    Disruption::Fault("die-mid-turn,times=1"),
    Disruption::Fault("die-mid-turn=0,times=1"),
    Disruption::Fault("drop-mid-turn,times=1"),
    Disruption::Fault("drop-mid-turn=2,times=1"),
    Disruption::Fault("slow-steps=1.4,times=4"),
    Disruption::Fault("never-answers,times=1"),
    Disruption::BargeIn(""),
    Disruption::BargeIn("burst=34,times=1"),
    Disruption::BargeIn("yields,times=1"),
    Disruption::BargeIn("late-audio,times=1"),
    Disruption::BargeIn("ignores-force=2,times=1"),
    Disruption::BargeIn("never-listens,times=1"),
    Disruption::BargeIn("slow-steps=0.9,times=8"),
    Disruption::FaultAtReconnect("queue-full,times=2", 0),
    Disruption::FaultAtReconnect("busy,times=3", 0),
    Disruption::FaultAtReconnect("403-after-queue=2", 0),
    Disruption::FaultAtReconnect("slow-init=1.5,times=1", 0),
    Disruption::FaultAtReconnect("slow-init=60,times=1", 5),
    Disruption::FaultAtReconnect("die-before-created,times=2", 0),
    Disruption::FaultAtReconnect("timeout=4.5,times=1", 7),
    Disruption::FaultAtReconnect("timeout=1,times=2", 5),
    Disruption::FaultAtReconnect("kv=7300,times=1", 0),
    Disruption::FaultAtReconnect("kv=8100,times=1", 0),
    Disruption::FaultAtReconnect("context-full=160,times=1", 12),
    Disruption::CutDuringSpeech,
    Disruption::CutDuringTurn,
    Disruption::HalfOpen,
    Disruption::BlackHole,
    Disruption::Restart,
];

/// A simulated gateway behind a proxy. Both can be disrupted.
pub(crate) struct DisruptedUpstream {
    config: SimulatorConfig,
    address: String,
    fault_injector: FaultInjector,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    pub(crate) wire: TcpProxy,
}

/// A network that breaks while a lane waits in the queue costs a real gateway its only worker, whatever voxbridge does.
const NOTICES_LEAVERS: &str = "notices-leavers";

impl DisruptedUpstream {
    pub(crate) async fn start(backend: Backend) -> Self {
        let config = SimulatorConfig {
            backend,
            audio_time_limit: MAX_SESSION_DURATION,
            faults: vec![NOTICES_LEAVERS.parse().unwrap()],
            ..SimulatorConfig::default()
        };
        let simulator = socket::bind("127.0.0.1:0", config.clone()).await.unwrap();
        let (address, fault_injector) = (simulator.local_addr(), simulator.fault_injector());
        let mut upstream = Self {
            config,
            address: address.to_string(),
            fault_injector,
            running: None,
            wire: TcpProxy::to(address).await,
        };
        upstream.run(simulator);
        upstream
    }

    fn run(&mut self, simulator: socket::Simulator) {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(simulator.run(async move { drop(stopped.await) }));
        self.running = Some((stop, task));
    }

    async fn restart(&mut self, pause: Duration) {
        let (stop, task) = self.running.take().unwrap();
        drop(stop);
        timeout(EVENT_TIMEOUT, task).await.unwrap().unwrap();
        sleep(pause).await;
        let simulator = socket::bind(&self.address, self.config.clone()).await.unwrap();
        self.fault_injector = simulator.fault_injector();
        self.run(simulator);
    }

    async fn inject_fault(&self, fault: &str) {
        if !fault.is_empty() {
            self.fault_injector.inject(fault.parse().unwrap()).await;
        }
    }
}

/// The client and upstream of a disruption.
pub(crate) struct DisruptionRun<'a> {
    pub(crate) upstream: &'a mut DisruptedUpstream,
    pub(crate) client: &'a mut SoakClient,
    pub(crate) rng: &'a mut fastrand::Rng,
}

impl DisruptionRun<'_> {
    /// Applies the disruption during speech and waits until it is over, answered or not.
    pub(crate) async fn apply(&mut self, disruption: Disruption) {
        let delay = Duration::from_millis(self.rng.u64(200..2500));
        let speech = random_recording(self.rng);
        let mut settle_s = 1;
        match disruption {
            Disruption::None => self.client.speak(speech).await,
            Disruption::Fault(fault) => {
                self.upstream.inject_fault(fault).await;
                self.client.speak(speech).await;
                settle_s = 6;
            }
            Disruption::FaultAtReconnect(fault, seconds) => {
                self.upstream.inject_fault(fault).await;
                self.cut_during_speech(speech, delay).await;
                settle_s += seconds;
            }
            Disruption::BargeIn(fault) => {
                self.upstream.inject_fault(fault).await;
                self.barge_in_on_answer(speech, delay).await;
                // A model that does not listen is given up after five seconds.
                settle_s = 4;
            }
            Disruption::CutDuringSpeech => self.cut_during_speech(speech, delay).await,
            Disruption::CutDuringTurn => {
                self.speak_until_answer_starts(speech).await;
                sleep(delay).await;
                self.upstream.wire.cut();
            }
            Disruption::HalfOpen => self.stall_wire(speech, delay, false).await,
            Disruption::BlackHole => self.stall_wire(speech, delay, true).await,
            Disruption::Restart => {
                let restart = async {
                    sleep(delay).await;
                    self.upstream.restart(delay).await;
                };
                join(self.client.speak(speech), restart).await;
            }
        }
        sleep(Duration::from_secs(settle_s)).await;
        self.upstream.fault_injector.clear_faults().await;
        self.upstream.inject_fault(NOTICES_LEAVERS).await;
    }

    /// Speaks until the answer begins.
    async fn speak_until_answer_starts(&mut self, speech: Vec<i16>) {
        let turns_before = self.client.checked_observations().turns_started;
        self.client.speak(speech).await;
        assert!(
            self.client
                .wait_until(EVENT_TIMEOUT, |observations| observations.turns_started > turns_before)
                .await,
            "the answer does not begin"
        );
    }

    async fn cut_during_speech(&self, speech: Vec<i16>, delay: Duration) {
        let cut = async {
            sleep(delay).await;
            self.upstream.wire.cut();
        };
        join(self.client.speak(speech), cut).await;
    }

    async fn barge_in_on_answer(&mut self, first: Vec<i16>, delay: Duration) {
        self.speak_until_answer_starts(first).await;
        let ended_before = self.client.checked_observations().turns_ended;
        sleep(delay.min(Duration::from_millis(1500))).await;
        self.client.speak(random_recording(self.rng)).await;
        let has_yielded = self
            .client
            .wait_until(Duration::from_secs(3), |observations| observations.turns_ended > ended_before)
            .await;
        assert!(has_yielded, "the model is still played while the user speaks");
    }

    /// Stalls for longer than one unit of the model may take.
    async fn stall_wire(&self, speech: Vec<i16>, delay: Duration, cut: bool) {
        let wire = &self.upstream.wire;
        let hold = async {
            sleep(delay).await;
            wire.set_paused(true);
            if cut {
                wire.cut();
            }
            sleep(Duration::from_secs(5) + delay).await;
            wire.set_paused(false);
        };
        join(self.client.speak(speech), hold).await;
    }
}

/// Short recordings, so that a turn takes seconds.
const RECORDINGS: [&str; 4] = ["goforward", "librivox_0880", "cards_005", "arctic_a0007"];

/// A random recording, 16 kHz.
pub(crate) fn random_recording(rng: &mut fastrand::Rng) -> Vec<i16> {
    let name = RECORDINGS[rng.usize(..RECORDINGS.len())];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/speech/{name}_16k.wav"));
    hound::WavReader::open(path).unwrap().samples::<i16>().map(Result::unwrap).collect()
}
