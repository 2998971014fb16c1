//! Judges of the turn's end: a bounded pool of threads that run an end-of-turn model for all sessions.
//!
//! A session asks once in a pause of the user's speech, waits for the verdict for some seconds at most, and falls back on a
//! fixed rule without one. So a question that finds the queue full is refused at once. A question that its session has withdrawn
//! is not computed, and takes no place in the queue. The oldest question is answered first: the queue is so short that each of
//! its questions gets its verdict in time, also where an inference takes three times as long as it should. [`model`] runs Smart
//! Turn; a program without the cargo feature `turn-model` has none. [`remote`] asks a server instead.

#[cfg(feature = "turn-model")]
pub(crate) mod model;
#[cfg(not(feature = "turn-model"))]
#[path = "off.rs"]
pub(crate) mod model;
mod remote;

use std::{
    collections::VecDeque,
    io,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use tokio::{sync::oneshot, time::Instant};
use tracing::error;

use crate::{net::http_request::RequestTarget, telemetry::metrics::Metrics};

/// Questions that wait for each thread. An inference takes about 0.1 s, and a session waits at least 1 s for it, unless its client
/// wants otherwise.
const WAITING_PER_THREAD: usize = 3;

/// Where `examples/engines/setup` puts the weights.
pub(crate) const FETCHED_WEIGHTS: &str = "target/engines/smart-turn/smart-turn-v3.2-cpu.onnx";

/// Probability that the user has finished, from int16 mono audio at 16 kHz that ends in the pause; `None` if the model failed.
pub(crate) type Judge = Box<dyn FnMut(&[i16]) -> Option<f32> + Send>;

/// Handle to the pool. The threads end with the last handle.
#[derive(Debug, Clone)]
pub struct TurnJudge(Arc<PoolHandle>);

/// The state that all handles share. Dropping it ends the threads.
#[derive(Debug)]
struct PoolHandle(Arc<QuestionQueue>);

/// Questions that wait for a thread, oldest first.
#[derive(Debug)]
struct QuestionQueue {
    waiting: Mutex<WaitingQuestions>,
    changed: Condvar,
    max: usize,
}

#[derive(Debug, Default)]
struct WaitingQuestions {
    list: VecDeque<Question>,
    /// The last handle is gone.
    is_closed: bool,
}

#[derive(Debug)]
struct Question {
    audio: Arc<Vec<i16>>,
    reply: oneshot::Sender<Option<f32>>,
}

/// Checks that a file with weights can be used, without reading all of it.
///
/// # Errors
/// A message that says what is wrong with the file, or that this program cannot run a model.
pub(crate) fn check(weights: &Path) -> Result<(), String> {
    model::check(weights)
}

impl TurnJudge {
    /// Loads the model's weights, and starts one thread for every two processors.
    ///
    /// # Errors
    /// A message that says what is wrong with the file, or that this program cannot run a model.
    pub fn load(weights: &Path, metrics: Metrics) -> Result<Self, String> {
        let new_judge = model::load(weights)?;
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let judges = (0..(processors / 2).max(1)).map(|_| new_judge());
        Self::start(judges.collect(), metrics).map_err(|error| format!("cannot start a thread: {error}"))
    }

    /// Asks a server, with a thread for each question at a time.
    ///
    /// # Errors
    /// A message with the system's error.
    pub fn remote(server: &RequestTarget, metrics: Metrics) -> Result<Self, String> {
        let judges = (0..remote::THREADS).map(|_| remote::judge(server.clone())).collect::<io::Result<_>>();
        judges
            .and_then(|judges| Self::start(judges, metrics))
            .map_err(|error| format!("cannot start a thread: {error}"))
    }

    /// Starts a thread for each judge.
    pub(super) fn start(judges: Vec<Judge>, metrics: Metrics) -> io::Result<Self> {
        let queue = Arc::new(QuestionQueue {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            max: WAITING_PER_THREAD * judges.len(),
        });
        let pool = Self(Arc::new(PoolHandle(queue.clone())));
        for (number, judge) in judges.into_iter().enumerate() {
            let (queue, metrics) = (queue.clone(), metrics.clone());
            let name = format!("turn-judge-{number}");
            thread::Builder::new().name(name).spawn(move || answer_all(&queue, judge, &metrics))?;
        }
        Ok(pool)
    }

    /// Asks whether the user has finished. `None` if too many questions wait. Dropping the receiver withdraws the question.
    pub fn ask(&self, audio: Arc<Vec<i16>>) -> Option<oneshot::Receiver<Option<f32>>> {
        let (reply, verdict) = oneshot::channel();
        let queue = &self.0.0;
        let list = &mut queue.lock().list;
        list.retain(|question| !question.reply.is_closed());
        if list.len() >= queue.max {
            return None;
        }
        list.push_back(Question { audio, reply });
        queue.changed.notify_one();
        Some(verdict)
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl QuestionQueue {
    fn lock(&self) -> MutexGuard<'_, WaitingQuestions> {
        // A panic leaves the questions as they were.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a question, and takes the oldest. `None` once the last handle is gone and no question waits.
    fn next(&self) -> Option<Question> {
        let is_idle = |waiting: &mut WaitingQuestions| waiting.list.is_empty() && !waiting.is_closed;
        let waiting = self.changed.wait_while(self.lock(), is_idle);
        waiting.unwrap_or_else(PoisonError::into_inner).list.pop_front()
    }
}

/// Answers questions until the last handle of the pool is gone.
fn answer_all(queue: &QuestionQueue, mut judge: Judge, metrics: &Metrics) {
    while let Some(Question { audio, reply }) = queue.next() {
        if reply.is_closed() {
            continue;
        }
        let started = Instant::now();
        // A judge keeps nothing from one question to the next that a panic could leave half done.
        let verdict = catch_unwind(AssertUnwindSafe(|| judge(&audio))).unwrap_or_else(|_| {
            error!("the end-of-turn model panicked on a pause; the fixed silence decides");
            None
        });
        metrics.record_turn_inference(started.elapsed().as_secs_f64());
        let _ = reply.send(verdict);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};

    use super::*;
    use crate::telemetry::metrics::scrape::ServerSnapshot;

    fn metrics() -> Metrics {
        Metrics::new(ServerSnapshot::default)
    }

    fn audio(samples: usize) -> Arc<Vec<i16>> {
        Arc::new(vec![0; samples])
    }

    /// A pool of one thread that answers with the length of the audio, once the test lets it.
    fn held_pool() -> (TurnJudge, mpsc::Sender<()>, Receiver<usize>) {
        let (release, released) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let judge: Judge = Box::new(move |audio| {
            begun.send(audio.len()).unwrap();
            released.recv().ok().map(|()| audio.len() as f32)
        });
        (TurnJudge::start(vec![judge], metrics()).unwrap(), release, begins)
    }

    #[test]
    fn full_queue_refuses_at_once() {
        let (pool, release, begins) = held_pool();
        let first = pool.ask(audio(1)).unwrap();
        assert_eq!(begins.recv(), Ok(1));
        let waiting: Vec<_> = (0..WAITING_PER_THREAD).map(|at| pool.ask(audio(2 + at)).unwrap()).collect();
        assert!(pool.ask(audio(9)).is_none());
        (0..=WAITING_PER_THREAD).for_each(|_| release.send(()).unwrap());
        let verdicts = [first].into_iter().chain(waiting).map(|verdict| verdict.blocking_recv().unwrap());
        assert_eq!(verdicts.collect::<Vec<_>>(), [Some(1.0), Some(2.0), Some(3.0), Some(4.0)]);
    }

    #[test]
    fn judge_that_panics_gives_no_verdict_and_answers_the_next_question() {
        let judge: Judge = Box::new(|audio| {
            assert!(audio.len() != 13, "an unlucky pause");
            Some(audio.len() as f32)
        });
        let pool = TurnJudge::start(vec![judge], metrics()).unwrap();
        for _ in 0..WAITING_PER_THREAD + 1 {
            assert_eq!(pool.ask(audio(13)).unwrap().blocking_recv(), Ok(None));
            assert_eq!(pool.ask(audio(7)).unwrap().blocking_recv(), Ok(Some(7.0)));
        }
    }

    #[test]
    fn oldest_question_is_answered_first() {
        let (pool, release, begins) = held_pool();
        let _first = pool.ask(audio(1)).unwrap();
        assert_eq!(begins.recv(), Ok(1));
        let _waiting: Vec<_> = (2..=4).map(|samples| pool.ask(audio(samples)).unwrap()).collect();
        (0..4).for_each(|_| release.send(()).unwrap());
        assert_eq!(begins.iter().take(3).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn withdrawn_question_gives_its_place_to_another() {
        let (pool, release, begins) = held_pool();
        let first = pool.ask(audio(1)).unwrap();
        assert_eq!(begins.recv(), Ok(1));
        let mut waiting: Vec<_> = (0..WAITING_PER_THREAD).map(|_| pool.ask(audio(2)).unwrap()).collect();
        waiting.pop();
        waiting.push(pool.ask(audio(3)).expect("a place is free again"));
        assert!(pool.ask(audio(4)).is_none());
        (0..=WAITING_PER_THREAD).for_each(|_| release.send(()).unwrap());
        let verdicts = [first].into_iter().chain(waiting).map(|verdict| verdict.blocking_recv().unwrap());
        assert_eq!(verdicts.collect::<Vec<_>>(), [Some(1.0), Some(2.0), Some(2.0), Some(3.0)]);
    }

    #[test]
    fn threads_end_with_the_last_handle() {
        let (pool, release, begins) = held_pool();
        drop(pool.clone());
        release.send(()).unwrap();
        assert!(pool.ask(audio(1)).unwrap().blocking_recv().is_ok());
        drop(pool);
        assert_eq!(begins.iter().collect::<Vec<_>>(), [1], "the judge is dropped with its thread");
    }

    #[test]
    fn withdrawn_question_is_not_computed() {
        let (pool, release, begins) = held_pool();
        let first = pool.ask(audio(1)).unwrap();
        assert_eq!(begins.recv(), Ok(1));
        drop(pool.ask(audio(2)));
        let third = pool.ask(audio(3)).unwrap();
        (0..2).for_each(|_| release.send(()).unwrap());
        assert_eq!((first.blocking_recv(), third.blocking_recv()), (Ok(Some(1.0)), Ok(Some(3.0))));
        assert_eq!(begins.recv(), Ok(3), "the second question was computed");
    }
}
