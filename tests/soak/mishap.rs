//! What goes wrong, and when a talk may go on as if nothing had been.

use std::{path::Path, time::Duration};

use futures_util::future::join;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use voxbridge::simulator::{
    Backend, SimulatorConfig,
    socket::{self, Breaker},
};

use super::{
    bridge::SESSION_MAX,
    talker::{PATIENCE, Talker},
    wire::Wire,
};

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mishap {
    /// Nothing: a question and its answer.
    None,
    /// The simulated model does this in its next turn, or while it listens.
    Fault(&'static str),
    /// The connection is cut, and whoever dials meets this; it is over after so many seconds.
    AtReconnect(&'static str, u64),
    /// The user speaks into the answer, and the model does this.
    BargeIn(&'static str),
    /// The connection is cut while the user speaks.
    CutInSentence,
    /// The connection is cut while the model speaks.
    CutInTurn,
    /// Nothing passes for a while, in either direction, and nobody is told.
    HalfOpen,
    /// The connection is cut, and new ones are accepted without a word.
    BlackHole,
    /// The gateway is stopped, and started again at its address.
    Restart,
}

/// Everything there is; a stuck queue is not, because it ends a session by design.
pub(crate) const MISHAPS: [Mishap; 33] = [
    Mishap::None,
    Mishap::Fault("double-terminal,times=12"),
    Mishap::Fault("repeats-text,times=1"),
    Mishap::Fault("think,times=1"),
    Mishap::Fault("die-mid-turn,times=1"),
    Mishap::Fault("die-mid-turn=0,times=1"),
    Mishap::Fault("drop-mid-turn,times=1"),
    Mishap::Fault("drop-mid-turn=2,times=1"),
    Mishap::Fault("slow-steps=1.4,times=4"),
    Mishap::Fault("never-answers,times=1"),
    Mishap::BargeIn(""),
    Mishap::BargeIn("burst=34,times=1"),
    Mishap::BargeIn("yields,times=1"),
    Mishap::BargeIn("late-audio,times=1"),
    Mishap::BargeIn("ignores-force=2,times=1"),
    Mishap::BargeIn("never-listens,times=1"),
    Mishap::BargeIn("slow-steps=0.9,times=8"),
    Mishap::AtReconnect("queue-full,times=2", 0),
    Mishap::AtReconnect("busy,times=3", 0),
    Mishap::AtReconnect("403-after-queue=2", 0),
    Mishap::AtReconnect("slow-init=1.5,times=1", 0),
    Mishap::AtReconnect("slow-init=60,times=1", 5),
    Mishap::AtReconnect("die-before-created,times=2", 0),
    Mishap::AtReconnect("timeout=4.5,times=1", 7),
    Mishap::AtReconnect("timeout=1,times=2", 5),
    Mishap::AtReconnect("kv=7300,times=1", 0),
    Mishap::AtReconnect("kv=8100,times=1", 0),
    Mishap::AtReconnect("context-full=160,times=1", 12),
    Mishap::CutInSentence,
    Mishap::CutInTurn,
    Mishap::HalfOpen,
    Mishap::BlackHole,
    Mishap::Restart,
];

/// A simulated gateway behind a wire, both to be broken.
pub(crate) struct Upstream {
    config: SimulatorConfig,
    address: String,
    breaker: Breaker,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    pub(crate) wire: Wire,
}

impl Upstream {
    pub(crate) async fn start(backend: Backend) -> Self {
        let config = SimulatorConfig { backend, limit_audio: SESSION_MAX, ..SimulatorConfig::default() };
        let simulator = socket::bind("127.0.0.1:0", config.clone()).await.unwrap();
        let (address, breaker) = (simulator.local_addr(), simulator.breaker());
        let mut upstream = Self {
            config,
            address: address.to_string(),
            breaker,
            running: None,
            wire: Wire::to(address).await,
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
        timeout(PATIENCE, task).await.unwrap().unwrap();
        sleep(pause).await;
        let simulator = socket::bind(&self.address, self.config.clone()).await.unwrap();
        self.breaker = simulator.breaker();
        self.run(simulator);
    }

    async fn begin(&self, fault: &str) {
        if !fault.is_empty() {
            self.breaker.begin(fault.parse().unwrap()).await;
        }
    }
}

/// Who a mishap happens to, and when.
pub(crate) struct Stage<'a> {
    pub(crate) upstream: &'a mut Upstream,
    pub(crate) talker: &'a mut Talker,
    pub(crate) rng: &'a mut fastrand::Rng,
}

impl Stage<'_> {
    /// Lets it happen while something is said, and waits until it is over, answered or not.
    pub(crate) async fn suffer(&mut self, mishap: Mishap) {
        let moment = Duration::from_millis(self.rng.u64(200..2500));
        let sentence = sentence(self.rng);
        let mut lasts_s = 1;
        match mishap {
            Mishap::None => self.talker.say(sentence).await,
            Mishap::Fault(fault) => {
                self.upstream.begin(fault).await;
                self.talker.say(sentence).await;
                lasts_s = 6;
            }
            Mishap::AtReconnect(fault, seconds) => {
                self.upstream.begin(fault).await;
                self.cut_into(sentence, moment).await;
                lasts_s += seconds;
            }
            Mishap::BargeIn(fault) => {
                self.upstream.begin(fault).await;
                self.barge_in(sentence, moment).await;
                // A model that does not listen is given up after five seconds.
                lasts_s = 4;
            }
            Mishap::CutInSentence => self.cut_into(sentence, moment).await,
            Mishap::CutInTurn => {
                self.hear_answer(sentence).await;
                sleep(moment).await;
                self.upstream.wire.cut();
            }
            Mishap::HalfOpen => self.hold(sentence, moment, false).await,
            Mishap::BlackHole => self.hold(sentence, moment, true).await,
            Mishap::Restart => {
                let restart = async {
                    sleep(moment).await;
                    self.upstream.restart(moment).await;
                };
                join(self.talker.say(sentence), restart).await;
            }
        }
        sleep(Duration::from_secs(lasts_s)).await;
        self.upstream.breaker.mend().await;
    }

    /// Something is said, and its answer begins.
    async fn hear_answer(&mut self, sentence: Vec<i16>) {
        let begun = self.talker.heard().begun;
        self.talker.say(sentence).await;
        assert!(self.talker.hears(PATIENCE, |heard| heard.begun > begun).await, "no answer begins");
    }

    async fn cut_into(&self, sentence: Vec<i16>, moment: Duration) {
        let cut = async {
            sleep(moment).await;
            self.upstream.wire.cut();
        };
        join(self.talker.say(sentence), cut).await;
    }

    async fn barge_in(&mut self, first: Vec<i16>, moment: Duration) {
        self.hear_answer(first).await;
        let ended = self.talker.heard().ended;
        sleep(moment.min(Duration::from_millis(1500))).await;
        self.talker.say(sentence(self.rng)).await;
        let yields = self.talker.hears(Duration::from_secs(3), |heard| heard.ended > ended).await;
        assert!(yields, "the model is heard on while the user speaks");
    }

    /// For longer than a step of the model may take.
    async fn hold(&self, sentence: Vec<i16>, moment: Duration, cut: bool) {
        let wire = &self.upstream.wire;
        let hold = async {
            sleep(moment).await;
            wire.hold(true);
            if cut {
                wire.cut();
            }
            sleep(Duration::from_secs(5) + moment).await;
            wire.hold(false);
        };
        join(self.talker.say(sentence), hold).await;
    }
}

/// Short recordings: a turn of the talk takes seconds.
const SENTENCES: [&str; 4] = ["goforward", "librivox_0880", "cards_005", "arctic_a0007"];

/// Something to say, 16 kHz.
pub(crate) fn sentence(rng: &mut fastrand::Rng) -> Vec<i16> {
    let name = SENTENCES[rng.usize(..SENTENCES.len())];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/speech/{name}_16k.wav"));
    hound::WavReader::open(path).unwrap().samples::<i16>().map(Result::unwrap).collect()
}
