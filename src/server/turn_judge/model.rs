//! An end-of-turn model of the shape of Smart Turn 3, run by rten in pure Rust.
//!
//! The model hears the newest speech as a [log-mel spectrogram](crate::audio::log_mel) and gives the probability that the user has
//! finished. The size of the spectrogram stands in the file: Smart Turn 3 hears the last 8 s in 80 bands. Its weights (`smart-turn-v3.2-cpu.onnx`, int8, BSD-2-Clause) lie in PyPI's pipecat-ai; `examples/engines/setup`
//! fetches them. The probabilities of different runtimes differ by up to 0.4 in single cases, because the weights are int8
//! (mappings/notes/turn-end.md#noise).

use std::{path::Path, sync::Arc};

use rten::{Dimension, Model, NodeId, RunOptions, ThreadPool};
use rten_tensor::{AsView as _, NdTensor};

use super::Judge;
use crate::audio::log_mel::{LogMel, Size};

/// Largest file that is read.
const WEIGHTS_MAX_BYTES: u64 = 256 << 20;

/// Bands and frames of the largest spectrogram that is computed: 30 s, as Whisper hears.
const LARGEST: Size = Size { bands: 256, frames: 3000 };

/// Checks that a file can be used: that it exists, and has a size that fits. Loading tells the rest.
pub(crate) fn check(weights: &Path) -> Result<(), String> {
    let file = std::fs::metadata(weights).map_err(|error| problem(weights, &error.to_string()))?;
    match file.len() {
        _ if !file.is_file() => Err(problem(weights, "it is no file")),
        0 => Err(problem(weights, "it is empty")),
        bytes if bytes > WEIGHTS_MAX_BYTES => Err(problem(weights, "it is larger than 256 MiB")),
        _ => Ok(()),
    }
}

/// Loads the weights. The function makes judges that share them, each for a thread of its own.
pub(crate) fn load(weights: &Path) -> Result<impl Fn() -> Judge + use<>, String> {
    check(weights)?;
    let model = Model::load_file(weights).map_err(|error| problem(weights, &error.to_string()))?;
    let &[input] = model.input_ids() else { return Err(problem(weights, "it has several inputs")) };
    let &[output] = model.output_ids() else { return Err(problem(weights, "it has several outputs")) };
    let shape = model.input_shape(0);
    let Some(size) = shape.as_deref().and_then(spectrogram_size) else {
        return Err(problem(weights, "its input is not 1 to 256 mel bands of 2 to 3000 frames"));
    };
    let model = Arc::new(SmartTurn { model, input, output, size });
    if model.run(LogMel::new(size).compute(&[]), one_thread()).is_none() {
        let words =
            format!("it does not turn {} mel bands of {} frames into a probability", size.bands, size.frames);
        return Err(problem(weights, &words));
    }
    Ok(move || -> Judge {
        let (model, log_mel, threads) = (model.clone(), LogMel::new(size), one_thread());
        Box::new(move |audio| model.run(log_mel.compute(audio), threads.clone()))
    })
}

/// Size of the spectrogram that a model takes: the last two dimensions of its input, after that of a batch.
fn spectrogram_size(shape: &[Dimension]) -> Option<Size> {
    let &[_, Dimension::Fixed(bands), Dimension::Fixed(frames)] = shape else { return None };
    let fits = (1..=LARGEST.bands).contains(&bands) && (2..=LARGEST.frames).contains(&frames);
    fits.then_some(Size { bands, frames })
}

fn problem(weights: &Path, words: &str) -> String {
    format!(
        "{}: {words}; use Smart Turn's smart-turn-v3.2-cpu.onnx, which examples/engines/setup fetches, or a model of its shape",
        weights.display()
    )
}

/// A judge computes on one thread of rten's. Several would take the processors from conversations.
fn one_thread() -> Arc<ThreadPool> {
    Arc::new(ThreadPool::with_num_threads(1))
}

struct SmartTurn {
    model: Model,
    input: NodeId,
    output: NodeId,
    size: Size,
}

impl SmartTurn {
    /// Probability that the user has finished; `None` if the model fails.
    fn run(&self, features: Vec<f32>, threads: Arc<ThreadPool>) -> Option<f32> {
        let features = NdTensor::from_data([1, self.size.bands, self.size.frames], features);
        let options = RunOptions::default().with_thread_pool(Some(threads));
        let inputs = vec![(self.input, features.view().into())];
        let result = self.model.run(inputs, &[self.output], Some(options));
        let outputs = result.inspect_err(|error| tracing::warn!(%error, "the end-of-turn model failed"));
        let output = outputs.ok()?.into_iter().next()?.into_tensor::<f32>()?;
        match output.to_vec()[..] {
            [probability] if (0.0..=1.0).contains(&probability) => Some(probability),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_the_spectrogram_is_that_of_the_file() {
        let batch = || Dimension::Symbolic("batch".to_owned());
        let size = |sizes: &[usize]| {
            let sizes = sizes.iter().map(|size| Dimension::Fixed(*size));
            spectrogram_size(&[batch()].into_iter().chain(sizes).collect::<Vec<_>>())
        };
        assert_eq!(size(&[80, 800]), Some(Size::SMART_TURN));
        assert_eq!(size(&[128, 1600]), Some(Size { bands: 128, frames: 1600 }));
        for unusable in [&[][..], &[800], &[0, 800], &[80, 1], &[80, 100_000], &[1, 80, 800]] {
            assert_eq!(size(unusable), None, "{unusable:?}");
        }
        assert_eq!(spectrogram_size(&[batch(), Dimension::Fixed(80), batch()]), None);
    }

    #[test]
    fn unusable_files_are_errors_that_say_what_to_do() {
        let empty = std::env::temp_dir().join(format!("voxbridge-empty-{}.onnx", std::process::id()));
        std::fs::write(&empty, "").unwrap();
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        for path in [Path::new("/nowhere/smart-turn.onnx"), Path::new("/"), &empty, &manifest] {
            let Err(problem) = load(path) else { panic!("{} was loaded", path.display()) };
            assert!(problem.contains("examples/engines/setup fetches"), "{problem}");
        }
        std::fs::remove_file(empty).unwrap();
    }
}
