//! The net that tells speech by 40 bands of three hops: three layers of convolution, two of memory, one sum.
//!
//! The weights are those of earshot 1.2.2 (MIT or Apache-2.0, © pyke.io). What it computes with them is computed here in
//! another order, sixteen channels or eight
//! numbers at a time.

use std::sync::LazyLock;

use wide::{f32x16, i16x8, i32x4};

use super::features::{BANDS, FRAMES};
use crate::audio::pcm::to_i16;

static NET: LazyLock<Box<Net>> = LazyLock::new(|| Box::new(Net::read(include_bytes!("weights.bin"))));

/// One value in each of 16 channels.
type Channels = f32x16;
const CHANNELS: usize = 16;
/// Places along the bands: after the first convolution, after its maxima were taken, after the second, after the third.
const PLACES: [usize; 4] = [BANDS - 2, 18, 9, 5];
/// What the third one finds, in eights.
const FOUND: usize = PLACES[3] * CHANNELS / 8;
/// Numbers that a layer of memory holds, and their eights.
const CELLS: usize = 64;
const EIGHTS: usize = CELLS / 8;

/// What the net remembers of one stream, Q15.
pub(super) struct Memory([[i16; CELLS]; 2]);

impl Memory {
    pub(super) const fn new() -> Self {
        Self([[0; CELLS]; 2])
    }

    /// How likely the newest of the hops is speech.
    pub(super) fn score(&mut self, bands: &[f32; FRAMES * BANDS]) -> f32 {
        let net = &**NET;
        let found = net.third.apply::<{ PLACES[2] }, { PLACES[3] }>(&net.second(&net.first(bands)));
        let [near, far] = &mut self.0;
        net.near.remember(&to_q15(&found), near);
        let near = eights(near);
        net.far.remember(&near, far);
        // Q15 by Q9 is Q24.
        let sum = dot(&near, &net.output[0]) + dot(&eights(far), &net.output[1]);
        1.0 / (1.0 + (-(sum as f32 / 16_777_216.0)).exp())
    }
}

/// How much each band counts.
pub(super) fn band_weights() -> &'static [f32; BANDS] {
    &NET.bands
}

/// The weights.
struct Net {
    bands: [f32; BANDS],
    kernel: [[f32; 3]; FRAMES],
    /// The first layer's weights where they are positive, and where they are negative.
    above: Channels,
    below: Channels,
    bias: Channels,
    second: Convolution,
    second_bias: Channels,
    third: Convolution,
    near: Layer<FOUND>,
    far: Layer<EIGHTS>,
    output: [[i16x8; EIGHTS]; 2],
}

impl Net {
    fn read(bytes: &[u8]) -> Self {
        let mut file = File(bytes);
        let bands = file.floats();
        let kernel = [file.floats(), file.floats(), file.floats()];
        let weights: [f32; CHANNELS] = file.floats();
        Self {
            bands,
            kernel,
            above: weights.map(|weight| weight.max(0.0)).into(),
            below: weights.map(|weight| weight.min(0.0)).into(),
            bias: file.floats().into(),
            second: Convolution::read(&mut file),
            second_bias: file.floats().into(),
            third: Convolution::read(&mut file),
            near: Layer::read(&mut file),
            far: Layer::read(&mut file),
            output: [file.eights(), file.eights()],
        }
    }

    /// Convolves over bands and hops, and takes the largest of three at every second place, or zero.
    fn first(&self, bands: &[f32; FRAMES * BANDS]) -> [Channels; PLACES[1]] {
        let mut row = [0.0; PLACES[0]];
        for (frame, kernel) in bands.as_chunks::<BANDS>().0.iter().zip(&self.kernel) {
            for (at, weight) in kernel.iter().enumerate() {
                for (sum, band) in row.iter_mut().zip(&frame[at..]) {
                    *sum += band * weight;
                }
            }
        }
        std::array::from_fn(|at| {
            let three = &row[2 * at..2 * at + 3];
            let most = larger(larger(three[0], three[1]), three[2]);
            let least = -larger(larger(-three[0], -three[1]), -three[2]);
            // What is largest times a weight depends on the weight's sign.
            positive(Channels::splat(most) * self.above + Channels::splat(least) * self.below + self.bias)
        })
    }

    fn second(&self, input: &[Channels; PLACES[1]]) -> [Channels; PLACES[2]] {
        self.second.apply(input).map(|channels| positive(channels + self.second_bias))
    }
}

/// A convolution over three places of each channel, taken at every second one, and a mix of the channels.
struct Convolution {
    kernel: [Channels; 3],
    /// What each channel adds to all.
    mix: [Channels; CHANNELS],
}

impl Convolution {
    fn read(file: &mut File<'_>) -> Self {
        let kernel = [(); CHANNELS].map(|()| file.floats::<3>());
        let mix = [(); CHANNELS].map(|()| file.floats::<CHANNELS>());
        Self {
            kernel: std::array::from_fn(|at| kernel.map(|weights| weights[at]).into()),
            mix: std::array::from_fn(|from| mix.map(|weights| weights[from]).into()),
        }
    }

    fn apply<const IN: usize, const OUT: usize>(&self, input: &[Channels; IN]) -> [Channels; OUT] {
        std::array::from_fn(|at| {
            let mut sums = Channels::ZERO;
            for (offset, weights) in self.kernel.iter().enumerate() {
                // The place before the first and the one behind the last are nothing.
                if let Some(input) = (2 * at + offset).checked_sub(1).and_then(|place| input.get(place)) {
                    sums += *input * *weights;
                }
            }
            let mut mixed = Channels::ZERO;
            for (sum, weights) in sums.to_array().iter().zip(&self.mix) {
                mixed += Channels::splat(*sum) * *weights;
            }
            mixed
        })
    }
}

/// A minimal gated recurrent layer in integers (arXiv 2410.01201): each cell moves towards a new value, as far as its gate
/// says, and both depend on the input alone.
struct Layer<const IN: usize> {
    values: [[i16x8; IN]; CELLS],
    gates: [[i16x8; IN]; CELLS],
}

/// One in Q24, all but.
const ONE: i32 = (1 << 24) - 1;

impl<const IN: usize> Layer<IN> {
    fn read(file: &mut File<'_>) -> Self {
        Self { values: [(); CELLS].map(|()| file.eights()), gates: [(); CELLS].map(|()| file.eights()) }
    }

    fn remember(&self, input: &[i16x8; IN], cells: &mut [i16; CELLS]) {
        for ((cell, value), gate) in cells.iter_mut().zip(&self.values).zip(&self.gates) {
            // Q15 by Q9 is Q24.
            let (value, gate) = (dot(input, value), (dot(input, gate) << 2).clamp(0, ONE));
            let kept = i64::from(ONE - gate) * (i64::from(*cell) << 9);
            let moved = kept + i64::from(gate) * i64::from(value);
            *cell = (moved >> 33).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        }
    }
}

fn to_q15(found: &[Channels; PLACES[3]]) -> [i16x8; FOUND] {
    let found = found.map(Channels::to_array);
    std::array::from_fn(|at| {
        let eight = &found[at / 2].as_chunks::<8>().0[at % 2];
        eight.map(to_i16).into()
    })
}

fn eights(cells: &[i16; CELLS]) -> [i16x8; EIGHTS] {
    std::array::from_fn(|at| cells.as_chunks().0[at].into())
}

fn dot<const N: usize>(left: &[i16x8; N], right: &[i16x8; N]) -> i32 {
    let mut sums = i32x4::ZERO;
    for (left, right) in left.iter().zip(right) {
        sums += left.dot(*right);
    }
    sums.reduce_add()
}

/// Zero for what is below it.
fn positive(channels: Channels) -> Channels {
    channels.fast_max(Channels::ZERO)
}

/// `max` takes NaN into account, at three times the cost.
const fn larger(left: f32, right: f32) -> f32 {
    if left > right { left } else { right }
}

/// The weights as they lie in the file, little-endian.
struct File<'a>(&'a [u8]);

impl File<'_> {
    fn floats<const N: usize>(&mut self) -> [f32; N] {
        [(); N].map(|()| f32::from_le_bytes(self.bytes()))
    }

    fn eights<const N: usize>(&mut self) -> [i16x8; N] {
        [(); N].map(|()| [(); 8].map(|()| i16::from_le_bytes(self.bytes())).into())
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) =
            self.0.split_first_chunk().expect("the weights are part of the program, and all there");
        self.0 = rest;
        *bytes
    }
}
