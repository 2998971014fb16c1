//! The voice activity net over 40 bands of three hops: three convolutional layers, two recurrent layers and a
//! weighted sum.
//!
//! The weights are those of earshot 1.2.2 (MIT or Apache-2.0, © pyke.io). The arithmetic is reordered to compute
//! sixteen channels or 32 cells at a time.

use std::sync::LazyLock;

use fearless_simd::{Level, Simd, dispatch, f32x8, f32x16, i16x32, i32x16, prelude::*};

use super::features::{BANDS, CONTEXT_HOPS};
use crate::pcm::to_i16;

static NET: LazyLock<Box<Net>> = LazyLock::new(|| Box::new(Net::read(include_bytes!("weights.bin"))));

const CHANNELS: usize = 16;
/// One value per channel.
type Channels = [f32; CHANNELS];
/// Positions along the bands after the first convolution with its max pooling, after the second, and after the
/// third.
const POSITIONS: [usize; 3] = [18, 9, 5];
/// Outputs of the third convolution.
const CONVOLUTION_OUTPUTS: usize = POSITIONS[2] * CHANNELS;
/// Cells of a recurrent layer.
const CELLS: usize = 64;
/// Positions computed at a time.
const LANES: usize = 8;
/// Cells in a vector, and vectors of cells computed at a time. A sum waits for the one before it for several cycles, so four
/// independent sums (values and gates) are under way. More would not fit into the registers of AVX2.
const CELL_LANES: usize = 16;
const CELL_VECTORS: usize = 2;

/// Recurrent state of one stream, Q15.
pub(super) struct NetState([[i16; CELLS]; 2]);

impl NetState {
    pub(super) const fn new() -> Self {
        Self([[0; CELLS]; 2])
    }

    /// Probability that the newest hop is speech, computed with the instructions of `level`.
    pub(super) fn score(&mut self, level: Level, bands: &[f32; CONTEXT_HOPS * BANDS]) -> f32 {
        let net = &**NET;
        let sum = dispatch!(level, simd => net.forward(simd, bands, &mut self.0));
        1.0 / (1.0 + (-(sum as f32 / 16_777_216.0)).exp())
    }
}

/// Weight of each band.
pub(super) fn band_weights() -> &'static [f32; BANDS] {
    &NET.bands
}

/// Weights of the net.
struct Net {
    bands: [f32; BANDS],
    kernel: [[f32; 3]; CONTEXT_HOPS],
    /// The positive and the negative weights of the first layer.
    above: Channels,
    below: Channels,
    bias: Channels,
    second: Convolution,
    second_bias: Channels,
    third: Convolution,
    first_recurrent: RecurrentLayer<CONVOLUTION_OUTPUTS>,
    second_recurrent: RecurrentLayer<CELLS>,
    output: [[i16; CELLS]; 2],
}

impl Net {
    fn read(bytes: &[u8]) -> Self {
        let mut reader = WeightReader(bytes);
        let bands = reader.floats();
        let kernel = [reader.floats(), reader.floats(), reader.floats()];
        let weights: Channels = reader.floats();
        Self {
            bands,
            kernel,
            above: weights.map(|weight| weight.max(0.0)),
            below: weights.map(|weight| weight.min(0.0)),
            bias: reader.floats(),
            second: Convolution::read(&mut reader),
            second_bias: reader.floats(),
            third: Convolution::read(&mut reader),
            first_recurrent: RecurrentLayer::read(&mut reader),
            second_recurrent: RecurrentLayer::read(&mut reader),
            output: [reader.integers(), reader.integers()],
        }
    }

    /// The output before the sigmoid, Q24.
    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        simd: S,
        bands: &[f32; CONTEXT_HOPS * BANDS],
        [near, far]: &mut [[i16; CELLS]; 2],
    ) -> i32 {
        let bias = f32x16::load_array(simd, self.second_bias);
        let second = self
            .second
            .apply::<S, { POSITIONS[0] }, { POSITIONS[1] }>(simd, &self.first_convolution(simd, bands));
        let second = second.map(|channels| relu(channels + bias));
        let third = self.third.apply::<S, { POSITIONS[1] }, { POSITIONS[2] }>(simd, &second);
        let mut found = [0; CONVOLUTION_OUTPUTS];
        for (found, channels) in found.as_chunks_mut().0.iter_mut().zip(third) {
            *found = channels.to_array().map(to_i16);
        }
        self.first_recurrent.update(simd, &found, near);
        self.second_recurrent.update(simd, near, far);
        // Q15 by Q9 is Q24.
        dot(near, &self.output[0]).wrapping_add(dot(far, &self.output[1]))
    }

    /// Convolves over bands and hops; then max pooling of three at every second position, and ReLU.
    #[inline(always)]
    fn first_convolution<S: Simd>(
        &self,
        simd: S,
        bands: &[f32; CONTEXT_HOPS * BANDS],
    ) -> [f32x16<S>; POSITIONS[0]] {
        let mut row = [f32x8::splat(simd, 0.0); BANDS / LANES];
        for (frame, kernel) in bands.as_chunks::<BANDS>().0.iter().zip(&self.kernel) {
            // Zero padding behind the last position.
            let mut padded = [0.0; BANDS + LANES];
            padded[..BANDS].copy_from_slice(frame);
            for (at, weight) in kernel.iter().enumerate() {
                for (place, sums) in row.iter_mut().enumerate() {
                    let bands = f32x8::from_slice(simd, &padded[LANES * place + at..][..LANES]);
                    *sums = bands.mul_add(*weight, *sums);
                }
            }
        }
        let row = row.map(|sums| sums.to_array());
        let row = row.as_flattened();
        let [above, below, bias] =
            [&self.above, &self.below, &self.bias].map(|each| f32x16::load_array_ref(simd, each));
        std::array::from_fn(
            #[inline(always)]
            |at| {
                let three = &row[2 * at..2 * at + 3];
                let most = max_ignoring_nan(max_ignoring_nan(three[0], three[1]), three[2]);
                let least = -max_ignoring_nan(max_ignoring_nan(-three[0], -three[1]), -three[2]);
                // The largest product with a weight comes from the largest or the smallest value,
                // depending on the sign.
                relu(above.mul_add(most, below.mul_add(least, bias)))
            },
        )
    }
}

/// Depthwise convolution over three positions with stride 2, then a pointwise mix of the channels.
struct Convolution {
    kernel: [Channels; 3],
    /// Contribution of each channel to all channels.
    mix: [Channels; CHANNELS],
}

impl Convolution {
    fn read(reader: &mut WeightReader<'_>) -> Self {
        let kernel = [(); CHANNELS].map(|()| reader.floats::<3>());
        let mix = [(); CHANNELS].map(|()| reader.floats::<CHANNELS>());
        Self {
            kernel: std::array::from_fn(|at| kernel.map(|weights| weights[at])),
            mix: std::array::from_fn(|from| mix.map(|weights| weights[from])),
        }
    }

    #[inline(always)]
    fn apply<S: Simd, const IN: usize, const OUT: usize>(
        &self,
        simd: S,
        input: &[f32x16<S>; IN],
    ) -> [f32x16<S>; OUT] {
        std::array::from_fn(
            #[inline(always)]
            |at| {
                let mut sums = f32x16::splat(simd, 0.0);
                for (offset, weights) in self.kernel.iter().enumerate() {
                    // Zero padding before the first and behind the last position.
                    if let Some(input) = (2 * at + offset).checked_sub(1).and_then(|place| input.get(place)) {
                        sums = input.mul_add(f32x16::load_array_ref(simd, weights), sums);
                    }
                }
                let mut mixed = f32x16::splat(simd, 0.0);
                for (sum, weights) in sums.as_array().iter().zip(&self.mix) {
                    mixed = f32x16::load_array_ref(simd, weights).mul_add(*sum, mixed);
                }
                mixed
            },
        )
    }
}

/// Minimal gated recurrent layer in integers (arXiv 2410.01201). Each cell moves towards a new value by the share
/// its gate gives. Value and gate depend on the input alone.
struct RecurrentLayer<const IN: usize> {
    values: Weights,
    gates: Weights,
}

/// For every [`CELL_VECTORS`] vectors of cells and every two consecutive inputs, two weights of each cell.
type Weights = Vec<[[i16; 2 * CELL_LANES]; CELL_VECTORS]>;

/// Just below one in Q24.
const ONE_Q24: i32 = (1 << 24) - 1;

impl<const IN: usize> RecurrentLayer<IN> {
    fn read(reader: &mut WeightReader<'_>) -> Self {
        Self { values: Self::weights(reader), gates: Self::weights(reader) }
    }

    fn weights(reader: &mut WeightReader<'_>) -> Weights {
        let mut weights = Vec::with_capacity(CELLS * IN / (2 * CELL_LANES * CELL_VECTORS));
        for _ in 0..CELLS / (CELL_LANES * CELL_VECTORS) {
            let cells =
                [[(); CELL_LANES]; CELL_VECTORS].map(|vector| vector.map(|()| reader.integers::<IN>()));
            let two = |at: usize| {
                cells.map(|vector| std::array::from_fn(|place| vector[place / 2][2 * at + place % 2]))
            };
            weights.extend((0..IN / 2).map(two));
        }
        weights
    }

    #[inline(always)]
    fn update<S: Simd>(&self, simd: S, input: &[i16; IN], cells: &mut [i16; CELLS]) {
        let weights = self.values.chunks_exact(IN / 2).zip(self.gates.chunks_exact(IN / 2));
        let cells = cells.as_chunks_mut::<{ CELL_LANES * CELL_VECTORS }>().0;
        for (cells, (values, gates)) in cells.iter_mut().zip(weights) {
            // Q15 by Q9 is Q24.
            let [values, gates] = dot_products(simd, input, values, gates);
            for ((cell, value), gate) in cells.iter_mut().zip(values.as_flattened()).zip(gates.as_flattened())
            {
                let gate = (gate << 2).clamp(0, ONE_Q24);
                let kept = i64::from(ONE_Q24 - gate) * (i64::from(*cell) << 9);
                let moved = kept + i64::from(gate) * i64::from(*value);
                *cell = (moved >> 33).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
            }
        }
    }
}

/// Dot products of the input with the weights of values and of gates.
#[inline(always)]
fn dot_products<S: Simd, const IN: usize>(
    simd: S,
    input: &[i16; IN],
    values: &[[[i16; 2 * CELL_LANES]; CELL_VECTORS]],
    gates: &[[[i16; 2 * CELL_LANES]; CELL_VECTORS]],
) -> [[[i32; CELL_LANES]; CELL_VECTORS]; 2] {
    let mut sums = [[i32x16::splat(simd, 0); CELL_VECTORS]; 2];
    for ([first, second], both_weights) in input.as_chunks::<2>().0.iter().zip(values.iter().zip(gates)) {
        let both = i32::from(*second) << 16 | i32::from(first.cast_unsigned());
        let both: i16x32<S> = i32x16::splat(simd, both).bitcast();
        for (sums, weights) in sums.iter_mut().zip([both_weights.0, both_weights.1]) {
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum += both.pairwise_dot_product(i16x32::load_array_ref(simd, weights));
            }
        }
    }
    sums.map(
        #[inline(always)]
        |sums| {
            sums.map(
                #[inline(always)]
                |sum| sum.to_array(),
            )
        },
    )
}

#[inline(always)]
fn dot(cells: &[i16; CELLS], weights: &[i16; CELLS]) -> i32 {
    let mut sum = 0_i32;
    for (cell, weight) in cells.iter().zip(weights) {
        sum = sum.wrapping_add(i32::from(*cell) * i32::from(*weight));
    }
    sum
}

/// Rectifier: negative values become zero.
#[inline(always)]
fn relu<S: Simd>(channels: f32x16<S>) -> f32x16<S> {
    channels.max(0.0)
}

/// `f32::max` handles NaN at three times the cost.
#[inline(always)]
const fn max_ignoring_nan(left: f32, right: f32) -> f32 {
    if left > right { left } else { right }
}

/// Reader for the weights file, little-endian.
struct WeightReader<'a>(&'a [u8]);

impl WeightReader<'_> {
    fn floats<const N: usize>(&mut self) -> [f32; N] {
        [(); N].map(|()| f32::from_le_bytes(self.bytes()))
    }

    fn integers<const N: usize>(&mut self) -> [i16; N] {
        [(); N].map(|()| i16::from_le_bytes(self.bytes()))
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.0.split_first_chunk().expect("the embedded weights file is complete");
        self.0 = rest;
        *bytes
    }
}
